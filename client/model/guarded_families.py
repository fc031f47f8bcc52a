"""Wrap families and functions of op packages, so that each failure names the package, the request and the result.

Otherwise what a package's code raises or returns would surface far away, as an error that looks like gputune's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gputune.client.errors import ConfigError, GputuneError
from gputune.core.launches import Launch, Stage
from gputune.kernels.family import Instance, KernelFamily, TensorSpec
from gputune.kernels.space import TuningSpace, configuration_key

_UNCHECKED = ("pays", "guesses", "estimate", "sample_inputs", "survival", "work", "moved_bytes", "tolerance")


def guarded_family(family: KernelFamily, title: str) -> KernelFamily:
    """Return a family that asks another one, which a package of this title has, and raises ConfigError when that fails
    or answers with what cannot be used. A ValueError of `default`, that nothing fits on a device, stays what it is."""
    methods = {name: _asking(family, name, title) for name in (*_CHECKS, *_UNCHECKED)}
    more = {name: getattr(family, name) for name in dir(family) if not name.startswith("__") and name not in methods}
    kind = type(f"Guarded{type(family).__name__}", (KernelFamily,), {**more, **methods})
    guarded: KernelFamily = kind()
    return guarded


def guarded_function(function: Callable[..., Any], what: str, title: str) -> Callable[..., Any]:
    """Return a function that calls another one of a package and raises ConfigError for whatever it raises but errors of
    gputune's own and ValueError, which says what is wrong with a node."""

    def call(*arguments: Any) -> Any:
        return _called(function, arguments, what, title, ValueError)

    return call


def _asking(family: KernelFamily, name: str, title: str) -> Callable[..., Any]:
    method, what = getattr(family, name), f"{name} of {family.op}"
    check = _CHECKS.get(name)

    @functools.wraps(method)  # the type of its problem is read from it
    def ask(_: KernelFamily, *arguments: Any) -> Any:
        answer = _called(method, arguments, what, title, *((ValueError,) if name == "default" else ()))
        if name in ("guesses", "starters"):
            answer = _called(lambda: list(answer), (), what, title)
        if check is not None and (wrong := _called(check, (family, answer, *arguments), what, title)):
            raise ConfigError(f"op package {title}: {what}: {wrong}")
        return answer

    return ask


def _called(
    function: Callable[..., Any], arguments: Iterable[Any], what: str, title: str, *through: type[Exception]
) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # whatever a package's code raises
        if isinstance(error, (GputuneError, *through)):
            raise
        raise ConfigError(f"op package {title}: {what} raised {type(error).__name__}: {error}") from error


# --- what is wrong with an answer; empty where nothing is ---


def _wrong_inputs(family: KernelFamily, answer: Any, problem: Any) -> str:
    fine = isinstance(answer, tuple) and all(isinstance(spec, TensorSpec) for spec in answer)
    return "" if fine else f"it returned {answer!r} instead of a tuple of TensorSpec"


def _wrong_output(family: KernelFamily, answer: Any, problem: Any) -> str:
    return "" if isinstance(answer, TensorSpec) else f"it returned {answer!r} instead of a TensorSpec"


def _wrong_space(family: KernelFamily, answer: Any, problem: Any, limits: Any) -> str:
    return "" if isinstance(answer, TuningSpace) else f"it returned {answer!r} instead of a TuningSpace"


def _wrong_starters(family: KernelFamily, answer: Any, problem: Any, limits: Any) -> str:
    return next(filter(None, (_wrong_configuration(family, one, problem, limits) for one in answer)), "")


def _wrong_configuration(family: KernelFamily, answer: Any, problem: Any, limits: Any) -> str:
    if not isinstance(answer, Mapping):
        return f"it returned {answer!r} instead of a configuration"
    reasons = family.space(problem, limits).violations(answer)
    return f"it returned {dict(answer)}, which is not legal: {reasons[0]}" if reasons else ""


def _wrong_render(family: KernelFamily, answer: Any, problem: Any, configuration: Any) -> str:
    if not isinstance(answer, Instance):
        return f"it returned {answer!r} instead of an Instance"
    buffers = {spec.name for spec in family.inputs(problem)} | {"output", *answer.packed, *answer.scratch}
    launches = [launch for one in (*answer.prepare, answer.main) for launch in one.sequence]
    wrong = next(filter(None, (_wrong_launch(launch, buffers) for launch in launches)), "")
    return wrong and f"for {configuration_key(configuration)} {wrong}"


def _wrong_launch(launch: Launch | Stage, buffers: set[str]) -> str:
    across, within = launch.global_size, launch.local_size
    sizes = (*across, *within)
    if not 1 <= len(across) <= 3 or len(within) != len(across) or any(type(size) is not int for size in sizes):
        return f"{launch.entry!r} has sizes {across!r} and {within!r}; one to three whole numbers each are needed"
    if min(sizes) < 1 or any(size % inner for size, inner in zip(across, within, strict=True)):
        return f"{launch.entry!r} has sizes {across!r} and {within!r}; local ones are at least 1 and divide global ones"
    unknown = [name for name in launch.arguments if isinstance(name, str) and name not in buffers]
    return f"{launch.entry!r} wants a buffer {unknown[0]!r}; there are {', '.join(sorted(buffers))}" if unknown else ""


def _wrong_reference(family: KernelFamily, answer: Any, problem: Any, inputs: Any) -> str:
    want, got = family.output(problem).shape, getattr(answer, "shape", None)
    return "" if got == want else f"it returned the shape {got}, and the output has {want}"


_CHECKS: Mapping[str, Callable[..., str]] = {
    "inputs": _wrong_inputs,
    "output": _wrong_output,
    "space": _wrong_space,
    "default": _wrong_configuration,
    "starters": _wrong_starters,
    "render": _wrong_render,
    "reference": _wrong_reference,
}
