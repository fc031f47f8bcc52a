"""Write the target server's bundle for devices with Python (client/target/adb/bundle.py)."""

import argparse
import hashlib
from pathlib import Path

from gputune.client.target.adb.bundle import NAME, write_bundle

BUILD = Path(__file__).parents[1] / "build"


def main() -> None:
    """Write the file, and describe it."""
    parser = argparse.ArgumentParser(prog="scripts/build-target", description=__doc__)
    parser.add_argument("--output", type=Path, default=BUILD / NAME, help="(default: %(default)s)")
    path = write_bundle(parser.parse_args().output)
    content = path.read_bytes()
    print(f"{path}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
