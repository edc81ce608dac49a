"""Why a plan knows no largest batch, and what a script does within a smaller memory: from runs that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anymps import parse_mac
from anymps._errors import PlanError
from anymps.plan import MacOutcome, NoLarger, Scenario, Verdict, make_plan
from anymps.plan._fixes import FixKind, first_fixes
from anymps.plan._measure import Stopped, _fill_in
from anymps.plan._plan import _larger, _recovery
from anymps.record import Phase, Site
from anymps.record._memory import tell
from anymps.report.plan._choice_words import more
from anymps.runs import Order
from plans import Ledger, planned

BASE = planned().base
WORDS = ("train.py", "--batch", "{batch}")


def run_of(**changes: Any) -> Any:
    """A run that is as the base but for these, and notes the batch that it was asked for."""

    def run(scenario: Scenario, mac: object = None) -> Any:
        run.asked.append(scenario.batch)  # type: ignore[attr-defined]
        if "error" in changes:
            raise changes["error"]
        return replace(BASE, scenario=scenario, **changes)

    run.asked = []  # type: ignore[attr-defined]
    return run


def with_batch(batch: int | None, **changes: Any) -> Any:
    return replace(BASE, scenario=replace(BASE.scenario, batch=batch), batch=batch, **changes)


@pytest.mark.parametrize(
    ("batch", "own", "of_larger", "asked"),
    [(8, 30.0, None, [16]), (8, None, 30.0, [16]), (8, 30.0, 30.0, [16]), (1, None, 1.0, [2, 4])],
)
def test_one_of_two_runs_that_came_to_no_end(
    batch: int, own: float | None, of_larger: float | None, asked: list[int]
) -> None:
    """The largest batch is unknown, whichever it was; a batch of one makes other calls, so two is measured as well."""
    run = run_of(limit=of_larger)
    assert _larger(WORDS, with_batch(batch, limit=own), run) == (None, NoLarger.LATE, "")
    assert run.asked == asked


@pytest.mark.parametrize(("asked", "loaded", "larger"), [(4, 8, 8), (4, None, 8), (None, 8, 16)])
def test_the_batch_that_is_doubled(asked: int | None, loaded: int | None, larger: int) -> None:
    """The one asked for; else the one that the data loader gives."""
    run = run_of(limit=1.0)
    _larger(("train.py",), replace(with_batch(asked), batch=loaded), run)
    assert run.asked == [larger]


def test_without_a_batch() -> None:
    """Nothing is run."""
    run = run_of()
    assert _larger(WORDS, with_batch(None), run) == (None, NoLarger.NO_BATCH, "")
    assert run.asked == []


@pytest.mark.parametrize(
    "error",
    [Stopped("anymps: it stopped: RuntimeError: odd", "RuntimeError: odd"), PlanError("anymps: RuntimeError: odd")],
)
def test_a_larger_run_that_fails(error: Exception) -> None:
    """Its error is told without our name."""
    found = _larger(WORDS, with_batch(8), run_of(error=error))
    assert found == (None, NoLarger.STOPPED, "RuntimeError: odd")


def test_a_scenario_is_measured_once(monkeypatch: pytest.MonkeyPatch, virtual_device: None) -> None:
    """A change that is asked for twice, and one that the largest batch needs too. What goes on is told meanwhile."""
    events: list[str] = []

    def measured(order: Order, scenario: Scenario, limits: object) -> Any:
        events.append(scenario.label)
        return replace(BASE, scenario=scenario)

    monkeypatch.setattr("anymps.plan._plan.measure", measured)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one after the other
    make_plan(
        Order(("train.py",)),
        what_if=[Scenario(batch=16), Scenario(checkpoint=True), Scenario(batch=16), Scenario()],
        torch_version="2.13.0",
        say=events.append,
        meanwhile=lambda: events.append("meanwhile"),
    )
    events.remove("meanwhile")
    assert events == [
        *("measuring on shapes: as written", "as written", "working out memory and times"),
        *("measuring on shapes: batch 16", "batch 16", "working out memory and times"),
        *("measuring on shapes: activation checkpointing", "activation checkpointing", "working out memory and times"),
    ]


@pytest.mark.parametrize(("gibibytes", "mac", "advises"), [(6, "", False), (6, "M1 8GB", True), (14, "", True)])
def test_a_run_that_fits_from_16_gb_on_needs_no_changes(
    gibibytes: int, mac: str, advises: bool, monkeypatch: pytest.MonkeyPatch, virtual_device: None
) -> None:
    """Unless a smaller Mac is asked about."""
    ledger = Ledger()
    ledger.birth(gibibytes << 30, 0, Phase.FORWARD)
    story = tell([tuple(row) for row in ledger.rows], 3, {1: "aten::mm"}, {1: "net"}, {1: Site("t.py", 1)})
    monkeypatch.setattr("anymps.plan._plan.measure", lambda order, scenario, limits: replace(BASE, story=story))
    asked = [parse_mac(mac)] if mac else []
    plan = make_plan(Order(("train.py",)), asked=asked, torch_version="2.13.0", larger=False)
    assert bool(plan.fixes) is advises
    assert ("what to change" in more(plan)) is advises


def outcome(verdict: Verdict) -> MacOutcome:
    mac = parse_mac("M1 8GB")
    return MacOutcome(mac, verdict, 0, 0, 0, mac.recommended_max_memory)


def test_what_a_script_does_within_a_macs_memory() -> None:
    """Asked of one that says what to do where memory runs out, on a Mac on which it fails, if it came to an end."""
    told, silent = replace(BASE, retries=True), replace(BASE, retries=False)
    fails = outcome(Verdict.FAILS)
    ended = run_of(steps=5, last_batch=4, limit=None)
    within = _recovery(ended, BASE.scenario, told, fails)
    assert within is not None
    assert (within.steps, within.last_batch) == (5, 4)
    assert _recovery(ended, BASE.scenario, silent, fails) is None
    assert _recovery(ended, BASE.scenario, told, outcome(Verdict.FITS)) is None
    for run in (run_of(steps=0, limit=None), run_of(steps=5, limit=9.0), run_of(error=PlanError("anymps: odd"))):
        assert _recovery(run, BASE.scenario, told, fails) is None


def test_the_watermark_is_lifted_only_where_the_run_fails() -> None:
    """A Mac on which it is tight, or fits, has no use for that."""
    told = [first_fixes(BASE, None, [outcome(verdict)]) for verdict in (Verdict.FAILS, Verdict.TIGHT)]
    assert [[fix.applies for fix in fixes if fix.kind is FixKind.WATERMARK] for fixes in told] == [[True], [False]]


@pytest.mark.parametrize(("complete", "applies"), [(4, True), (3, True), (2, False)])
def test_what_a_step_that_is_cut_short_holds_is_no_growth(complete: int, applies: bool) -> None:
    """It is in use. Three complete steps tell, of which the first makes the optimizer's state."""
    ledger = Ledger()
    for step in range(4):
        ledger.birth(4 << 20, step, Phase.FORWARD)
    grown = replace(
        BASE,
        story=tell([tuple(row) for row in ledger.rows], 3, {1: "aten::mm"}, {1: "net"}, {1: Site("t.py", 1)}),
        steps=complete,
    )
    kept = [fix.applies for fix in first_fixes(grown, None, [outcome(Verdict.TIGHT)]) if fix.kind is FixKind.KEPT]
    assert kept == [applies]


def test_a_place_in_the_arguments_needs_a_number() -> None:
    """And the message names the option that gives it."""
    assert _fill_in("--size={batch}x{sequence}", Scenario(batch=8, sequence=512)) == "--size=8x512"
    with pytest.raises(PlanError) as error:
        _fill_in("{sequence}", Scenario(batch=8))
    assert str(error.value) == ("anymps: the arguments contain {sequence}: give its value with --what-if or --sequence")
