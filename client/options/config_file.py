"""Read both forms of a config file: keys alone, or sections as in the original tools, one of which names a file with
keys.

A key without effect is an error: silently ignored keys are what users of such tools complain about most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.client.options.option import Option, Read
from gputune.client.strict_json import a_path, a_text, an_object, of_kind, read_keys, read_object, unknown_key

EXTENSIONS, CONTEXT, GRAPHS, PROFILE = "backend_extensions", "context_configs", "graph_configs", "profile_configs"
SECTIONS = (EXTENSIONS, CONTEXT, GRAPHS, PROFILE)
GRAPH_NAMES = ("graph_names", "graph_name")
_EXTENSION_KEYS: Mapping[str, Read] = {"shared_library_path": a_text, "config_file_path": a_path}
_OWN_LIBRARIES = ("libQnnGpuNetRunExtensions.so", "QnnGpuNetRunExtensions.dll")
"""The extensions of the original's GPU backend, whose keys are those that are known here. None is ever loaded."""
_EXAMPLE = '{"context_configs": {"enable_graphs": ["detector"]}}'


@dataclass(frozen=True)
class Keys:
    """Hold what a command takes: options that are keys. refused: keys of the original tools and of other commands, with
    why they are refused and what to do instead."""

    options: Sequence[Option]
    refused: Mapping[str, str]

    def of(self, section: str) -> dict[str, Read]:
        """Return the keys of a section, or of the file itself, each with what reads its value."""
        return {one.key: one.kind.json for one in self.options if one.key and section in one.sections}


@dataclass(frozen=True)
class Found:
    """What a config file says. keys: of the file and of sections for the whole context, as they were read; graphs: of
    each entry of graph_configs, and of a file with graph_names. paths: the files that were read."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    graphs: tuple[Mapping[str, Any], ...] = ()
    paths: tuple[Path, ...] = ()


def read_file(file: Path, keys: Keys) -> Found:
    """Return the content of a config file of either form, every key checked. Raises ConfigError, and TargetError for an
    address."""
    content = read_object(file, _EXAMPLE)
    if not any(section in content for section in SECTIONS):
        return _inner(file, content, keys)
    where = f"config file {file}"
    for key in content:
        if key not in SECTIONS:
            if key in keys.of("file") or key in keys.refused:
                raise ConfigError(
                    f"{where}: {key!r} is next to sections; move it to the file that {EXTENSIONS} names as "
                    "config_file_path"
                )
            raise unknown_key(key, [*SECTIONS, *keys.of("file")], where)
    inner = _extension(file, content.get(EXTENSIONS, {}), keys)
    found = dict(inner.keys)
    for section, known in ((CONTEXT, keys.of("context")), (PROFILE, keys.of("profile"))):
        values = an_object(content.get(section, {}), f"{where}: {section}")
        for key, value in _read(f"{where}: {section}", values, known, keys).items():
            if key in found:
                raise ConfigError(f"{where}: {section}: {key!r} stands in {inner.paths[-1]}, too; keep one of them")
            found[key] = value
    graphs = tuple(_graphs(where, content.get(GRAPHS, []), keys))
    return Found(found, (*inner.graphs, *graphs), (file, *inner.paths))


def _inner(file: Path, content: Mapping[str, Any], keys: Keys) -> Found:
    """With graph_names beside them, keys of single graphs are for these only."""
    read = _read(f"config file {file}", content, keys.of("file"), keys, SECTIONS)
    if "graph_names" not in read:
        return Found(read, (), (file,))
    named = {key: value for key, value in read.items() if key in keys.of("graph")}
    if len(named) == 1:
        said = ", ".join(key for key in keys.of("graph") if key not in GRAPH_NAMES)
        raise ConfigError(
            f"config file {file}: graph_names names the graphs that keys next to it are for; add one of {said}"
        )
    return Found({key: value for key, value in read.items() if key not in named}, (named,), (file,))


def _extension(file: Path, value: Any, keys: Keys) -> Found:
    """Return the keys of the file that backend_extensions names."""
    where = f"config file {file}: {EXTENSIONS}"
    section = read_keys(an_object(value, where), _EXTENSION_KEYS, where)
    if "shared_library_path" in section:
        library: str = section["shared_library_path"]
        if library.replace("\\", "/").rpartition("/")[2] not in _OWN_LIBRARIES:
            raise ConfigError(
                f"{where}: shared_library_path: {library!r} is no extension for GPUs, and gputune loads no library; "
                f"leave it out, or keep {_OWN_LIBRARIES[0]}"
            )
    if "config_file_path" not in section:
        return Found()
    named: Path = section["config_file_path"]
    content = read_object(named)
    if nested := [section for section in SECTIONS if section in content]:
        raise ConfigError(f"config file {named}, which {file} names, may not have sections of its own: {nested[0]}")
    return _inner(named, content, keys)


def _graphs(where: str, value: Any, keys: Keys) -> Iterator[Mapping[str, Any]]:
    for number, entry in enumerate(of_kind(list, value, f"{where}: {GRAPHS}", "a list of objects")):
        place = f"{where}: {GRAPHS}[{number}]"
        section = dict(an_object(entry, place))
        if "graph_name" in section:
            if "graph_names" in section:
                raise ConfigError(f"{place} has graph_name and graph_names; keep one of them")
            section["graph_names"] = [section.pop("graph_name")]
        if "graph_names" not in section:
            raise ConfigError(f"{place} names no graph; give it graph_names")
        yield _read(place, section, keys.of("graph"), keys)


def _read(
    where: str, content: Mapping[str, Any], known: Mapping[str, Read], keys: Keys, others: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of known keys. others: what else a key that is not known may have meant."""
    for key in content:
        if key not in known:
            if key in keys.refused:
                raise ConfigError(f"{where}: key {key!r} is refused: {keys.refused[key]}")
            for section, its in ((CONTEXT, keys.of("context")), (PROFILE, keys.of("profile"))):
                if key in its:
                    raise ConfigError(f"{where}: key {key!r} is one of {section}; put it there")
            raise unknown_key(key, [*known, *keys.refused, *others], where)
    return read_keys(content, known, where)
