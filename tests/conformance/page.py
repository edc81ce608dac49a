"""Renders `docs/fidelity.md` from the summaries in `docs/fidelity/`, one of each torch release that was run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.summary import Summary


def render(summaries: Sequence[Summary]) -> str:
    """The page as Markdown."""
    limits = sorted({tuple(summary["limits"]) for summary in summaries})
    lost = [f"{summary['lost']} ({_release(summary)})" for summary in summaries]
    lines = [
        "# Fidelity",
        "",
        "Torch's database of operators (OpInfo) was run on the virtual device. What a Mac does with each",
        "operator and dtype is taken from the lists of torch's own MPS tests in the installed wheel",
        "(`OpInfo.dtypesIfMPS`, `torch/testing/_internal/common_mps.py`, and the marks for mps in the database), for",
        "the newest macOS. No Mac was asked.",
        "",
        "| torch | run on |",
        "| --- | --- |",
        *(f"| {summary['torch']} | {summary['date']} |" for summary in summaries),
        "",
        "Do not edit this page: with the torch in question installed, run",
        "`python -m tests.conformance --write docs/fidelity`. It replaces that release's numbers in `docs/fidelity/`",
        "and renders the page from all of them.",
        "",
        "- *forward results*: one pair is an operator and a dtype. It agrees if every sample runs and equals the CPU's",
        "  result where a Mac runs it, and if a sample raises where a Mac refuses it.",
        "- *gradients*: the same for float32 and float16 gradients with random output gradients.",
        "- *error inputs*: every wrong input of the database gets the error type and text that the database describes.",
        "- *not scored*: the lists do not tell (skipped or undefined there, tested on CUDA only, a claim known to be",
        "  inexact), or nothing could be compared (gradients of random numbers, operators without a gradient).",
        *(
            f"- At most {limit} samples were run of a pair that a Mac runs, and {other} of any other."
            for limit, other in limits
        ),
        "",
        "What agreement does *not* mean: results come from CPU kernels, so rounding and speed are the CPU's;",
        "where a Mac computes something wrong in silence, the virtual device computes it right; the wording",
        "of a refusal is a Mac's where torch's sources or binaries give it. Random numbers are compared in",
        "shape and dtype alone. Where the CPU has no kernel for integers or bools, there is no result to",
        "compare with, and a pair agrees if it runs. Half precision agrees if it equals the CPU's result in half",
        "precision or in float32: the kernels of MPS round once, at the end.",
        "",
        "The table of dtypes that an operator refuses or widens (`anymps/rules/_dtypes.py`) was brought down from the",
        "same lists: agreement on those pairs proves the mechanism, and is no second opinion on what a Mac does.",
        "",
        "The tables give, for each release, the pairs that agree, those that are scored, the share, and those that are",
        "not scored.",
        "",
        "## By kind",
        "",
        *_table("kind", summaries),
        "",
        f"Crashes and hangs: {', '.join(lost)}.",
        "",
        "## Where a copy of the CPU is wrong",
        "",
        "Forward pairs in which MPS and the CPU part.",
        "",
        *_table("pairs", summaries),
        "",
        "The second row holds operators that have the dtype on MPS while torch's test of it fails; the lists do not",
        "tell whether by an exception or by another result. Computing it right counts as disagreement here.",
        "",
        "## By dtype",
        "",
        "Forward results.",
        "",
        *_table("dtype", summaries),
        "",
        "## By family of operators",
        "",
        "All kinds.",
        "",
        *_table("family", summaries),
        "",
        "## What disagrees",
        "",
        *_disagreements(summaries),
    ]
    return "\n".join(lines) + "\n"


def _release(summary: Summary) -> str:
    return ".".join(summary["torch"].split(".")[:2])


def _table(name: str, summaries: Sequence[Summary]) -> list[str]:
    head = [name]
    for summary in summaries:
        head += [f"{_release(summary)}: agree", "scored", "share", "not scored"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    counts = [{row[0]: row[1:] for row in summary["tables"][name]} for summary in summaries]
    for group in dict.fromkeys(row[0] for summary in summaries for row in summary["tables"][name]):
        cells = [group]
        for found in counts:
            cells += _cells(*found[group]) if group in found else [""] * 4
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cells(agreeing: int, scored: int, unscored: int) -> list[str]:
    return [str(agreeing), str(scored), f"{100 * agreeing / scored:.1f} %" if scored else "none", str(unscored)]


def _disagreements(summaries: Sequence[Summary]) -> list[str]:
    """One row for what several releases have in common."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for summary in summaries:
        for kind, operator, dtypes, expected, actual, detail in summary["disagreements"]:
            key = (kind, operator, ", ".join(dtypes), expected, actual, detail)
            found.setdefault(key, []).append(_release(summary))
    if not found:
        return ["Nothing."]
    lines = [
        "| torch | kind | operator | dtypes | a Mac | the virtual device | first difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, operator, dtypes, expected, actual, detail), releases in sorted(found.items()):
        shown = f"`{detail}`" if detail else ""
        lines.append(f"| {', '.join(releases)} | {kind} | `{operator}` | {dtypes} | {expected} | {actual} | {shown} |")
    return lines
