"""A finding of a joined recording says in which processes it was seen, where these are not all."""

from __future__ import annotations

import json
import re

import pytest

from anymps.findings import Story, find
from anymps.record import Fate, Recording, RecordingBuilder, RecordingWriter, RefusalKind, Wait, join
from anymps.report import render_summary, report_pieces

META: dict[str, object] = {"torch_version": "2.13.0", "mac": "M1 8GB", "virtual": True, "rounds": True}


def rank(*, reads: bool = False, refuses: bool = False) -> Recording:
    """Six training steps; the line of the loss reads it in some ranks, and all run it."""
    builder = RecordingBuilder(meta=META)
    loss = builder.site("train.py", 7, "main", "total += loss(x).item()")
    odd = builder.site("train.py", 9, "main", "torch.zeros(2, dtype=torch.float64, device='mps')")
    for step in range(6):
        start = step * 1000
        builder.entry("aten::mul", start_ns=start + 10, duration_ns=5, site=loss)
        if reads:
            builder.entry("aten::item", start_ns=start + 20, duration_ns=5, fate=Fate.WAIT, wait=Wait.ITEM, site=loss)
        builder.end_step(start + 900)
    if refuses:
        builder.refusal(
            RefusalKind.FLOAT64, "TypeError", "no", operator="aten::zeros", start_ns=6000, site=odd, origin=odd
        )
    return builder.close()


def joined(*ranks: Recording, bystander: bool = True) -> Recording:
    """All of them, after the process that started them and did nothing on mps."""
    named = [(f"rank {number}", recording) for number, recording in enumerate(ranks)]
    if bystander:
        named.insert(0, ("main process", RecordingBuilder(meta=META).close()))
    with RecordingWriter.in_memory() as writer:
        join(named, writer)
    return writer.recording()


def seen(recording: Recording) -> dict[str, tuple[str, ...]]:
    """The processes of each finding."""
    return {finding.id: finding.processes for finding in find(recording)}


def test_a_finding_names_the_processes_it_was_seen_in() -> None:
    """A wait is of the ranks that wait, though all run its line; a refusal is of the rank that was refused."""
    found = seen(joined(rank(reads=True), rank(refuses=True), rank(reads=True)))
    assert found["MPS301"] == ("rank 1",)
    assert found["MPS201"] == ("rank 0", "rank 2")


def test_what_one_of_many_ranks_does_in_every_step_is_found() -> None:
    """The rank that reads the loss waits in each of its steps, though that is one step in six of the whole."""
    assert seen(joined(rank(reads=True), *(rank() for _ in range(5))))["MPS201"] == ("rank 0",)


def test_nothing_is_said_where_all_have_it() -> None:
    """The process that did nothing on mps is no exception."""
    assert seen(joined(rank(reads=True), rank(reads=True)))["MPS201"] == ()
    assert seen(joined(rank(reads=True)))["MPS201"] == ()
    assert seen(rank(reads=True))["MPS201"] == ()


def test_nothing_is_said_where_calls_were_only_counted() -> None:
    """A call without detail may be of any process."""
    writer = RecordingWriter.in_memory()
    join([("rank 0", rank(reads=True)), ("rank 1", rank())], writer)
    writer.add("totals", [(1, 0, 1, 3, 0, 0, 50, 250, 0)])
    writer.close()
    assert seen(writer.recording())["MPS201"] == ()


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ([1], "1 of 6 processes: rank 1"),
        ([0, 5], "2 of 6 processes: rank 0 and rank 5"),
        ([0, 1, 2, 5], "4 of 6 processes: rank 0, rank 1, rank 2 and rank 5"),
        ([0, 1, 2, 3, 5], "5 of 6 processes: rank 0, rank 1, rank 2 and 2 more"),
    ],
)
def test_each_form_says_it(refused: list[int], said: str) -> None:
    """The terminal, the page and the annotation in words, JSON and SARIF as a list of names."""
    recording = joined(*(rank(refuses=number in refused) for number in range(6)))
    found = find(recording)

    def form(name: str) -> str:
        return "".join(report_pieces(name, Story.of(recording), found))

    assert " ".join(f"seen in {said}".split()) in " ".join(form("terminal").split())
    assert f"<dt>Seen in</dt><dd>{said}</dd>" in form("html")
    assert f"%0ASeen in {said}.%0A" in form("github")
    names = [f"rank {number}" for number in refused]
    assert [finding["processes"] for finding in json.loads(form("json"))["findings"] if finding["id"] == "MPS301"] == [
        names
    ]
    results = json.loads(form("sarif"))["runs"][0]["results"]
    assert [result["properties"] for result in results if result["ruleId"] == "MPS301"] == [{"processes": names}]


def test_the_short_report_says_which_processes_are_in() -> None:
    """Those that ran anything on mps; nothing is said of a run of one process."""
    named = render_summary(Story.of(joined(rank(), rank())), [])
    assert "\n2 processes ran on mps: rank 0 and rank 1.\n" in named
    many = render_summary(Story.of(joined(*(rank() for _ in range(9)))), [])
    assert "\n9 processes ran on mps: rank 0, rank 1, rank 2 and 6 more.\n" in many
    assert "\n1 process ran on mps: rank 0.\n" in render_summary(Story.of(joined(rank())), [])
    assert "ran on mps:" not in render_summary(Story.of(rank()), [])


def test_notes_of_habits_are_nothing_that_ran() -> None:
    """The process that starts the others leaves notes of that."""
    starter = RecordingBuilder(meta=META)
    site = starter.site("train.py", 20, "<module>", "mp.spawn(main)")
    starter.entry("anymps::process {}", start_ns=1, duration_ns=0, fate=Fate.MARK, site=site)
    with RecordingWriter.in_memory() as writer:
        join([("main process", starter.close()), ("rank 0", rank()), ("rank 1", rank())], writer)
    assert "\n2 processes ran on mps: rank 0 and rank 1.\n" in render_summary(Story.of(writer.recording()), [])


@pytest.mark.parametrize(
    ("ranks", "said", "per_step"),
    [
        ([True, False, False, False], "1 wait in every step of rank 0", 1.0),
        ([True, False, True, False, False], "1 wait in every step of rank 0 and rank 2", 1.0),
        ([True, True, False], "1 wait in every step of rank 0 and rank 1", 1.0),
        ([True, True], "1 wait in every step", 1.0),
    ],
)
def test_every_step_is_no_mean_over_ranks(ranks: list[bool], said: str, per_step: float) -> None:
    """A step of a rank that waits has its waits, whatever the others do."""
    recording = joined(*(rank(reads=reads) for reads in ranks))
    found = [finding for finding in find(recording) if finding.id == "MPS201"]
    assert [finding.per_step for finding in found] == [per_step]
    assert re.search(rf"{said}[.;]", render_summary(Story.of(recording), found))


def test_a_part_of_a_run_is_that_of_each_process() -> None:
    """Each counts the steps of its own optimizer, so the number that one of them made is not told."""
    with RecordingWriter.in_memory() as writer:
        join([("rank 0", rank()), ("rank 1", rank())], writer)
        writer.set_meta("steps", [2, 5])
        writer.set_meta("steps_seen", 4)
    whole = "".join(report_pieces("terminal", Story.of(writer.recording()), []))
    assert "12 complete steps (steps 2:5 of each process)" in " ".join(whole.split())
