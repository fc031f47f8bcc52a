"""The signatures of interface.py. scripts/docs writes this file from the options of client/options: change those."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gputune.client.api.checking import ModelCheck
from gputune.client.api.shapes import InputValues, Shapes
from gputune.client.api.tuning import AnyPath, Tuned, TuningProgress

def tune(
    model: AnyPath | Sequence[AnyPath],
    *,
    output: AnyPath | None = None,
    shapes: Shapes | None = None,
    effort: str | None = None,
    op_packages: Sequence[AnyPath] = (),
    cache: AnyPath | None = None,
    weights: str | None = None,
    unsupported: str | None = None,
    input_values: InputValues | None = None,
    state: str | None = None,
    state_capacity: int | Sequence[int] | None = None,
    precision_mode: str | None = None,
    io_type: str | Mapping[str, str] | None = None,
    keep_float32: Sequence[str] = (),
    float64: str | None = None,
    quantised: str | None = None,
    budget: float | str | None = None,
    compare_seconds: float | None = None,
    compare_again: bool = False,
    wait_for_quiet: int | None = None,
    fail_under: float | None = None,
    config_file: AnyPath | None = None,
    device: str | None = None,
    target: str | None = None,
    token_file: AnyPath | None = None,
    verify: bool = False,
    on_progress: Callable[[TuningProgress], None] | None = None,
) -> Tuned: ...
def check(
    model: Path | str,
    shapes: Shapes | None = None,
    *,
    input_values: InputValues | None = None,
    state: str | None = None,
    state_capacity: int | Sequence[int] | None = None,
    precision_mode: str | None = None,
    float64: str | None = None,
    quantised: str | None = None,
    device: str | None = None,
    op_packages: Sequence[AnyPath] = (),
) -> ModelCheck: ...
