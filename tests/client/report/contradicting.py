"""Find contradictory figures of a tuning or a comparison, in its summary, its messages and its page.

Everything is read as a person reads it, without the code that wrote it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.client.pages.reading import of_kind, words

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
FASTER = re.compile(rf"({NUMBER}) times as fast \(({NUMBER})[–-]({NUMBER})\)")
EQUAL = re.compile(rf"no difference found \(({NUMBER})[–-]({NUMBER})\)")
UNKNOWN = re.compile(r"not known after (\d+) round")
LINE = re.compile(rf"inference ({NUMBER}) ms(?:, untuned ({NUMBER}) ms|; best tuned ({NUMBER}) ms)?: (.*)")
HEADLINE = re.compile(
    rf"measured end to end: (?:(best )?tuned ({NUMBER})\s?(\S+), )?untuned ({NUMBER})\s?(\S+): (.{{10,60}})"
)
UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
KEPT = {
    "tuned": "the tuned context ships",
    "last": "the last certain choice stays",
    "untuned": "the untuned context ships",
}
NARROW = 0.01
CLOSE = 1e-9


def contradictions(summary: Mapping[str, Any], log: str = "", page: Any = None) -> list[str]:
    """Return a line for each contradiction within the summary of a generation, its messages and its report."""
    told = summary["end_to_end"]
    if told is None:
        return []
    if "kept" not in told:
        return ["several graphs are not read here"]
    found = list(_of_record(told))
    compared = (summary.get("in_chain") or {}).get("candidates", [])
    found += _of_candidates(told, compared)
    if log:
        found += _of_log(told, log)
    if page:
        found += _of_page(told, page)
    return found


def _of_record(told: Mapping[str, Any]) -> Iterator[str]:
    gain, kept = told["gain"], told["kept"]
    if gain is None:
        if (told["tuned_ns"], kept, told["open"]) != (None, "untuned", False):
            yield f"there is no gain, and yet a tuned time, an open choice or a tuned context: {told}"
        return
    if abs(told["untuned_ns"] / told["tuned_ns"] / gain["median"] - 1) > CLOSE:
        yield f"untuned by tuned is {told['untuned_ns'] / told['tuned_ns']}, and the gain {gain['median']}"
    low, high = gain["low"] or 0.0, gain["high"] or float("inf")
    if (gain["low"] is None) != (gain["high"] is None):
        yield f"one end of the interval is known and the other is not: {gain}"
    if not low <= gain["median"] <= high:
        yield f"the interval does not hold the median: {gain}"
    if (kept == "tuned") != (low > 1) and kept != "last":
        yield f"kept is {kept}, and the interval {low} to {high}"
    if kept == "last" and (low > 1 or high < 1):
        yield f"the last choice was kept for what is certain: {low} to {high}"
    narrow = low >= gain["median"] * (1 - NARROW) and high <= gain["median"] * (1 + NARROW)
    if told["open"] != (low <= 1 <= high and not narrow) and gain["rounds"]:
        yield f"open is {told['open']}, and the interval {low} to {high}"


def _of_candidates(told: Mapping[str, Any], compared: list[Mapping[str, Any]]) -> Iterator[str]:
    chosen = [one for one in compared if one["chosen"]]
    if compared and (len(chosen) != 1 or sum(one["untuned"] for one in compared) != 1):
        yield f"{len(chosen)} contexts are chosen of {len(compared)}"
        return
    if compared and chosen[0]["untuned"] != (told["kept"] == "untuned"):
        yield f"kept is {told['kept']}, and the context that ships another: {chosen[0]}"
    if compared and told["gain"] not in [one["gain"] for one in compared]:
        yield "the gain is that of no context"
    if compared and told["kept"] != "untuned" and told["gain"] != chosen[0]["gain"]:
        yield "the gain is not that of the context that ships"
    for one in (one for one in compared if one["gain"] is not None):
        gain = one["gain"]
        if told["kept"] == "untuned" and (gain["low"] or 0.0) > 1:
            yield f"the untuned context was kept, and another is faster for certain: {one}"
        if told["kept"] == "untuned" and gain["median"] > told["gain"]["median"] * (1 + CLOSE):
            yield f"the best tuned context is another one: {one}"
        if one["left"] and gain["high"] is not None and gain["high"] < 1:
            yield f"a context is slower than the untuned one for certain and did not leave: {one}"


def _of_log(told: Mapping[str, Any], log: str) -> Iterator[str]:
    lines = [found for found in map(LINE.search, log.splitlines()) if found is not None]
    if len(lines) != 1:
        yield f"{len(lines)} lines say what an inference takes"
        return
    first, untuned, best, said = lines[0].groups()
    tuned, plain = (first, untuned) if untuned else (best, first)
    yield from _time(plain, 1e6, told["untuned_ns"], "the untuned time of the log")
    if tuned is not None:
        yield from _time(tuned, 1e6, told["tuned_ns"], "the tuned time of the log")
        yield from _quotient(plain, tuned, told["gain"]["median"], "the log")
    if (tuned is None) != (told["gain"] is None) or bool(untuned) != (told["kept"] != "untuned"):
        yield f"the log's line is not that of {told['kept']}: {lines[0][0]}"
    yield from _words(said, told["gain"], "the log")
    whole = log.replace("\n", " ")
    for kept, words_of in KEPT.items():
        if (words_of in whole) != (kept == told["kept"]):
            yield f"{words_of!r} is {'' if words_of in whole else 'not '}in the log, and kept is {told['kept']}"
    if ("this choice is open" in whole) != told["open"]:
        yield "the log and the summary do not agree whether the choice is open"


def _of_page(told: Mapping[str, Any], page: Any) -> Iterator[str]:
    """page: the section of its inferences, as blocks."""
    text = words(page)
    found = HEADLINE.search(text)
    if found is None:
        yield "the page has no headline of whole inferences"
        return
    best, tuned, unit, untuned, untuned_unit, _ = found.groups()
    yield from _time(untuned, UNITS[untuned_unit], told["untuned_ns"], "the untuned time of the page")
    if tuned is not None:
        yield from _time(tuned, UNITS[unit], told["tuned_ns"], "the tuned time of the page")
    if bool(best) != (told["kept"] == "untuned" and told["gain"] is not None):
        yield f"the page's headline is not that of {told['kept']}: {found[0]}"
    yield from _words(found[0], told["gain"], "the page's headline")
    if ("This choice is open" in text) != told["open"]:
        yield "the page and the summary do not agree whether the choice is open"
    rows = list(_rows(page))
    chosen = [row for row in rows if row["chosen"]]
    plain = next((row for row in rows if row["name"] == "untuned"), None)
    if plain is None or len(chosen) != 1 or (chosen[0] is plain) != (told["kept"] == "untuned"):
        yield f"the bars do not show that {told['kept']} was kept: {rows}"
        return
    for row in (row for row in rows if row is not plain):
        yield from _bar(row, plain["width"])


def _rows(page: Any) -> Iterator[dict[str, Any]]:
    """The bars of a page: what they say, how long they are, and where their whiskers begin and end, in percent."""
    for (name, _), (said, _) in of_kind([page], "table")[0]["rows"]:
        (bar,) = (run for run in said if "bar" in run)
        ends = (100 * bar["low"], 100 * bar["high"]) if "low" in bar else None
        yield {
            "name": name[0]["text"],
            "chosen": name[0].get("style") == "strong",
            "width": 100 * bar["bar"],
            "ends": ends,
            "said": words(said),
        }


def _bar(row: Mapping[str, Any], one: float) -> Iterator[str]:
    """one: the length of a bar of 1."""
    ratio, off = row["width"] / one, 0.02 / one * (1 + row["width"] / one)
    if faster := FASTER.search(row["said"]):
        yield from _near(ratio, faster[1], off, f"bar {row['name']}")
    interval = re.search(rf"\(({NUMBER})[–-]({NUMBER})\)", row["said"])
    if (interval is None) != (row["ends"] is None):
        yield f"bar {row['name']} has {'no ' if row['ends'] is None else 'a '}whisker, and says {row['said']}"
    if interval is None or row["ends"] is None:
        return
    if not row["ends"][0] - 0.05 <= row["width"] <= row["ends"][1] + 0.05:
        yield f"the whisker of {row['name']} does not reach its bar"
    for end, said in zip(row["ends"], interval.groups(), strict=True):
        if end < 99.9:  # one that is longer ends at the edge
            yield from _near(end / one, said, off, f"whisker of {row['name']}")


def of_comparison(content: Mapping[str, Any], chart: str = "") -> list[str]:
    """Return a line for each contradiction within the summary of `gputune compare` and its chart."""
    tuned, *others = content["contenders"]
    found: list[str] = []
    for one in others:
        gain = one["tuned_times_as_fast"]
        low, high = gain["low"] or 0.0, gain["high"] or float("inf")
        if not low <= gain["median"] <= high:
            found.append(f"{one['name']}: the interval does not hold the median: {gain}")
        if abs(one["time_ns"] / tuned["time_ns"] / gain["median"] - 1) > CLOSE:
            found.append(f"{one['name']}: its time by the tuned one's is not {gain['median']}")
    if chart:
        bars = [float(end) for end in re.findall(r'<path class="box[^"]*" d="M0 [\d.]+H([\d.]+)V', chart)]
        for one, bar in zip(content["contenders"], bars, strict=True):
            ratio = one["time_ns"] / tuned["time_ns"]
            if abs(bar / bars[0] / ratio - 1) > 0.01:
                found.append(f"{one['name']}: its bar is {bar / bars[0]} times as long as the tuned one's, not {ratio}")
    return found


def _words(said: str, gain: Mapping[str, Any] | None, where: str) -> Iterator[str]:
    """Yield what words say of a gain that it is not."""
    if gain is None:
        if FASTER.search(said) or EQUAL.search(said) or UNKNOWN.search(said):
            yield f"{where} tells a gain where there is none: {said}"
    elif unknown := UNKNOWN.search(said):
        if gain["low"] is not None or int(unknown[1]) != gain["rounds"]:
            yield f"{where} says that nothing is known: {said}, {gain}"
    elif faster := FASTER.search(said):
        for name, number in zip(("median", "low", "high"), faster.groups(), strict=True):
            yield from _near(gain[name], number, 0.0, f"{name} of {where}")
        if float(faster[2]) <= 1 <= float(faster[3]):
            yield f"{where} tells a difference, and its interval holds 1: {said}"
    elif equal := EQUAL.search(said):
        for name, number in zip(("low", "high"), equal.groups(), strict=True):
            yield from _near(gain[name], number, 0.0, f"{name} of {where}")
        if not float(equal[1]) <= 1 <= float(equal[2]):
            yield f"{where} tells no difference, and its interval does not hold 1: {said}"
    else:
        yield f"{where} says nothing of the gain: {said}"


def _time(said: str, unit: float, time_ns: float, where: str) -> Iterator[str]:
    yield from _near(time_ns / unit, said, 0.0, where)


def _quotient(untuned: str, tuned: str, gain: float, where: str) -> Iterator[str]:
    """Yield that two rounded times cannot have this quotient."""
    over, under = (float(one) for one in (untuned, tuned))
    off = _half(untuned) / over + _half(tuned) / under
    if abs(over / under / gain - 1) > 1.01 * off:
        yield f"{where}: {untuned} by {tuned} is not {gain}"


def _near(value: float | None, said: str, off: float, where: str) -> Iterator[str]:
    if value is None or abs(value - float(said)) > 1.001 * _half(said) + off + CLOSE:
        yield f"{where} says {said}, and it is {value}"


def _half(said: str) -> float:
    """Return half a unit of the last digit."""
    return 0.5 * 10.0 ** -len(said.partition(".")[2]) if "e" not in said else 0.005 * float(said)
