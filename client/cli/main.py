"""Define the `gputune` command. Each sub-command is imported only when it is called, so that all start quickly."""

import contextlib
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from gputune.cache import CacheError
from gputune.client.advice import line_of
from gputune.client.cli.begun import note_begun
from gputune.client.cli.say import INTERRUPTED, say
from gputune.client.cli.usage_errors import line_of_usage
from gputune.client.errors import GputuneError, OutputError
from gputune.client.options.originals import VERSION, with_version

COMMANDS = {
    "context-binary-generator": (
        "context_binary_generator",
        "Tune an ONNX model on a target, and write its context binary.",
    ),
    "model-check": ("model_check", "List the nodes of a model that run, and estimate their cost."),
    "net-run": ("net_run_command", "Run a context binary on this machine or on a target."),
    "throughput-net-run": (
        "throughput_net_run_command",
        "Run several contexts at the same time, and measure throughput.",
    ),
    "compare": ("compare_command", "Compare a tuned model with an untuned model and other engines."),
    "context-binary-utility": ("context_binary_utility_command", "Show what a context binary contains."),
    "package": ("package", "Combine contexts of one model for several devices in one file."),
    "export": ("export", "Write a folder with a context and a C program that runs it."),
    "onnxruntime": ("onnxruntime", "Run contexts inside onnxruntime, as its plugin."),
    "target-server": ("target_server", "Serve this machine's device to hosts."),
    "target-status": ("target_status", "Show the state of a target server."),
    "doctor": ("doctor", "Explain why a device or a target is not found."),
    "show-kernel": ("show_kernel", "Print the source of a task's kernels, and how they are launched."),
    "performance-cache": ("cache.performance_cache", "Show, move and clean up performance caches."),
    "farm": ("farm.farm", "Tune many models on many devices."),
    "tuning-report": ("tuning_report", "Write a page about what tuning has measured."),
    "memory-report": ("memory_report", "Write a page about where the tensors of a context lie in memory."),
    "profile-viewer": ("profile_viewer_command", "Show where the time of profiled inferences went."),
    "power": ("power_command", "Show which clocks can be controlled, and what perf profiles write."),
    "devices": ("devices", "List the OpenCL devices, and test them."),
    "completion": ("completion", "Print a script that completes gputune in your shell."),
}
FAILED = 1
"""The exit code of what has no code of its own."""

TRACEBACK = "GPUTUNE_TRACEBACK"
"""The environment variable that shows where an error has come from that nothing expects."""

_OF_STREAMS = frozenset((errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC))
"""What writing to an open stream fails with. Where its reader has gone, click ends the command quietly."""


class _Commands(click.Group):
    """Looks commands up in COMMANDS without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        note_begun(ctx)
        module = importlib.import_module(f"gputune.client.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return with_version(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def cli() -> None:
    """Tune the OpenCL kernels of ONNX models for the device that will run them.

    \b
    # on the device; "token" is a file with a secret
    gputune target-server --host 0.0.0.0 --token_file token
    # on the host: tunes for that device, writes out/m.bin
    gputune context-binary-generator --model m.onnx \\
        --binary_file m --output_dir out \\
        --target device:22598 --token_file token
    # on the device again
    gputune net-run --retrieve_context out/m.bin \\
        --input_list inputs.txt --output_dir results

    \b
    Exit codes:
       0  done
       1  any other error
       2  bad option or config file
       3  bad model, or no model of this context
       4  target or farm
       5  memory of the device, or no variant of a task works
       6  output cannot be written
       7  performance cache
       8  device or context
       9  nodes that cannot run (model-check)
      10  results differ from onnxruntime's, or are all NaN or
          infinite (--verify, compare, --check, --fail_under),
          or differ from earlier results (throughput-net-run)
      11  not in a frozen performance cache, or no gain is
          recorded (--fail_under)
      12  slower than allowed (profile-viewer --fail_over)
      13  smaller gain than asked for (--fail_under)
     130  interrupted
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: one line on standard error for whatever goes wrong."""
    try:
        code = _run(arguments)
    except click.exceptions.NoArgsIsHelpError as error:  # a group alone: its help says what is missing
        with contextlib.suppress(OSError):
            error.show()
        code = error.exit_code
    except click.ClickException as error:
        code = _failed(line_of_usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        code = _said("interrupted", INTERRUPTED)
    except GputuneError as error:
        code = _failed(line_of(error), error.exit_code)
    except CacheError as error:
        code = _failed(str(error), 7)
    except Exception as error:  # a defect: whatever it is, it is told in one line
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        what = " ".join([f"unexpected {type(error).__name__}:", *str(error).split()]).rstrip(":")
        code = _failed(f"{what}; {TRACEBACK}=1 shows where it comes from", FAILED)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command line and return its exit code. Raises OutputError where nothing more can be printed."""
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="gputune", standalone_mode=False)
        if sys.stdout is not None:  # None where it was closed before
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_STREAMS:
            raise
        with Path(os.devnull).open("w") as nowhere:  # for what is buffered still, which Python writes at its end
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error
    return code if isinstance(code, int) else 0


def _failed(line: str, code: int) -> int:
    """Tell an error on standard error and return the exit code."""
    return _said(f"error: {line}", code)


def _said(line: str, code: int) -> int:
    with contextlib.suppress(OSError):  # nothing can be told, but the code can
        say(line, err=True)
    return code


if __name__ == "__main__":
    main()
