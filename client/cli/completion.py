"""Define the command `gputune completion`."""

import click
from click.shell_completion import get_completion_class

from gputune.client.cli.say import say

VARIABLE = "_GPUTUNE_COMPLETE"
"""By which a shell asks gputune for completions; click's name for it."""
SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a script that completes gputune in your shell: commands, options, and the names of devices, tiers and
    files.

    \b
    gputune completion bash > ~/.local/share/bash-completion/completions/gputune
    # needs fpath+=~/.zfunc before compinit in ~/.zshrc
    gputune completion zsh > ~/.zfunc/_gputune
    gputune completion fish > ~/.config/fish/completions/gputune.fish
    """
    root = click.get_current_context().find_root().command
    script = get_completion_class(shell)
    assert script is not None  # of click's own shells
    for line in script(root, {}, "gputune", VARIABLE).source().strip().splitlines():
        say(line)
