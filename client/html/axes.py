"""Draw charts with axes, as SVG that needs no script. Colours are classes of the page's style.

Each chart is drawn for a narrow phone and scales with its column, so that its text stays legible on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputune.client.html.markup import text
from gputune.client.html.scales import Scale, digits, log_scale

WIDTH = 320
LEFT, RIGHT = 50, 8


@dataclass(frozen=True)
class RooflinePoint:
    """A place under a roof. intensity: operations per byte. style: point, or faint for what only draws the roof; name,
    link: what it says, and the anchor that it leads to, where it does."""

    intensity: float
    gflops: float
    style: str = "point"
    name: str = ""
    link: str = ""


def roofline_chart(label: str, peak_gflops: float, peak_gb_per_s: float, points: Sequence[RooflinePoint]) -> str:
    """Operations per second by operations per byte, under the roof. All numbers above 0."""
    bottom = 196
    ridge = peak_gflops / peak_gb_per_s
    across = log_scale([*(point.intensity for point in points), ridge], LEFT, WIDTH - RIGHT, 2)
    up = log_scale([*(point.gflops for point in points), peak_gflops], bottom, 12, 2)
    parts = [
        rows(up, [(tick, digits(tick)) for tick in up.ticks(4)]),
        columns(across, [(tick, digits(tick)) for tick in across.ticks(5)], bottom),
        f'<path class="roof" d="{_roof(peak_gflops, peak_gb_per_s, across, up, bottom)}"/>',
        words(WIDTH - RIGHT - 2, up(peak_gflops) - 6, f"{digits(peak_gflops)} GFLOP/s", "end"),
        words((LEFT + WIDTH) / 2, 226, "operations per byte", "middle"),
    ]
    parts += [_point(point, across, up) for point in sorted(points, key=lambda point: point.style != "faint")]
    return picture(label, 230, parts)


def rows(up: Scale, ticks: Sequence[tuple[float, str]]) -> str:
    """Return the ticks of the scale at the left, with lines across the picture."""
    lines = "".join(f"M{LEFT} {up(value):g}H{WIDTH - RIGHT}" for value, _ in ticks)
    return f'<path class="grid" d="{lines}"/>' + "".join(words(LEFT - 4, up(v) + 3.5, text, "end") for v, text in ticks)


def columns(across: Scale, ticks: Sequence[tuple[float, str]], bottom: float, grid: bool = False) -> str:
    """Return the ticks of the scale below; grid: with lines up to the top."""
    marks = "".join(f"M{across(value):g} {bottom}{'V16' if grid else 'v4'}" for value, _ in ticks)
    texts = "".join(words(across(v), bottom + 15, text, anchor_at(across(v))) for v, text in ticks)
    return f'<path class="grid" d="M{LEFT} {bottom}H{WIDTH - RIGHT}{marks}"/>{texts}'


def anchor_at(x: float) -> str:
    """So that a text at the right end stays in the picture."""
    return "end" if x > WIDTH - 20 else "middle"


def level(y: float, name: str) -> str:
    """Return a dashed line across the picture with its name."""
    return f'<path class="level" d="M{LEFT} {y:g}H{WIDTH - RIGHT}"/>{words(WIDTH - RIGHT, y - 4, name, "end")}'


def words(x: float, y: float, written: str, anchor: str, style: str = "") -> str:
    """Return a text in a picture."""
    styled = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{styled}>{text(written)}</text>'


def picture(label: str, height: float, parts: Sequence[str]) -> str:
    """Return the whole picture; label says what it shows to those who cannot see it."""
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'


def _point(point: RooflinePoint, across: Scale, up: Scale) -> str:
    name = f"<title>{text(point.name)}</title>" if point.name else ""
    radius = 2.5 if point.style == "faint" else 4.5
    at = f'cx="{across(point.intensity):g}" cy="{up(point.gflops):g}" r="{radius}"'
    circle = f'<circle class="{point.style}" {at}>{name}</circle>'
    return f'<a href="#{point.link}">{circle}</a>' if point.link else circle


def _roof(gflops: float, gb_per_s: float, across: Scale, up: Scale, bottom: float) -> str:
    """Memory's slope up to the ridge, then level. It enters where it crosses the left or the lower end."""
    start = max(across.low, up.low / gb_per_s)
    points = [(across(x), up(min(gflops, x * gb_per_s))) for x in (start, gflops / gb_per_s, across.high)]
    return "M" + "L".join(f"{x:g} {min(y, bottom):g}" for x, y in points)
