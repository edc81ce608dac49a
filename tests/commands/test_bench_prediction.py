"""What `anymps bench` measured beside what was predicted, with times made by hand: nothing here looks at a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jsonschema
import pytest

from anymps.commands.bench._function import _predicted
from anymps.commands.bench._prediction import Prediction, predict
from anymps.commands.bench._session import bench_text, recorded_steps
from anymps.record import Recording
from anymps.timing import Comparison, Contender, Run, Timing
from commands.test_bench import follows_the_schema
from timed_steps import MS, Steps


def products() -> Recording:
    """Ten products a step: 33.9 ms of an M3 Pro's GPU, and 0.25 ms of a wait for it."""
    steps = Steps()
    for _ in range(3):
        steps.product(10)
        steps.end()
    return steps.close()


def timed(queued: float, finished: float, *, virtual: bool = False, calls: int = 1) -> Timing:
    """Twenty runs alike, in ms."""
    run = Run(round(queued * MS), round(finished * MS))
    return Timing("step of train.py", "mps:0", (run,) * 20, virtual=virtual, calls=calls)


def test_what_was_measured_lies_in_the_interval() -> None:
    """Both side by side."""
    found = predict(timed(2.0, 41.0), products())
    assert found.held
    assert str(found).splitlines() == [
        "                  measured  predicted    80 % interval",
        "step of train.py   41.0 ms    34.2 ms  23.2 to 50.6 ms  held",
        "Measured is 1.20 times what was predicted for an M3 Pro 18GB, bound by compute.",
    ]


def test_a_result_is_released_after_its_recorded_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that call is over the release would count as the program's own code."""
    log: list[str] = []

    class Result:
        def __del__(self) -> None:
            log.append("released")

    class Capture(nullcontext[None]):
        recording = products()

        def __enter__(self) -> Any:
            return self

        @contextmanager
        def call(self) -> Iterator[None]:
            yield
            log.append("call is over")

    monkeypatch.setattr("anymps.record", Capture)
    assert _predicted(timed(2.0, 5000.0), Contender(Result, "cpu"), "").found is not None
    assert log == ["call is over", "released"] * 4


@pytest.mark.parametrize(("ms", "steps"), [(0.5, 16), (100.0, 10), (400.0, 4), (5000.0, 4), (0.0, 16)])
def test_short_steps_are_recorded_more_often(ms: float, steps: int) -> None:
    """For a second, but four at least and sixteen at most."""
    assert recorded_steps(timed(0.0, ms)) == steps


def test_what_was_measured_lies_outside() -> None:
    """Told as that."""
    found = predict(timed(80.0, 100.0), products())
    assert found.held is False
    assert str(found).splitlines()[1].endswith("not held")


def test_what_was_measured_is_what_was_predicted() -> None:
    """No ratio of one."""
    assert str(predict(timed(0.5, 34.2), products())).splitlines()[2:] == [
        "Measured is what was predicted for an M3 Pro 18GB, bound by compute."
    ]


def test_this_machines_time_is_compared_with_nothing() -> None:
    """On the virtual device the prediction stands alone, in words and as data."""
    found = predict(timed(2.0, 40.0, virtual=True), products())
    assert str(found) == (
        "A step of train.py would take about 34.2 ms on an M3 Pro 18GB (23.2 to 50.6 ms), bound by compute. "
        "The prediction includes a wait for the GPU at the end, and is not compared: the times above are this "
        "machine's, not a Mac's."
    )
    several = predict(timed(20.0, 400.0, calls=10, virtual=True), products())
    assert str(several).endswith(
        " bound by compute. The prediction is not compared: the times above are this machine's, not a Mac's."
    )
    row = found.to_json()
    assert (row["measured_ns"], row["held"]) == (None, None)
    assert row["predicted_ns"] == pytest.approx(34.2 * MS, rel=0.01)


def test_several_calls_in_a_run_wait_for_nothing_between_them() -> None:
    """Neither does what is predicted."""
    found = predict(timed(20.0, 400.0, calls=10), products())
    assert found.compared is not None and found.compared.time.bound == "compute"
    assert str(found).splitlines()[1:] == [
        "step of train.py   40.0 ms    33.9 ms  22.9 to 50.3 ms  held",
        "Measured is 1.18 times what was predicted for an M3 Pro 18GB, bound by compute.",
    ]


def test_nothing_is_predicted() -> None:
    """The reason is one line, and nothing held."""
    steps = Steps(mac="Cray-1", mac_details="")
    steps.product(1)
    steps.end()
    found = predict(timed(1.0, 2.0), steps.close())
    assert str(found) == "no prediction: the recording names no known Mac"
    assert (found.held, found.to_json()["predicted_ns"]) == (None, None)


@pytest.mark.parametrize("virtual", [False, True])
def test_json_follows_its_schema(virtual: bool) -> None:
    """With and without a comparison."""
    import json

    timing = timed(2.0, 40.0, virtual=virtual)
    found = [predict(timing, products()), Prediction(timing, None, "nothing is known")]
    document = json.loads(bench_text(Comparison((timing,)), found, as_json=True))
    follows_the_schema(document)
    document["predictions"][0]["held"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        follows_the_schema(document)


def test_times_of_another_release_are_compared_with_nothing() -> None:
    """What was measured was the installed one's."""
    found = predict(timed(2.0, 40.0), products(), "2.4")
    assert (found.held, found.compared) == (None, None)
    assert str(found) == (
        "A step of train.py would take about 36.1 ms on an M3 Pro 18GB (24.4 to 53.4 ms), bound by compute. These are "
        "the times of torch 2.4, for the calls that torch 2.13.0 makes here."
    )
