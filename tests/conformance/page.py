"""Writes `docs/fidelity.md` from the rows of a run."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]

_KINDS = {"forward": "forward results", "gradient": "gradients", "errors": "error inputs"}


def agrees(row: Row) -> bool | None:
    """Whether the device did what a Mac does; None where the lists do not tell, or nothing could be compared."""
    if row["expected"] == "unknown" or row["actual"] == "unscored":
        return None
    if row["expected"] == "runs":
        return bool(row["actual"] == "runs")
    if row["expected"] == "fails":
        return row["actual"] in ("raises", "differs")
    return bool(row["actual"] == "raises")


def discriminates(row: Row) -> bool:
    """Whether a copy of the CPU gets the pair wrong."""
    return row["expected"] != "unknown" and row["on_cpu"] != (row["expected"] == "runs")


def share(rows: Iterable[Row]) -> tuple[int, int]:
    """How many pairs agree, of how many that are scored."""
    verdicts = Counter(agrees(row) for row in rows)
    return verdicts[True], verdicts[True] + verdicts[False]


def _percent(agreeing: int, scored: int) -> str:
    return f"{100 * agreeing / scored:.1f} %" if scored else "none"


def _table(head: str, groups: Iterable[tuple[str, Iterable[Row]]]) -> list[str]:
    lines = [f"| {head} | agree | scored | share | not scored |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, rows in groups:
        members = list(rows)
        agreeing, scored = share(members)
        lines.append(f"| {name} | {agreeing} | {scored} | {_percent(agreeing, scored)} | {len(members) - scored} |")
    return lines


def _by(rows: Iterable[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return sorted(groups.items())


def write(rows: list[Row], torch_version: str, limits: tuple[int, int], date: datetime.date) -> str:
    """The page as Markdown."""
    forward = [row for row in rows if row["kind"] == "forward"]
    special = [row for row in forward if discriminates(row)]
    lost = [row for row in rows if row["actual"] in ("crash", "hang")]
    lines = [
        "# Fidelity",
        "",
        f"Generated on {date.isoformat()} with torch {torch_version}:",
        "`python -m tests.conformance --write docs/fidelity.md`.",
        "Do not edit it: run the command again.",
        "",
        "Torch's database of operators (OpInfo) was run on the virtual device. What a Mac does with each",
        "operator and dtype is taken from the lists of torch's own MPS tests in the installed wheel",
        "(`OpInfo.dtypesIfMPS` and `torch/testing/_internal/common_mps.py`), for the newest macOS. No Mac was",
        "asked.",
        "",
        "- *forward results*: one pair is an operator and a dtype. It agrees if every sample runs and equals the CPU's",
        "  result where a Mac runs it, and if a sample raises where a Mac refuses it.",
        "- *gradients*: the same for float32 and float16 gradients with random output gradients.",
        "- *error inputs*: every wrong input of the database gets the error type and text that the database describes.",
        "- *not scored*: the lists do not tell (skipped or undefined there, tested on CUDA only, a claim known to be",
        "  inexact), or nothing could be compared (gradients of random numbers, operators without a gradient).",
        f"- At most {limits[0]} samples were run of a pair that a Mac runs, and {limits[1]} of any other.",
        "",
        "What agreement does *not* mean: results come from CPU kernels, so rounding and speed are the CPU's;",
        "where a Mac computes something wrong in silence, the virtual device computes it right; the wording",
        "of a refusal is a Mac's where torch's sources or binaries give it. Random numbers are compared in",
        "shape and dtype alone. Where the CPU has no kernel for integers or bools, there is no result to",
        "compare with, and a pair agrees if it runs; half precision is then compared with float32.",
        "",
        "The table of dtypes that an operator refuses or widens (`anymps/rules/_dtypes.py`) was brought down from the",
        "same lists: agreement on those pairs proves the mechanism, and is no second opinion on what a Mac does.",
        "",
        "## By kind",
        "",
        *_table("kind", ((name, [row for row in rows if row["kind"] == kind]) for kind, name in _KINDS.items())),
        "",
        f"Crashes and hangs: {len(lost)}.",
        "",
        "## Where a copy of the CPU is wrong",
        "",
        "Forward pairs in which MPS and the CPU part.",
        "",
        *_table(
            "pairs",
            (
                ("MPS refuses, the CPU computes", [row for row in special if row["expected"] == "refuses"]),
                ("MPS fails in some sample, the CPU computes", [row for row in special if row["expected"] == "fails"]),
                ("MPS computes, the CPU refuses", [row for row in special if row["expected"] == "runs"]),
            ),
        ),
        "",
        "The second row holds operators that have the dtype on MPS while torch's test of it fails; the lists do not",
        "tell whether by an exception or by another result. Computing it right counts as disagreement here.",
        "",
        "## By dtype",
        "",
        "Forward results.",
        "",
        *_table("dtype", _by(forward, lambda row: str(row["dtype"]))),
        "",
        "## By family of operators",
        "",
        "All kinds.",
        "",
        *_table("family", _by(rows, lambda row: str(row["family"]))),
        "",
        "## What disagrees",
        "",
        *_disagreements(rows),
        "",
    ]
    return "\n".join(lines)


def _disagreements(rows: list[Row]) -> list[str]:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if agrees(row) is False:
            detail = " ".join(str(row["detail"]).replace("|", "/").split())[:110]
            groups[row["kind"], row["operator"], row["expected"], row["actual"], detail].append(row["dtype"])
    if not groups:
        return ["Nothing."]
    lines = [
        "| kind | operator | dtypes | a Mac | the virtual device | first difference |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, operator, expected, actual, detail), dtypes in sorted(groups.items()):
        shown = f"`{detail}`" if detail else ""
        lines.append(f"| {_KINDS[kind]} | `{operator}` | {', '.join(dtypes)} | {expected} | {actual} | {shown} |")
    return lines
