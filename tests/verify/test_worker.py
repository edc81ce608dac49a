"""One process of a run: what it says before and after each case, and when it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anymps.mac import parse_mac
from anymps.verify import _worker
from anymps.verify.cases import Case, _table, machine_facts

HELLO = {"hello": {"virtual": True}, "cases": 4, "note": "a note"}


class Job:
    """Jobs on four cases, by a clock that each case moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(_worker, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.cases = [self.case(number) for number in range(4)]
        monkeypatch.setattr(_worker, "_prepared", lambda job: (self.cases, "a note", {"virtual": True}))

    def case(self, number: int) -> Case:
        def ask() -> dict[str, Any]:
            self.now += 1.0
            return {"value": str(number)}

        return Case(f"c{number}", ask)

    def run(self, start: int = 0, seconds: float = 100, wanted: Any = None) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        _worker.work({"start": start, "seconds": seconds, "wanted": wanted}, told.append)
        assert told[0] == {**HELLO, "cases": 4 if wanted is None else len(wanted)}
        return told[1:]


def asked(number: int) -> list[dict[str, Any]]:
    """What is said of one case."""
    return [{"begin": number, "case": f"c{number}"}, {"done": number, "answer": {"value": str(number)}}]


def test_all_cases_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """From where it is to start; only those that are wanted, if any are named."""
    job = Job(monkeypatch)
    assert job.run() == [*asked(0), *asked(1), *asked(2), *asked(3), {"end": 4}]
    assert job.run(start=2) == [*asked(2), *asked(3), {"end": 4}]
    first, _, second, answer, end = job.run(wanted=["c3", "c1"])
    assert (first["case"], second["case"], answer["done"], end) == ("c1", "c3", 1, {"end": 2})
    assert job.run(wanted=[]) == [{"end": 0}]


def test_until_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One case is asked whatever the time; the time may be used to its end."""
    job = Job(monkeypatch)
    assert job.run(seconds=0) == [*asked(0), {"late": 1}]
    assert job.run(start=1, seconds=0) == [*asked(1), {"late": 2}]
    assert job.run(seconds=1.5) == [*asked(0), *asked(1), {"late": 2}]
    assert job.run(seconds=2) == [*asked(0), *asked(1), *asked(2), {"late": 3}]


def test_the_machine_that_is_played() -> None:
    """Nothing else than what answers depend on."""
    found = machine_facts(parse_mac("M3 Pro 14-core 18GB, macOS 26.4"))
    versions = {"torch": torch.__version__, "python": found["python"]}
    assert found == {"chip": "Apple M3 Pro", "gpu_cores": 14, "memory_gib": 18, "macos": "26.4", **versions}


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch and the system: memory in whole GiB, Python by its first two numbers."""
    sizes = {"SC_PAGE_SIZE": 16384, "SC_PHYS_PAGES": 18 * (1 << 30) // 16384 - 1}
    monkeypatch.setattr(_table.os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(_table.platform, "mac_ver", lambda: ("26.4.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(_table.platform, "python_version_tuple", lambda: ("3", "12", "7"))
    monkeypatch.setattr(torch._C, "_mps_get_name", lambda: "Apple M3 Pro", raising=False)
    monkeypatch.setattr(torch._C, "_mps_get_core_count", lambda: 18, raising=False)
    known = {"memory_gib": 18, "macos": "26.4.1", "torch": torch.__version__, "python": "3.12"}
    assert machine_facts(None) == {"chip": "Apple M3 Pro", "gpu_cores": 18, **known}
