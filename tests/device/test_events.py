"""torch.mps.Event: record, wait, query, synchronize, elapsed_time, and the ids behind them."""

from __future__ import annotations

import pytest
import torch

from anymps.rules import version_rules
from device.compare import text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

Event = torch.mps.Event
C = torch._C


def test_an_event_is_complete_after_synchronize() -> None:
    """record, wait, synchronize and query follow each other."""
    event = Event()
    event.record()
    values(100).to("mps").exp()
    event.wait()
    event.synchronize()
    torch.mps.synchronize()
    assert event.query()
    event.record()
    torch.mps.synchronize()
    assert event.query()


def test_an_event_that_was_never_recorded() -> None:
    """wait and synchronize of a fresh event return at once."""
    event = Event()
    event.wait()
    event.synchronize()
    assert event.query() in (False, True)  # an id from the pool keeps its counter up to torch 2.14


def test_elapsed_time_is_positive_milliseconds() -> None:
    """Two recorded events with timing give the time between them."""
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record()
    x = values(100, 100).to("mps")
    x @ x
    end.record()
    torch.mps.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


def test_events_in_the_wrong_order() -> None:
    """An end that was recorded before its start is refused with the ids of both."""
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    end.record()
    torch.mps.synchronize()
    start.record()
    torch.mps.synchronize()
    first, last = (event._Event__eventId for event in (start, end))
    text = text_of(RuntimeError, start.elapsed_time, end)
    assert text == f"End event {last} was not recorded after start event {first}"


def test_a_start_without_timing() -> None:
    """Measuring from an event without timing raises."""
    start, end = Event(), Event(enable_timing=True)
    start.record()
    end.record()
    torch.mps.synchronize()
    assert text_of(RuntimeError, start.elapsed_time, end) == UNTIMED


UNTIMED = "Events were not created with argument 'enable_timing=True'"
HANGS = (
    "anymps: this elapsed_time() never returns on a Mac up to torch 2.14 (the end event was measured before, has no "
    "timing or was never recorded; pytorch issue 162872); this exception is anymps' own. Record an end event with "
    "enable_timing=True and measure it once."
)


def test_an_end_that_cannot_be_measured(virtual_device: torch.device) -> None:
    """An end without timing, or never recorded: hardware waits for ever up to torch 2.14, and raises later."""
    hangs = not version_rules(torch.__version__).event_timing_safe
    start = Event(enable_timing=True)
    start.record()
    unrecorded = "Both events must be recorded before calculating elapsed time"
    for end, later in ((Event(), UNTIMED), (Event(enable_timing=True), unrecorded)):
        assert text_of(RuntimeError, start.elapsed_time, end) == (HANGS if hangs else later)


def test_measuring_twice(virtual_device: torch.device) -> None:
    """An end event can be measured once for each record: hardware waits for ever up to torch 2.14 (issue 162872)."""
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    if version_rules(torch.__version__).event_timing_safe:
        assert start.elapsed_time(end) > 0
    else:
        assert text_of(RuntimeError, start.elapsed_time, end) == HANGS
    end.record()
    assert start.elapsed_time(end) > 0


def test_ids_come_from_a_pool() -> None:
    """Ids are positive integers; released ones are handed out again; unknown ones are refused."""
    first, second = C._mps_acquireEvent(False), C._mps_acquireEvent(True)
    assert 0 < first != second > 0
    C._mps_recordEvent(first)
    C._mps_waitForEvent(first)
    C._mps_synchronizeEvent(first)
    torch.mps.synchronize()
    assert C._mps_queryEvent(first)
    C._mps_releaseEvent(first)
    again = C._mps_acquireEvent(False)
    assert first == again
    for released in (first, second):
        C._mps_releaseEvent(released)
    for call in (C._mps_recordEvent, C._mps_queryEvent, C._mps_waitForEvent, C._mps_synchronizeEvent):
        assert text_of(RuntimeError, call, 10**6) == "Invalid Event ID: 1000000"


def test_events_are_given_back_when_they_go() -> None:
    """A thousand short-lived events use few ids."""
    for _ in range(1000):
        Event().record()
    identifier = C._mps_acquireEvent(False)
    C._mps_releaseEvent(identifier)
    assert identifier < 100
