"""What the program's own code took longer because the calls that the CPU computed had filled its caches."""

from __future__ import annotations

import pytest

from anymps.cost import Happening
from anymps.forecast import Forecast, forecast
from anymps.forecast._caches import Caches
from timed_steps import Steps

US = 1_000
SPEED = 0.5
PARTS = ("aten::relu", "aten::exp", "aten::neg")


def recorded(gaps: list[list[int]], **meta: object) -> Forecast:
    """The forecast of steps whose small calls come after these gaps, in us, on half an M1's core."""
    steps = Steps(core_speed=SPEED, **meta)
    for step in gaps:
        for name, gap in zip(PARTS, step, strict=True):
            steps.entry(name, gap * US, inputs=("float32[4]",), outputs=("float32[4]",))
        steps.item()
        steps.end()
    return forecast(steps.close())


def code_of(found: Forecast) -> float:
    """The seconds of own code in its happenings, in us of this machine."""
    return sum(happening.host_code for happening in found.happenings) * 1e6 / SPEED


def test_code_that_ran_cold_counts_as_it_usually_runs() -> None:
    """Code takes four times as long once a step as at once again, where 2.1 times is usual."""
    gaps = [[100, 100, 100]] * 4
    cold, usual = recorded(gaps, cold_code=[84.0, 20.0]), recorded(gaps, cold_code=[42.0, 20.0])
    assert code_of(usual) == pytest.approx(code_of(recorded(gaps)))
    assert code_of(cold) == pytest.approx(code_of(usual) / 2)
    assert cold.time.high / cold.time.low > usual.time.high / usual.time.low
    assert cold.busy == 0.0
    assert "busy" not in cold.sentence


def test_a_run_on_a_busy_machine_gives_the_time_of_a_quiet_one() -> None:
    """All steps of the busy run are cold, by factors that differ around that of the measured code."""
    quiet = recorded([[120, 90, 45]] * 4, cold_code=[29.0, 14.0])
    busy = recorded([[420, 270, 180], [450, 285, 165], [435, 276, 156]], cold_code=[98.0, 14.0])
    without = recorded([[420, 270, 180], [450, 285, 165], [435, 276, 156]])
    assert busy.time.seconds == pytest.approx(quiet.time.seconds, rel=0.15)
    assert busy.time.low < quiet.time.seconds < busy.time.high
    assert without.time.seconds > 1.15 * quiet.time.seconds
    assert busy.bound == quiet.bound != without.bound


def test_long_code_repeats_itself() -> None:
    """Of 20 ms no more is taken off than cold caches cost: six times what they cost the measured code."""
    (short, long) = Caches.of([98.0, 20.0]).warm([Happening("kernel", None, it) for it in (50e-6, 20e-3)], 0.5)
    assert short.host_code == pytest.approx(50e-6 * 42.0 / 98.0)
    assert long.host_code == pytest.approx(20e-3 - 0.5 * 6 * 56e-6)


def test_a_batch_is_made_by_such_code_and_a_fallback_is_not() -> None:
    """A loader in the main process runs Python; an operator on the CPU computes."""
    found = Caches.of([84.0, 20.0]).warm(
        [Happening("batch", None, 0.0, work=400e-6), Happening("fallback", None, 0.0, work=400e-6)], 1.0
    )
    assert [happening.work for happening in found] == pytest.approx([200e-6, 400e-6])


@pytest.mark.parametrize("measured", [[], [30.0, 20.0], [42.0, 20.0]])
def test_warm_caches_change_nothing(measured: list[float]) -> None:
    """Nor does a recording that holds no such figures."""
    assert Caches.of(measured) == Caches()
    step = [Happening("kernel", None, 50e-6)]
    assert Caches.of(measured).warm(step, 0.5) == step
