"""Draw pictures: paths in a square of SIDE units that stretches, with ticks and labels that keep their size.

A page shows a drawing by page.js; `svg` writes the same paths as a file of its own, without a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.pages.blocks import Block
from gputune.client.pages.scales import Scale, digits, log_scale

SIDE = 1000
Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True)
class RooflinePoint:
    """A place under a roof. intensity: operations per byte. style: point, with or without a colour, or faint for what
    only draws the roof; name, link: what it says, and the id that it leads to, where it does."""

    intensity: float
    gflops: float
    style: str = "point"
    name: str = ""
    link: str = ""


def drawing(
    label: str,
    paths: Iterable[Block],
    *,
    up: Sequence[Tick] = (),
    across: Sequence[Tick] = (),
    labels: Iterable[tuple[float, float, str, str]] = (),
    axis: str = "",
    height: int = 200,
) -> Block:
    """Return a picture. label: what it shows, for those who cannot see it; up, across: ticks at the left, with lines
    across the picture, and below; labels: place, text and style; axis: what goes across; height: in pixels."""
    grid = path("".join(f"M0 {y:g}H{SIDE}" for y, _ in up) + f"M0 {SIDE}H{SIDE}", "grid")
    block = {"kind": "drawing", "label": label, "height": height, "paths": [grid, *paths]}
    parts: dict[str, Any] = {"up": up, "across": across, "labels": list(labels), "axis": axis}
    return block | {name: part for name, part in parts.items() if part}


def path(d: str, style: str, hint: str = "", link: str = "") -> Block:
    """Return a path of a drawing. d: as of SVG, in a square of SIDE units; link: the id that it leads to."""
    return {"d": d, "style": style, **({"hint": hint} if hint else {}), **({"link": link} if link else {})}


def line(points: Iterable[Point]) -> str:
    """Return the path from point to point."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def steps(points: Sequence[Point]) -> str:
    """Return the path that keeps each height until the next point."""
    (x, y), *rest = points
    return f"M{x:g} {y:g}" + "".join(f"H{x:g}V{y:g}" for x, y in rest)


def dots(points: Iterable[Point]) -> str:
    """Return the path whose line ends are dots."""
    return "".join(f"M{x:g} {y:g}h0" for x, y in points)


def box(left: float, top: float, right: float, bottom: float) -> str:
    """Return the path around a box."""
    return f"M{left:g} {top:g}H{right:g}V{bottom:g}H{left:g}Z"


def ticks(scale: Scale, form: Callable[[float], str], count: int = 4, whole: bool = False) -> list[Tick]:
    """Return about so many ticks of a scale with their texts; whole: of whole numbers only."""
    return [(scale(tick), form(tick)) for tick in scale.ticks(count) if not whole or tick == int(tick)]


def scale_across(low: float, high: float) -> Scale:
    """Return a scale from the left to the right of a drawing."""
    return Scale(low, high, 0, SIDE)


def scale_up(low: float, high: float) -> Scale:
    """Return a scale from the lower to the upper end of a drawing."""
    return Scale(low, high, SIDE, 0)


def roofline(label: str, peak_gflops: float, peak_gb_per_s: float, points: Sequence[RooflinePoint]) -> Block:
    """Draw operations per second by operations per byte, under the roof. All numbers are above 0."""
    ridge = peak_gflops / peak_gb_per_s
    across = log_scale([*(point.intensity for point in points), ridge], 0, SIDE, 2)
    up = log_scale([*(point.gflops for point in points), peak_gflops], SIDE, 0, 2)
    start = max(across.low, up.low / peak_gb_per_s)
    roof = [(across(x), up(min(peak_gflops, x * peak_gb_per_s))) for x in (start, ridge, across.high)]
    mute = [one for one in points if not one.name]
    places = [
        path(dots((across(one.intensity), up(one.gflops)) for one in mute if one.style == style), style)
        for style in ("faint", "point")
    ]
    places += [
        path(dots([(across(one.intensity), up(one.gflops))]), one.style, one.name, one.link)
        for one in sorted(points, key=lambda one: one.style != "faint")
        if one.name
    ]
    top = (SIDE, up(peak_gflops) - 45, f"{digits(peak_gflops)} GFLOP/s", "end")
    return drawing(
        label,
        [path(line(roof), "roof"), *places],
        up=ticks(up, digits),
        across=ticks(across, digits, 5),
        labels=[top],
        axis="operations per byte",
    )


def held(label: str, alive_bytes: Sequence[int], total: int, bound: int | None, form: Callable[[float], str]) -> Block:
    """Draw how many bytes are held while each operation runs; bound: a line across, where there is one."""
    across, up = scale_across(0, len(alive_bytes)), scale_up(0, total)
    over = "".join(f"V{up(alive):g}H{across(place):g}" for place, alive in enumerate(alive_bytes, start=1))
    paths = [path(f"M0 {SIDE}{over}V{SIDE}Z", "held")]
    paths += [] if bound is None else [level(up(bound), "bound")]
    starts = ticks(across, "{:g}".format, 5, whole=True)
    return drawing(label, paths, up=ticks(up, form), across=starts, height=160)


def level(y: float, name: str) -> Block:
    """Return a dashed line across a drawing."""
    return path(f"M0 {y:g}H{SIDE}", "level", name)
