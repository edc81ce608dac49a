"""How long a step takes on each Mac, as a plan says it: times, rates, what binds, and where there is no time."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from anymps import parse_mac
from anymps.cost import Happening, OperatorCall
from anymps.device import enable
from anymps.forecast import StepWork
from anymps.mac import all_macs
from anymps.plan import Kind, MacOutcome, Measured, Scenario, TriedChange, Verdict, mac_time, representative, step_times
from anymps.plan._measure import _closures
from anymps.plan._plan import _change
from anymps.record import Phase, RecordingBuilder, RoundKind, Site
from anymps.record._memory import tell
from anymps.report.plan._choice_words import choice_table
from anymps.report.plan._fix_words import change_table
from plans import GIB, Ledger, planned, work

BASE = planned().base
TIGHT = " Tight: it fits only without other allocations."


def fitting(least: int) -> list[MacOutcome]:
    """One Mac of each memory size; the run needs so many GiB."""
    return [
        MacOutcome(mac, Verdict.FITS if mac.ram_gib >= least else Verdict.FAILS, 1, 1, 1, 1) for mac in representative()
    ]


def test_each_chip_comes_once_with_the_memory_that_does() -> None:
    """A run of 24 GB: an M1 has too little of it, an M3 Pro just enough; the slowest comes first."""
    times = step_times(BASE, fitting(24), "2.13")
    by_chip = {mac_time.mac.chip: mac_time for mac_time in times}
    assert len(by_chip) == len(times) == len({mac.chip for mac in all_macs()})
    assert by_chip["Apple M1"].time is None
    assert by_chip["Apple M1"].verdict is Verdict.FAILS
    assert by_chip["Apple M3 Pro"].mac.ram_gib == 36
    assert by_chip["Apple M4"].mac.ram_gib == 24
    known = [mac_time.time.seconds for mac_time in times if mac_time.time is not None]
    assert known == sorted(known, reverse=True)
    assert [mac_time.time is None for mac_time in times] == sorted(mac_time.time is None for mac_time in times)


def test_samples_and_tokens_a_second() -> None:
    """Eight samples a batch; tokens only of a model that reads them; with two batches a step twice as many."""
    mac = parse_mac("M3 Pro 18GB")
    outcome = [MacOutcome(mac, Verdict.FITS, 1, 1, 1, 1)]
    (one,) = step_times(BASE, outcome, "2.13", [mac])
    assert one.time is not None and one.samples is not None
    assert one.samples == pytest.approx(8 / one.time.seconds)
    assert one.tokens is None
    assert BASE.work is not None
    (reads,) = step_times(replace(BASE, kind=Kind.TOKENS), outcome, "2.13", [mac])
    assert reads.tokens == pytest.approx(512 * one.samples)
    (two,) = step_times(replace(BASE, work=replace(BASE.work, batches=2)), outcome, "2.13", [mac])
    assert two.samples == pytest.approx(2 * one.samples)
    (none,) = step_times(replace(BASE, batch=None), outcome, "2.13", [mac])
    assert none.samples is None


def test_without_ground_there_are_no_times() -> None:
    """No complete step, or too many calls without a class."""
    unknown = Happening("kernel", OperatorCall("aten::linalg_svd", ("float32[4, 4]",), ("float32[4, 4]",)))
    assert step_times(replace(BASE, work=None), fitting(8), "2.13") == ()
    assert BASE.work is not None
    known = Happening("kernel", OperatorCall("aten::relu", ("float32[4, 4]",), ("float32[4, 4]",)))
    enough, too_few = (replace(BASE.work, happenings=(known,) * number + (unknown,)) for number in (9, 8))
    assert step_times(replace(BASE, work=enough), fitting(8), "2.13") != ()
    assert step_times(replace(BASE, work=too_few), fitting(8), "2.13") == ()
    assert step_times(replace(BASE, work=StepWork((unknown,) * 3, 1)), fitting(8), "2.13") == ()


def test_the_table_tells_what_binds_and_why_there_is_no_time() -> None:
    """Tokens a second only of a model that reads them; a Mac that fails has no time, nor has one without a clock."""
    plan, mac = planned(), parse_mac("A18 Pro 8GB")
    assert plan.times[0].tokens is None
    read = replace(plan.times[0], tokens=25_000.0)
    rows = choice_table(replace(plan, times=(read, *plan.times[1:], mac_time(plan.base, mac, Verdict.FITS, "2.13"))))
    assert rows.names == ("Mac", "batch 8", "largest", "a step", "80 %", "samples/s", "tokens/s", "bound by")
    assert [row[:1] + row[3:4] + row[5:] for row in rows.rows] == [
        ("M5 16GB", "166 ms", "48", "25,000", "compute"),
        ("M3 Pro 18GB", "105 ms", "76", "", "compute"),
        ("M1 8GB", "", "", "", ""),
        ("A18 Pro 8GB", "unknown", "", "", ""),
    ]
    why = "No time is predicted for A18 Pro 8GB, because the clock of its GPU is not public."
    assert rows.narrower is not None
    assert why in rows.rest
    assert why in rows.narrower.rest


def test_an_optimizer_that_calls_its_closure_often() -> None:
    """The plan says how often the measured steps did; with one backward in the optimizer, or none, nothing is said."""
    before = planned()
    stock = choice_table(before).rest
    for counts, many in (((20, 20), "20"), ((1, 20), "1 to 20"), ((1, 1), ""), ((0, 0), "")):
        told = (
            f" The optimizer called its closure {many} times in a measured step. If values decide how often, as with "
            "LBFGS, later steps take less time or more."
        )
        rest = choice_table(replace(before, base=replace(before.base, closures=counts))).rest
        assert rest == stock.replace(TIGHT, "").rstrip() + (told if many else "") + TIGHT


def test_what_ifs_show_the_step_on_each_mac() -> None:
    """Beside the memory; a part of a batch has no step of its own, and a Mac that fails has none."""
    plan = planned("M5 16GB", "M3 Pro 18GB")
    macs = [parse_mac("M5 16GB"), parse_mac("M3 Pro 18GB")]
    enable("M3 Pro 18GB", require="virtual", quiet=True)

    def tried(scenario: Scenario, **changes: Any) -> TriedChange:
        measured: Future[Measured] = Future()
        measured.set_result(replace(plan.base, scenario=scenario, **changes))
        return _change(scenario, measured, macs, macs, "2.13.0", "2.13.0")

    large = Ledger()
    large.birth(100 * GIB, 0, Phase.FORWARD)
    rows = [tuple(row) for row in large.rows]
    changes = (
        tried(Scenario(batch=4), work=work(4), batch=4),
        tried(Scenario(accumulate=2)),
        tried(Scenario(batch=512), story=tell(rows, 2, {1: "aten::mm"}, {0: "", 1: ""}, {0: Site("", 0)})),
        tried(Scenario(fused=True), without_effect="none"),
        tried(Scenario(weights="int8"), adapters=1),
    )
    table = change_table(replace(plan, changes=changes))
    assert table.names == ("change", "tensors", "heaps", "", "M5 16GB", "M3 Pro 18GB", "")
    assert [(row[0], *row[4:6]) for row in table.rows] == [
        ("as written", "166 ms", "105 ms"),
        ("batch 4", "83.5 ms", "53.3 ms"),
        ("accumulation over 2", "unknown", "unknown"),
        ("batch 512", "fails", "fails"),
        ("fused optimizer", "", ""),
        ("int8 weights", "166 ms", "105 ms"),
    ]
    assert table.rows[-1][-1] == (
        "fits only without others on M5 16GB, fits on M3 Pro 18GB, with LoRA adapters of rank 16 on 1 linear layer and "
        "all other weights frozen"
    )
    assert table.rest == "Below a Mac's name is the predicted time of a step there."
    without = change_table(replace(plan, changes=changes[1:4]))
    assert (without.names, without.rest) == (("change", "tensors", "heaps", "", ""), "")


@pytest.mark.parametrize(("within", "counts"), [((3, 1), (1, 3)), ((0, 0), (0, 0))])
def test_closures_are_counted_by_their_backwards(within: tuple[int, ...], counts: tuple[int, int]) -> None:
    """Those within an optimizer's step; the one before it is the loop's own."""
    builder = RecordingBuilder()
    for step, backwards in enumerate(within):
        start = 1000 * step
        builder.round(RoundKind.BACKWARD, start_ns=start, end_ns=start + 10)
        for number in range(backwards):
            builder.round(RoundKind.BACKWARD, start_ns=start + 30 + 2 * number, end_ns=start + 31 + 2 * number)
        builder.round(RoundKind.OPTIMIZER, start_ns=start + 20, end_ns=start + 100)
    assert _closures(builder.close()) == counts
