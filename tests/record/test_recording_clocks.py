"""Clock reads on hand-made recordings: every number between two of them."""

from __future__ import annotations

import pytest

from anymps.findings.rules._mps901_timing import clock_pairs
from anymps.record import Fate, Flag, Phase, Recording, RecordingBuilder, Wait

START, END, OTHER = 3, 5, 9  # lines


class Program:
    """One call after the other, 10 ns apart."""

    def __init__(self) -> None:
        self.builder = RecordingBuilder()
        self.clock = 0

    def read(self, line: int, thread: int = 0) -> None:
        """The clock, at a line."""
        site = self.builder.site("train.py", line, "main", f"line {line}")
        self._call("anymps::clock {}", site=site, thread=thread, flags=Flag.PAIR, fate=Fate.MARK)

    def work(self, *operators: str, phase: Phase = Phase.FORWARD, flags: Flag | None = None) -> None:
        """Operators on mps."""
        for operator in operators:
            self._call(operator, phase=phase, flags=flags, fate=Fate.NATIVE)

    def wait(self, kind: Wait = Wait.SYNCHRONIZE) -> None:
        """The host waits for all of it."""
        self._call("aten::wait", wait=kind, fate=Fate.WAIT)

    def _call(self, operator: str, **facts: object) -> None:
        self.clock += 10
        self.builder.entry(operator, start_ns=self.clock, duration_ns=4, **facts)  # type: ignore[arg-type]

    def close(self) -> Recording:
        """The recording."""
        self.builder.end_step(self.clock + 10)
        return self.builder.close()


def told(recording: Recording) -> list[tuple[int, int, int, int, int, int]]:
    """Both lines, intervals, work, what is pending, what is of a new kind."""
    return [
        (pair.start.line, pair.end.line, pair.intervals, pair.work, pair.pending, pair.first)
        for pair in clock_pairs(recording)
    ]


def test_an_interval() -> None:
    """Work between two reads, what came after the last wait, and what had not run before, over all rounds."""
    program = Program()
    program.work("aten::relu")
    for _ in range(3):
        program.read(START)
        program.work("aten::relu", "aten::mul")
        program.wait()
        program.work("aten::mul", "aten::add", "aten::add")
        program.read(END)
    assert told(program.close()) == [(START, END, 3, 15, 9, 2)]


def test_a_wait_before_an_interval() -> None:
    """It takes nothing from what is pending at the end; one after all work leaves nothing pending."""
    program = Program()
    program.work("aten::relu", "aten::relu")
    program.wait()
    program.read(START)
    program.work("aten::relu")
    program.read(END)
    program.work("aten::relu", "aten::relu")
    program.wait()
    program.read(OTHER)
    assert told(program.close()) == [(START, END, 1, 1, 1, 0), (END, OTHER, 1, 2, 0, 0)]


@pytest.mark.parametrize("phase", [Phase.BATCH, Phase.MOVE])
def test_what_is_no_work(phase: Phase) -> None:
    """Views, what fills a new tensor, what prepares a batch, and the read of a number."""
    program = Program()
    program.read(START)
    program.work("aten::view", flags=Flag.VIEW)
    program.work("aten::normal_", "aten::zero_", "aten::bernoulli_.float")
    program.work("aten::mul", phase=phase)
    program.wait(Wait.ITEM)
    program.read(END)
    assert told(program.close()) == []


def test_threads_have_clocks_of_their_own() -> None:
    """A read ends the interval of its thread alone; work counts for both, whichever thread did it."""
    program = Program()
    program.read(START)
    program.read(OTHER, thread=1)
    program.work("aten::relu")
    program.read(END)
    program.work("aten::relu")
    program.read(END, thread=1)
    assert told(program.close()) == [(START, END, 1, 1, 1, 1), (OTHER, END, 1, 2, 2, 1)]


def test_a_program_without_clocks() -> None:
    """There is nothing to read."""
    program = Program()
    program.work("aten::relu")
    assert told(program.close()) == []
