"""Define the form of a profile's summary: its sections, their columns, and the JSON schema that follows from these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KIND = "gputune-profile-summary"
VERSION = 2
_OR_NULL = "|null"

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "logs": {
        "log": "integer",
        "path": "string",
        "level": "string",
        "software": "string",
        "device": "string",
        "driver": "string",
        "complete": "boolean",
        "begun_unix_ns": "integer",
    },
    "overall": {
        "graph": "integer",
        "log": "integer",
        "name": "string",
        "context": "string",
        "digest": "string",
        "computes": "boolean",
        "launches": "integer",
        "persistent_launches": "integer",
        "operations": "integer",
        "inferences": "integer",
        "inferences_by_launches": "integer",
        "inferences_persistent": "integer",
        "inferences_aborted": "integer",
        "inferences_marked": "integer",
        "unmarked": "string",
        "inferences_with_timestamps": "integer",
        "elapsed_total_ns": "integer",
        "elapsed_median_ns": "number|null",
        "elapsed_low_ns": "number|null",
        "elapsed_high_ns": "number|null",
        "kernels_total_ns": "integer",
        "kernels_share": "number|null",
        "load_ns": "integer",
        "dominant_path_ns": "number|null",
        "dominant_path_share": "number|null",
        "roofline_ns": "number|null",
        "roofline_share": "number|null",
    },
    "account": {"graph": "integer", "row": "string", "total_ns": "integer", "share": "number"},
    "op_types": {
        "graph": "integer",
        "op": "string|null",
        "operations": "integer",
        "launches": "integer",
        "total_ns": "integer",
        "median_ns": "number",
        "kernels_share": "number",
        "flops": "integer|null",
        "bytes": "integer|null",
        "roofline_ns": "number|null",
    },
    "op_instances": {
        "graph": "integer",
        "operation": "string",
        "op": "string|null",
        "task": "string",
        "launches": "integer",
        "total_ns": "integer",
        "median_ns": "number",
        "least_ns": "integer|null",
        "most_ns": "integer|null",
        "kernels_share": "number",
        "roofline_ns": "number|null",
        "alone_ns": "number|null",
        "default_ns": "number|null",
        "inside_ns": "number|null",
        "slack_ns": "number|null",
        "onnx_nodes": "strings",
    },
    "dominant_path": {
        "graph": "integer",
        "step": "integer",
        "operation": "string",
        "op": "string",
        "median_ns": "number",
        "ended_ns": "number",
        "path_share": "number",
    },
    "roofline": {
        "graph": "integer",
        "operation": "string",
        "flops": "integer",
        "bytes": "integer",
        "median_ns": "number",
        "roofline_ns": "number",
        "share": "number",
        "bound": "string",
        "gflops_per_s": "number",
        "gbytes_per_s": "number",
    },
    "peaks": {"graph": "integer", "gflops_per_s": "number", "gbytes_per_s": "number", "origin": "string"},
    "findings": {"graph": "integer", "rank": "integer", "kind": "string", "share": "number", "text": "string"},
    "comparisons": {
        "graph": "integer",
        "inferences": "integer",
        "unprofiled_ns": "number",
        "profiled_ns": "number",
        "usual_ns": "number",
        "usual_form": "string",
        "profiled_by_unprofiled": "number",
        "profiled_by_unprofiled_low": "number",
        "profiled_by_unprofiled_high": "number",
        "usual_by_unprofiled": "number|null",
        "usual_by_unprofiled_low": "number|null",
        "usual_by_unprofiled_high": "number|null",
    },
    "profiler": {"graph": "integer", "within_total_ns": "integer", "behind_total_ns": "integer"},
    "clocks": {"graph": "integer", "method": "string", "inferences": "integer", "bound_ns": "integer"},
    "counters": {"graph": "integer", "counter": "string", "total": "integer", "median": "number"},
    "unavailable_counters": {"log": "integer", "counter": "string", "reason": "string"},
    "preemptions": {"graph": "integer", "thread": "integer", "count": "integer"},
    "states": {
        "log": "integer",
        "value": "string",
        "samples": "integer",
        "least": "number",
        "median": "number",
        "most": "number",
    },
    "phases": {
        "log": "integer",
        "name": "string",
        "identifier": "integer",
        "begun_ns": "integer",
        "elapsed_ns": "integer",
    },
}
"""Of each section, its columns with the JSON types of their values."""


def _section(columns: Mapping[str, str]) -> dict[str, Any]:
    properties = {name: _type(kind) for name, kind in columns.items()}
    row = {"type": "object", "properties": properties, "required": list(columns), "additionalProperties": False}
    return {"type": "array", "items": row}


def _type(kind: str) -> dict[str, Any]:
    if kind == "strings":
        return {"type": "array", "items": {"type": "string"}}
    return {"type": [kind.removesuffix(_OR_NULL), "null"] if kind.endswith(_OR_NULL) else kind}


_HEAD: dict[str, Any] = {
    "kind": {"const": KIND},
    "version": {"const": VERSION},
    "model": {"type": ["string", "null"]},
    "zoom_ns": {"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Summary of a profile, by gputune profile-viewer",
    "type": "object",
    "properties": {**_HEAD, **{name: _section(columns) for name, columns in COLUMNS.items()}},
    "required": [*_HEAD, *COLUMNS],
    "additionalProperties": False,
}
"""What summary_of returns, as a JSON schema (draft 2020-12)."""
