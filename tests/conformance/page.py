"""Renders `docs/fidelity.md` from the summaries in `docs/fidelity/`, one of each torch release that was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conformance.summary import Summary, load


def render_folder(folder: Path) -> str:
    """The page of a folder's summaries."""
    return render(load(folder), load(folder, "cuda"))


def render(summaries: Sequence[Summary], cards: Sequence[Summary] = ()) -> str:
    """The page as Markdown; `cards` are the runs on NVIDIA cards."""
    limits = sorted({tuple(summary["limits"]) for summary in summaries})
    lost = [f"{summary['lost']} ({_release(summary)})" for summary in summaries]
    lines = [
        "# Fidelity",
        "",
        "Torch's database of operators (OpInfo) was run on the virtual device, and compared with the lists of torch's",
        "own MPS tests in the installed wheel, which say what a Mac does with each operator and dtype",
        "(`OpInfo.dtypesIfMPS`, `torch/testing/_internal/common_mps.py`, and the marks for mps in the database), on",
        "the newest macOS. No Mac was used.",
        "",
        "| torch | run on |",
        "| --- | --- |",
        *(f"| {summary['torch']} | {summary['date']} |" for summary in summaries),
        "",
        "Do not edit this page: with the torch in question installed, run",
        "`python -m tests.conformance --write docs/fidelity`. It replaces that release's numbers in `docs/fidelity/`",
        "and renders the page from all of them.",
        "",
        "- *forward results*: a pair is an operator and a dtype. If a Mac runs the pair, it agrees if every sample",
        "  runs and equals the CPU's result. If a Mac refuses the pair, it agrees if a sample raises.",
        "- *gradients*: the same for float32 and float16 gradients with random output gradients.",
        "- *error inputs*: every wrong input of the database gets the error type and text that the database describes.",
        "- *not scored*: the lists do not say (skipped or undefined there, tested on CUDA only, a claim known to be",
        "  inexact), or nothing could be compared (gradients of random numbers, operators without a gradient).",
        *(
            f"- At most {limit} samples were run of a pair that a Mac runs, and {other} of any other."
            for limit, other in limits
        ),
        "",
        "Agreement has limits. Results come from CPU kernels, so rounding and speed are the CPU's. If a Mac silently",
        "computes something wrong, the virtual device still computes it right. The wording of a refusal is a Mac's if",
        "torch's sources or binaries contain it. Random numbers are compared only in shape and dtype. If the CPU has",
        "no kernel for integers or bools, there is no result to compare with, and a pair agrees if it runs. Half",
        "precision agrees if it equals the CPU's result in half precision or in float32, because the kernels of MPS",
        "round once, at the end. [Beside PyTorch's own kernels](fidelity-kernels.md) shows where the bits of the",
        "device and of PyTorch's own Metal kernels differ.",
        "",
        "The table of dtypes that an operator refuses or widens (`anymps/rules/dtypes.toml`) was derived from the same",
        "lists. So agreement on those pairs proves the mechanism, but is not independent evidence of what a Mac does.",
        "",
        "The tables give, for each release, the pairs that agree, of those that are scored, and the share.",
        "",
        "## By kind",
        "",
        *_table("kind", summaries),
        "",
        "Not scored:",
        "",
        *_table("kind", summaries, cell=_unscored),
        "",
        f"Crashes and hangs: {', '.join(lost)}.",
        "",
        "## Where a copy of the CPU is wrong",
        "",
        "Forward pairs in which MPS and the CPU differ.",
        "",
        *_table("pairs", summaries, total="all three"),
        "",
        "The second row holds operators that have the dtype on MPS but fail torch's test of it; the lists do not say",
        "whether by an exception or by a different result. Here, computing it right counts as disagreement.",
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
        *(_on_cards(summaries, cards) if cards else ()),
    ]
    return "\n".join(lines) + "\n"


