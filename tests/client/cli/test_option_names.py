"""One name for one thing: an option is called the same, and is of the same form, in every command."""

from collections import defaultdict
from collections.abc import Iterator

import click

from gputune.client.cli.main import cli

SECOND_NAMES = {
    ("throughput-net-run", "--config"): "--config_file",  # as the original tools call it
    ("profile-viewer", "--config"): "--config_file",
}
"""Other spellings that are taken: docs/config_files.md has them."""

ONE_OF = (
    {"--context", "--context_binary"},
    {"--gflops", "--peak_gflops"},
    {"--gbps", "--peak_gbps", "--peak_gb_per_s"},
    {"--cache", "--cache_dir", "--performance_cache_dir"},
    {"--tier", "--device_tier"},
)
"""Names for the same: one of each is used."""


def options() -> Iterator[tuple[str, click.Option]]:
    """Every option, with the words of its command."""

    def below(
        command: click.Command, words: tuple[str, ...], context: click.Context
    ) -> Iterator[tuple[str, click.Option]]:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from below(inner, (*words, name), context)
        yield from ((" ".join(words), one) for one in command.params if isinstance(one, click.Option))

    yield from below(cli, (), click.Context(cli))


def test_an_option_has_one_name_unless_the_other_is_documented() -> None:
    for command, option in options():
        names = [name for name in option.opts if name.startswith("--")]
        others = {name for name in names[1:] if SECOND_NAMES.get((command, name)) != names[0]}
        assert not others, (command, names)
        assert all(name == name.lower() and "-" not in name[2:] for name in names), (command, names)


def test_things_are_called_the_same_everywhere() -> None:
    used = {name for _, option in options() for name in option.opts}
    for names in ONE_OF:
        assert len(names & used) == 1, names & used


def test_an_option_takes_a_value_everywhere_or_nowhere() -> None:
    forms = defaultdict(set)
    for command, option in options():
        forms[option.opts[0]].add(option.is_flag)
        assert option.help or option.hidden, (command, option.opts)
    assert [name for name, found in forms.items() if len(found) > 1] == []
