"""Measure what PyTorch reaches on the card: products, convolutions, softmax, attention, networks, launches, copies.

Device times are times of CUDA graphs that hold a call several times, so they do not include launching. If inputs should
not lie in the caches, there are several, used in turns. Networks run eagerly and as graphs.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu.record import Record, brief, run, spread

REPEATS = 20
SAMPLES = 9
NETWORKS: Mapping[str, float] = {"squeezenet1_1": 0.349e9, "resnet50": 4.089e9, "mobilenet_v2": 0.301e9}
"""torchvision's networks, and their multiply-adds as it gives them: those of ours that they are compared with."""

# height, width, in, out, kernel, stride
CONVOLUTIONS = (
    (56, 56, 64, 64, 3, 1),
    (28, 28, 128, 128, 3, 1),
    (14, 14, 256, 256, 3, 1),
    (7, 7, 512, 512, 3, 1),
    (224, 224, 3, 64, 7, 2),
    (56, 56, 64, 256, 1, 1),
    (56, 56, 256, 64, 1, 1),
    (28, 28, 128, 512, 1, 1),
    (28, 28, 512, 128, 1, 1),
    (14, 14, 256, 1024, 1, 1),
    (14, 14, 1024, 256, 1, 1),
    (7, 7, 512, 2048, 1, 1),
    (7, 7, 2048, 512, 1, 1),
    (56, 56, 256, 512, 1, 2),
    (55, 55, 96, 16, 1, 1),
)


