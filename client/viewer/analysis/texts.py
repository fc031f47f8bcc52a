"""Format times and shares for people."""

from gputune.client.pages.scales import unit_of


def part_text(part_ns: float, whole_ns: float) -> str:
    """Return a part and the whole in the same unit."""
    unit, size = unit_of(whole_ns)
    return f"{part_ns / size:.2f} {unit} of {whole_ns / size:.2f} {unit}"


def percent_text(share: float) -> str:
    """Return a share of 1 in percent, small ones with a digit behind the point."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def signed_text(ratio: float) -> str:
    """Return what a ratio is above 1, in percent with its sign."""
    return f"{100 * (ratio - 1):+.1f} %"


def cut(name: str, width: int) -> str:
    """Return a name with its middle left out where it is too long."""
    half = (width - 3) // 2
    return name if len(name) <= width else f"{name[: width - 3 - half]}...{name[-half:]}"
