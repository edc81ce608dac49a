"""The page about fidelity: what a run comes to, kept one torch release a file and rendered from all of them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from conformance import page, summary
from processes import SOURCE_ROOT

DOCS = SOURCE_ROOT.parent / "docs"


def row(expected: str, actual: str, *, kind: str = "forward", on_cpu: bool = True, **other: Any) -> dict[str, Any]:
    """One row of a run."""
    return {
        "kind": kind,
        "operator": "silu",
        "dtype": "float32",
        "family": "nn.functional",
        "expected": expected,
        "actual": actual,
        "on_cpu": on_cpu,
        "detail": "",
        **other,
    }


def summarized(rows: list[dict[str, Any]], torch: str) -> summary.Summary:
    """The summary of rows, with a fixed date."""
    return summary.summarize(rows, torch, (24, 1000), datetime.date(2026, 1, 2))


def test_a_run_comes_to_counts_and_disagreements() -> None:
    """Pairs are counted by kind, dtype, family and what the CPU gets wrong; disagreements of one kind share a row."""
    found = summarized(
        [
            row("runs", "runs"),
            row("refuses", "runs", dtype="int8", detail="a | b"),
            row("refuses", "runs", dtype="uint8", detail="a | b"),
            row("runs", "runs", dtype="bool", on_cpu=False),
            row("fails", "differs", dtype="int16"),
            row("unknown", "runs", dtype="int32"),
            row("runs", "crash", kind="gradient"),
            row("runs", "unscored", kind="errors", dtype=""),
        ],
        "2.15.0+cpu",
    )
    assert [["forward results", 3, 5, 1], ["gradients", 0, 1, 0], ["error inputs", 0, 0, 1]] == found["tables"]["kind"]
    assert [0, 1, 1] == [count[1] for count in found["tables"]["pairs"]]
    assert [2, 1, 1] == [count[2] for count in found["tables"]["pairs"]]
    assert [["nn.functional", 3, 6, 2]] == found["tables"]["family"]
    assert 1 == found["lost"]
    assert [
        ["forward results", "silu", ["int8", "uint8"], "refuses", "runs", "a / b"],
        ["gradients", "silu", ["float32"], "runs", "crash", ""],
    ] == found["disagreements"]


def test_each_release_has_its_own_numbers(tmp_path: Path) -> None:
    """A release's file is replaced by its next run and by no other, that of a card has its own; the oldest is first."""
    for torch in ("2.15.0+cpu", "2.9.1", "2.15.1"):
        summary.save(summarized([row("runs", "runs")], torch), tmp_path)
    summary.save({**summarized([row("runs", "runs")], "2.15.1"), "card": "H100"}, tmp_path)
    assert ["2.9.1", "2.15.1"] == [found["torch"] for found in summary.load(tmp_path)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cuda-2.15.json", "torch-2.15.json", "torch-2.9.json"]


def test_the_page_is_what_its_numbers_say() -> None:
    """docs/fidelity.md was rendered from docs/fidelity/ and not edited by hand."""
    numbers = summary.load(DOCS / "fidelity")
    assert numbers
    assert page.render_folder(DOCS / "fidelity") == (DOCS / "fidelity.md").read_text()