class Bench:
    """PyTorch on a device, and how calls are timed there."""

    def __init__(self, record: Record) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.cuda = bool(self.torch.cuda.is_available())
        self.device = "cuda" if self.cuda else "cpu"
        self.record = record

    def random(self, *shape: int, half: bool = False) -> Any:
        """Return normal random numbers on the device."""
        kind = self.torch.float16 if half else self.torch.float32
        return self.torch.randn(*shape, device=self.device).to(kind)

    def precision(self, tf32: bool) -> None:
        """Allow TF32 where float32 is asked for, or not."""
        self.torch.backends.cuda.matmul.allow_tf32 = tf32
        self.torch.backends.cudnn.allow_tf32 = tf32

    def graph_us(self, calls: Sequence[Callable[[], Any]]) -> dict[str, float]:
        """Return microseconds of one call on the device, from graphs that hold these in turns."""
        torch = self.torch
        repeats = max(REPEATS // len(calls), 1) * len(calls)
        if not self.cuda:
            return spread([self._wall_us(calls[0], 1) for _ in range(3)])
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # warms up: algorithms are chosen, workspaces allocated
            for call in [*calls, *calls]:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(repeats):
                calls[number % len(calls)]()
        samples = []
        for _ in range(SAMPLES + 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            samples.append(float(start.elapsed_time(end)) / repeats * 1e3)
        return spread(samples[1:])

    def eager_us(self, call: Callable[[], Any]) -> dict[str, float]:
        """Return microseconds of one call that is waited for, by the host's clock."""
        for _ in range(1 if self.record.rehearse else 10):
            call()
        return spread([self._wall_us(call, 1) for _ in range(3 if self.record.rehearse else 40)])

    def _wall_us(self, call: Callable[[], Any], times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        if self.cuda:
            self.torch.cuda.synchronize()
        return (time.perf_counter() - start) / times * 1e6


def main(record: Record) -> None:
    """Measures what is asked for most often first; a part that fails costs itself."""
    try:
        bench = Bench(record)
    except ImportError as error:
        record.put("error", "torch", value=brief(error))
        record.say("PyTorch cannot be imported")
        return
    record.put("torch", value={"version": bench.torch.__version__, "device": bench.device})
    with bench.torch.inference_mode():
        for part in (_networks, _products, _convolutions, _rows, _launches, _copies):
            if record.left > 2:
                name = part.__name__.strip("_")
                record.attempt(name, functools.partial(part, bench))
                record.say(f"{name}: {_medians(record.get(name))}")


def _medians(found: Any) -> str:
    if not isinstance(found, dict):
        return str(found)
    if "median" in found:
        return str(found["median"])
    return ", ".join(f"{name} [{_medians(one)}]" for name, one in found.items())


def _precisions(bench: Bench, measure: Callable[[bool], dict[str, float]]) -> dict[str, Any]:
    """What `measure`, which is told whether numbers are half, takes in float32, TF32 and half."""
    found: dict[str, Any] = {}
    for name, tf32, half in (("fp32", False, False), ("tf32", True, False), ("fp16", False, True)):
        if half and not bench.cuda:
            continue
        bench.precision(tf32)
        try:
            found[name] = measure(half)
        except Exception as error:
            found[name] = brief(error)
    bench.precision(False)
    return found


def _networks(bench: Bench) -> dict[str, Any]:
    """Whole networks with random weights, batch 1: eager, and as a graph."""
    models = importlib.import_module("torchvision").models
    found: dict[str, Any] = {}
    for name in [*NETWORKS][: 1 if bench.record.rehearse else None]:
        model, x = getattr(models, name)(weights=None).eval().to(bench.device), bench.random(1, 3, 224, 224)
        last = bench.torch.channels_last
        laid = model.to(memory_format=last), x.to(memory_format=last)

        def measure(half: bool, laid: tuple[Any, Any] = laid) -> dict[str, float]:
            one, given = (part.half() if half else part.float() for part in laid)
            return bench.graph_us([lambda: one(given)])

        bench.precision(False)
        found[name] = {"eager": bench.eager_us(functools.partial(model, x)), "graph": _precisions(bench, measure)}
        bench.record.put("networks", value=found)
    return found


def _products(bench: Bench) -> dict[str, Any]:
    """Products of matrices; those with one row read several right sides in turns, which do not fit into the caches."""
    found: dict[str, Any] = {}
    shapes = [(128, 128, 128)] if bench.record.rehearse else [(size,) * 3 for size in (512, 1024, 2048, 4096)]
    shapes += [] if bench.record.rehearse else [(1, 4096, 4096), (8, 4096, 4096), (1, 1024, 1000), (197, 768, 768)]
    for m, k, n in shapes:

        def measure(half: bool, m: int = m, k: int = k, n: int = n) -> dict[str, float]:
            a = bench.random(m, k, half=half)
            sides = [bench.random(k, n, half=half) for _ in range(4 if m <= 8 and k * n > 1 << 22 else 1)]
            return bench.graph_us([functools.partial(bench.torch.mm, a, b) for b in sides])

        found[f"{m}x{k}x{n}"] = _precisions(bench, measure)
    return found


def _convolutions(bench: Bench) -> dict[str, Any]:
    """Convolutions of ResNet-50 and one of SqueezeNet, batch 1, NHWC, and a depthwise one."""
    found: dict[str, Any] = {}
    functional, last = bench.torch.nn.functional, bench.torch.channels_last
    bench.torch.backends.cudnn.benchmark = True
    shapes = [(*one, 1) for one in CONVOLUTIONS] + [(56, 56, 144, 144, 3, 1, 144)]
    for height, width, channels, filters, kernel, stride, groups in shapes[:2] if bench.record.rehearse else shapes:

        def measure(
            half: bool,
            shapes: tuple[tuple[int, ...], tuple[int, ...]] = (
                (1, channels, height, width),
                (filters, channels // groups, kernel, kernel),
            ),
            more: dict[str, int] = {"stride": stride, "padding": kernel // 2, "groups": groups},  # noqa: B006
        ) -> dict[str, float]:
            x, w = (bench.random(*shape, half=half).to(memory_format=last) for shape in shapes)
            return bench.graph_us([lambda: functional.conv2d(x, w, **more)])

        name = f"{height}x{width} {channels}-{filters} {kernel}x{kernel} /{stride} g{groups}"
        found[name] = _precisions(bench, measure)
    bench.torch.backends.cudnn.benchmark = False
    return found


def _rows(bench: Bench) -> dict[str, Any]:
    """Softmax, layer normalisation and attention."""
    functional = bench.torch.nn.functional
    heads = [bench.random(1, 12, 197, 64) for _ in range(3)]
    found = {"attention 12x197x64": bench.graph_us([lambda: functional.scaled_dot_product_attention(*heads)])}
    for rows, columns in ((1, 1000), (2364, 197), (197, 768)):
        x = bench.random(rows, columns)
        found[f"softmax {rows}x{columns}"] = bench.graph_us([functools.partial(functional.softmax, x, -1)])
        found[f"layer_norm {rows}x{columns}"] = bench.graph_us(
            [functools.partial(functional.layer_norm, x, (columns,))]
        )
    return found


def _launches(bench: Bench) -> dict[str, Any]:
    """A kernel that hardly computes: in a graph, and launched one by one."""
    x = bench.random(64)
    chain = [lambda: x.mul_(0.5)]

    def eager() -> None:
        for _ in range(32):
            x.mul_(0.5)

    return {"graph_us": bench.graph_us(chain), "eager_us_of_32": bench.eager_us(eager)}


def _copies(bench: Bench) -> dict[str, Any]:
    """GB/s of copies, bytes read and written."""
    found = {}
    for nbytes in (1 << 22,) if bench.record.rehearse else (4 << 20, 16 << 20, 1 << 30, 4 << 30):
        a, b = (bench.torch.empty(nbytes // 4, device=bench.device).normal_() for _ in range(2))
        us = bench.graph_us([functools.partial(b.copy_, a)])["median"]
        found[str(nbytes)] = round(2 * nbytes / us / 1e3, 1)
    return found


if __name__ == "__main__":
    run(main)