def _release(summary: Summary) -> str:
    return ".".join(summary["torch"].split(".")[:2])


def _agreeing(agreeing: int, scored: int, unscored: int) -> str:
    return f"{agreeing} of {scored}: {100 * agreeing / scored:.1f} %" if scored else "none"


def _unscored(agreeing: int, scored: int, unscored: int) -> str:
    return str(unscored)


def _table(
    name: str, summaries: Sequence[Summary], cell: Callable[[int, int, int], str] = _agreeing, total: str = ""
) -> list[str]:
    """One column a release; with `total` a last row of that name adds up the others."""
    lines = [f"| {' | '.join([name, *map(_release, summaries)])} |", f"| --- |{' ---: |' * len(summaries)}"]
    counts = [{row[0]: row[1:] for row in summary["tables"][name]} for summary in summaries]
    for group in dict.fromkeys(row[0] for summary in summaries for row in summary["tables"][name]):
        cells = [group, *(cell(*found[group]) if group in found else "" for found in counts)]
        lines.append(f"| {' | '.join(cells)} |")
    if total:
        sums = [[sum(column) for column in zip(*found.values(), strict=True)] for found in counts]
        lines.append(f"| {' | '.join([total, *(cell(*of_release) for of_release in sums)])} |")
    return lines


def _on_cards(summaries: Sequence[Summary], cards: Sequence[Summary]) -> list[str]:
    """The section on the substrate `cuda`: its shares beside the host's, and what agrees on the host alone."""
    lines = [
        "",
        "## On an NVIDIA card",
        "",
        "The same run with `--substrate cuda` ([run on an NVIDIA GPU](gpu.md)), many processes on one card:",
        "`python -m tests.conformance --substrate cuda --write docs/fidelity`.",
        "",
        "| torch | card | run on | crashes and hangs |",
        "| --- | --- | --- | ---: |",
        *(f"| {row['torch']} | {row['card']} | {row['date']} | {row['lost']} |" for row in cards),
        "",
        "| torch | kind | on the host | on the card |",
        "| --- | --- | ---: | ---: |",
    ]
    found: list[str] = []
    counted: Counter[tuple[str, str]] = Counter()
    for card in cards:
        host = next((summary for summary in summaries if _release(summary) == _release(card)), None)
        shares = {row[0]: row[1:] for row in host["tables"]["kind"]} if host else {}
        for name, *counts in card["tables"]["kind"]:
            beside = _agreeing(*shares[name]) if name in shares else ""
            lines.append(f"| {_release(card)} | {name} | {beside} | {_agreeing(*counts)} |")
        known = {(row[0], row[1], dtype) for row in host["disagreements"] for dtype in row[2]} if host else set()
        for kind, operator, dtypes, expected, actual, detail in card["disagreements"]:
            new = [dtype for dtype in dtypes if (kind, operator, dtype) not in known]
            if not new:
                continue
            counted[kind, _how(expected, actual)] += len(new)
            shown = f"`{detail}`" if detail else ""
            cells = [_release(card), kind, f"`{operator}`", ", ".join(new), expected, actual, shown]
            found.append(f"| {' | '.join(cells)} |")
    lines += ["", "What agrees on the host and not on the card:", ""]
    if not found:
        return [*lines, "Nothing."]
    lines += ["| kind | how | pairs |", "| --- | --- | ---: |"]
    lines += [f"| {kind} | {how} | {number} |" for (kind, how), number in sorted(counted.items())]
    lines += [
        "",
        "| torch | kind | operator | dtypes | a Mac | the virtual device | first difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *found,
    ]
    return lines


def _how(expected: str, actual: str) -> str:
    """A kind of difference in words."""
    if actual in ("crash", "hang"):
        return "the process crashes or hangs"
    if expected != "runs":
        return "a Mac refuses it, the card computes it"
    return {"raises": "a Mac runs it, the card raises", "differs": "another result"}.get(actual, actual)


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
