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
    """A release's file is replaced by its next run and by no other; the page shows all of them, the oldest first."""
    summary.save(summarized([row("runs", "raises")], "2.15.0+cpu"), tmp_path)
    summary.save(summarized([row("runs", "raises")], "2.9.1"), tmp_path)
    summary.save(summarized([row("runs", "runs")], "2.15.1"), tmp_path)
    both = summary.load(tmp_path)
    assert ["2.9.1", "2.15.1"] == [found["torch"] for found in both]
    lines = page.render(both).splitlines()
    assert "| 2.9.1 | 2026-01-02 |" in lines
    assert "| kind | 2.9 | 2.15 |" in lines
    assert "| forward results | 0 of 1: 0.0 % | 1 of 1: 100.0 % |" in lines
    assert "| forward results | 0 | 0 |" in lines
    assert "| 2.9 | forward results | `silu` | float32 | runs | raises |  |" in lines


def test_what_releases_have_in_common_is_said_once(tmp_path: Path) -> None:
    """The same disagreement of two releases is one row that names both; without any the page says so."""
    same = [row("runs", "raises", detail="no")]
    rendered = page.render([summarized(same, "2.13.0"), summarized(same, "2.15.0")])
    assert "| 2.13, 2.15 | forward results | `silu` | float32 | runs | raises | `no` |" in rendered
    assert rendered.endswith("|\n")
    assert page.render([summarized([row("runs", "runs")], "2.13.0")]).endswith("## What disagrees\n\nNothing.\n")


def test_what_a_copy_of_the_cpu_gets_wrong_is_added_up() -> None:
    """The table of pairs in which MPS and the CPU part ends with their sum."""
    rows = [row("refuses", "raises"), row("refuses", "runs", dtype="int8"), row("runs", "runs", on_cpu=False)]
    lines = page.render([summarized(rows, "2.13.0")]).splitlines()
    at = lines.index("| pairs | 2.13 |")
    assert lines[at + 2 : at + 6] == [
        "| MPS refuses, the CPU computes | 1 of 2: 50.0 % |",
        "| MPS fails in some sample, the CPU computes | none |",
        "| MPS computes, the CPU refuses | 1 of 1: 100.0 % |",
        "| all three | 2 of 3: 66.7 % |",
    ]


def test_the_page_is_what_its_numbers_say() -> None:
    """docs/fidelity.md was rendered from docs/fidelity/ and not edited by hand."""
    numbers = summary.load(DOCS / "fidelity")
    assert numbers
    assert page.render_folder(DOCS / "fidelity") == (DOCS / "fidelity.md").read_text()


def test_a_card_has_a_section(tmp_path: Path) -> None:
    """Its shares stand beside the host's of the same release, then what agrees on the host alone, by kind."""
    host = [row("runs", "runs"), row("refuses", "runs", dtype="int8"), row("runs", "runs", dtype="bool")]
    card = [
        row("runs", "differs", detail="off by 1"),
        row("refuses", "runs", dtype="int8"),
        row("runs", "crash", dtype="bool"),
        row("runs", "raises", kind="gradient", detail="no kernel"),
    ]
    date = datetime.date(2026, 1, 3)
    summary.save(summarized(host, "2.11.0+cu130"), tmp_path)
    summary.save(summary.summarize(card, "2.11.0+cu130", (24, 1000), date, "H100"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cuda-2.11.json", "torch-2.11.json"]
    rendered = page.render_folder(tmp_path)
    assert rendered.partition("## On an NVIDIA card\n")[2].splitlines()[4:] == [
        "| torch | card | run on | crashes and hangs |",
        "| --- | --- | --- | ---: |",
        "| 2.11.0+cu130 | H100 | 2026-01-03 | 1 |",
        "",
        "| torch | kind | on the host | on the card |",
        "| --- | --- | ---: | ---: |",
        "| 2.11 | forward results | 2 of 3: 66.7 % | 0 of 3: 0.0 % |",
        "| 2.11 | gradients | none | 0 of 1: 0.0 % |",
        "| 2.11 | error inputs | none | none |",
        "",
        "What agrees on the host and not on the card:",
        "",
        "| kind | how | pairs |",
        "| --- | --- | ---: |",
        "| forward results | another result | 1 |",
        "| forward results | the process crashes or hangs | 1 |",
        "| gradients | a Mac runs it, the card raises | 1 |",
        "",
        "| torch | kind | operator | dtypes | a Mac | the virtual device | first difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 2.11 | forward results | `silu` | bool | runs | crash |  |",
        "| 2.11 | forward results | `silu` | float32 | runs | differs | `off by 1` |",
        "| 2.11 | gradients | `silu` | float32 | runs | raises | `no kernel` |",
    ]


def test_without_a_card_the_page_is_the_same() -> None:
    """No section without a run."""
    assert "NVIDIA" not in page.render([summarized([row("runs", "runs")], "2.13.0")])
