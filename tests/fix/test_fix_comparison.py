"""When two runs agree: how they end, their losses, what they print and what they write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anymps.fix import Ran
from anymps.fix._comparison import agreement, difference, stops_short

RAN = Ran("", (0.5, 0.25), (0.25, 12.0), {"log.csv": "step,loss\n1,0.500\n", "m.pt": None})
STOPPED = Ran("ValueError: 1 of 2", (0.5,), trail=(("train.py", 9),))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (RAN, ""),
        (replace(RAN, losses=(0.5, 0.2501), printed=(0.25, 12.001)), ""),
        (replace(RAN, losses=(0.5, 0.26)), "losses differ: 0.26 instead of 0.25"),
        (replace(RAN, losses=(0.5,)), "1 losses instead of 2"),
        (replace(RAN, losses=(0.5,), cut=True, printed=()), ""),
        (replace(RAN, losses=(0.6,), cut=True), "losses differ: 0.6 instead of 0.5"),
        (replace(RAN, losses=(0.5, 0.25), early=5, printed=(), files={}), ""),
        (replace(RAN, printed=(0.25, 13.0)), "printed numbers differ: 13 instead of 12"),
        (replace(RAN, files={"m.pt": None}), "the file log.csv is not written"),
        (replace(RAN, files={**RAN.files, "b.txt": ""}), "the file b.txt is written, too"),
    ],
)
def test_what_differs(after: Ran, told: str) -> None:
    """As far as both runs came: printed numbers and files only where both came to the same end."""
    assert difference(RAN, after) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step,loss\n1,0.500\n", ""),
        ("step,loss\n1,0.5001\n", ""),
        (
            "step,loss\n1,tensor(0.500)\n",
            "the file log.csv differs: '1,tensor(0.500)' instead of '1,0.500'",
        ),
        ("step,loss\n1,0.600\n", "the file log.csv differs: '1,0.600' instead of '1,0.500'"),
        ("step,loss\n", "the file log.csv differs"),
    ],
)
def test_a_text_that_is_written(text: str, told: str) -> None:
    """Byte for byte, but for rounding: a tensor in a CSV is no number."""
    assert difference(RAN, replace(RAN, files={**RAN.files, "log.csv": text})) == told


def test_runs_of_several_lengths() -> None:
    """They are compared up to the end of the shorter one."""
    before = replace(RAN, early=2)
    assert difference(before, replace(RAN, losses=(0.5,), printed=(), early=1)) == ""
    assert difference(before, replace(RAN, losses=(0.5,), early=2)) == "1 losses instead of 2"


def test_a_device_in_a_text() -> None:
    """It is what was changed."""
    before = replace(RAN, files={"log": "on cpu\ntensor(2.)\n"})
    assert difference(before, replace(RAN, files={"log": "on mps\ntensor(2., device='mps:0')\n"})) == ""


def test_numbers_before_a_crash_are_no_result() -> None:
    """Workers that import the script print as well, until they end it; the changed script gets further."""
    crashed = Ran("RuntimeError: DataLoader worker (pid 7) exited", (), (2.308, 0.0), trail=(("train.py", 3),))
    assert (stops_short(crashed, RAN), difference(crashed, RAN)) == (False, "")
    later = replace(STOPPED, printed=(1.0,))
    assert difference(replace(STOPPED, printed=(9.0, 8.0)), later) == "1 printed numbers instead of 2"
    assert difference(replace(STOPPED, printed=(9.0, 8.0)), replace(later, trail=(("train.py", 12),))) == ""


@pytest.mark.parametrize(
    ("before", "after", "short"),
    [
        (RAN, RAN, False),
        (RAN, STOPPED, True),
        (STOPPED, RAN, False),
        (STOPPED, replace(STOPPED, error="ValueError: 2 of 3"), False),
        (STOPPED, replace(STOPPED, error="TypeError"), False),
        (STOPPED, replace(STOPPED, losses=(), error="TypeError"), True),
        (STOPPED, replace(STOPPED, trail=(("train.py", 3),), error="TypeError"), True),
        (STOPPED, replace(STOPPED, trail=(("train.py", 12),)), False),
    ],
)
def test_which_run_comes_less_far(before: Ran, after: Ran, short: bool) -> None:
    """By its losses, else by the first line at which the two part; the same error in other numbers is the same."""
    assert stops_short(before, after) is short


def test_what_agrees() -> None:
    """In one clause."""
    assert agreement(RAN, RAN) == "2 losses, 2 printed numbers and 2 files agree"
    assert agreement(RAN, replace(RAN, losses=(0.5,), cut=True)) == "1 loss agrees"
    assert agreement(Ran(), Ran()) == ""


def test_where_and_why_a_run_stopped() -> None:
    """In one line of some length."""
    assert STOPPED.stopped == "at train.py:9: ValueError: 1 of 2"
    assert replace(STOPPED, error="E" * 300).stopped == f"at train.py:9: {'E' * 156} ..."
    assert Ran("E").stopped == "E"
