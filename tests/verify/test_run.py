"""A run: processes that crash, hang or want another one cost their case; the time is kept, and so are the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anymps import EnableError
from anymps.verify import KINDS, Answers, Kind, _run, ask
from anymps.verify._supervised import Ended

WORKER = """
import json, os, sys, time
job = json.load(sys.stdin)
def say(**message): print(json.dumps(message), flush=True)
say(hello={"virtual": False, "machine": {"chip": "Apple M9", "macos": "27.0", "torch": "2.13.0"}}, cases=6, note="")
for n in range(job["start"], 6):
    name = f"{job['kind']} {n}"
    say(begin=n, case=name)
    if n == 1:
        print("/Users/ann/x.mm:8: failed assertion 'no'", file=sys.stderr)
        os.abort()
    if n == 2: time.sleep(60)
    seen = os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "") + os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "")
    say(done=n, answer={"does": "computes", "value": seen})
    if n == 4:
        say(late=5); sys.exit()
say(end=6)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A process of six cases: the second crashes, the third hangs, the fifth is the last for its time."""
    monkeypatch.setattr(_run, "_PATIENCE", 3.0)
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return [sys.executable, str(script)]


def test_a_run_goes_on(worker: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a crash and a hang, which are answers, and a process that was late; the user's variables are not there."""
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.0")
    told: list[Kind] = []
    found = ask(["waits", "fallbacks"], 10, tell=told.append, worker=worker)
    assert found.machine == {"chip": "Apple M9", "macos": "27.0", "torch": "2.13.0"}
    assert not found.virtual
    fine = {"does": "computes", "value": ""}
    crash = {"does": "crashes", "text": "exit status -6: .../x.mm:8: failed assertion 'no'"}
    assert found.answers["waits"] == {
        "waits 0": fine,
        "waits 1": crash,
        "waits 2": {"does": "hangs", "text": "no response for 3 s"},
        "waits 3": fine,
        "waits 4": fine,
        "waits 5": fine,
    }
    assert found.answers["fallbacks"]["fallbacks 4"] == {"does": "computes", "value": "1"}
    assert found.kinds["waits"] == {"cases": 6, "note": ""}
    assert [kind.name for kind in told] == ["waits", "fallbacks"]


def test_answers_are_kept_on_the_way(worker: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After each kind, and every few seconds: a run that is broken off has what it had."""
    monkeypatch.setattr(_run, "_KEPT_EVERY", 0.0)
    kept: list[int] = []

    def keep(answers: Answers) -> None:
        kept.append(answers.count)
        if answers.count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(["waits"], 10, keep=keep, worker=worker)
    assert kept == [1, 2, 3, 4, 4]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Workers of three cases a kind, by a clock that each case moves on: 100 s for a wait, 1 s for others."""
    now = [0.0]
    started: list[tuple[str, int, int]] = []

    def listen(_: object, __: object, job: str, hear: Any, ___: object) -> Ended:
        asked = json.loads(job)
        started.append((asked["kind"], asked["start"], round(asked["seconds"])))
        hear({"hello": {"virtual": True, "machine": {"chip": "M9"}}, "cases": 3, "note": "a note"})
        end = now[0] + asked["seconds"]
        for number in range(asked["start"], 3):
            if number > asked["start"] and now[0] >= end:
                return Ended("exit", 0, "")
            hear({"begin": number, "case": str(number)})
            now[0] += 100.0 if asked["kind"] == "waits" else 1.0
            hear({"done": number, "answer": {"does": "computes"}})
        hear({"end": 3})
        return Ended("exit", 0, "")

    monkeypatch.setattr(_run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_run, "listen", listen)
    return started


def counts(found: Answers) -> dict[str, int]:
    """The number of answers by kind."""
    return {kind: len(answers) for kind, answers in found.answers.items()}


def test_what_tells_most_comes_first(clock: list[tuple[str, int, int]]) -> None:
    """A kind may take half of the time that is left; then those that are not finished go on where they were."""
    found = ask(list(KINDS), 6, worker=["none"])
    assert list(KINDS) == ["faults", "waits", "streams", "fallbacks", "operators", "memory"]
    assert [kind for kind, _, _ in clock] == [*KINDS, "memory", "memory", "waits"]  # cases of memory are alone
    assert [one for one in clock if one[0] == "waits"] == [("waits", 0, 178), ("waits", 2, 145)]
    assert counts(found) == dict.fromkeys(KINDS, 3)
    assert found.kinds["waits"] == {"cases": 3, "note": "a note"}


def test_every_kind_has_answers_under_a_limit(clock: list[tuple[str, int, int]]) -> None:
    """What one kind does not finish leaves time to the others, and is said."""
    found = ask(["operators", "waits", "faults"], 3, worker=["none"])
    assert clock == [("faults", 0, 90), ("waits", 0, 88), ("operators", 0, 38), ("waits", 1, 74)]
    assert counts(found) == {"faults": 3, "waits": 2, "operators": 3}
    assert found.kinds["waits"]["note"] == "a note; ran out of time; --minutes allows more"


def test_one_case_is_asked_whatever_the_time(clock: list[tuple[str, int, int]]) -> None:
    """So the machine is always known; the other kinds say why they have none."""
    found = ask(["waits", "streams"], 1e-4, worker=["none"])
    assert found.machine == {"chip": "M9"}
    assert counts(found) == {"waits": 1, "streams": 0}
    assert [about["note"] for about in found.kinds.values()] == [
        "a note; ran out of time; --minutes allows more",
        "no time left; --minutes allows more",
    ]


def test_the_last_kind_has_all_that_is_left(clock: list[tuple[str, int, int]]) -> None:
    """Nobody else needs it."""
    ask(["waits"], 10, worker=["none"])
    assert clock == [("waits", 0, 600)]


def test_no_device(tmp_path: Path) -> None:
    """A process that ends before it has said anything: its last words."""
    script = tmp_path / "worker.py"
    script.write_text("import sys\nsys.exit('ImportError: no torch')\n")
    with pytest.raises(EnableError) as error:
        ask(["waits"], 10, worker=[sys.executable, str(script)])
    assert str(error.value) == "anymps: the device could not be started: ImportError: no torch"


def test_a_worker_that_dies_between_two_cases(tmp_path: Path) -> None:
    """That kind stops, with a note."""
    script = tmp_path / "worker.py"
    hello = {"hello": {"virtual": True, "machine": {"chip": "M9"}}, "cases": 2, "note": ""}
    script.write_text(f"import sys\nprint({json.dumps(hello)!r})\nsys.exit('Killed')\n")
    found = ask(["waits"], 10, worker=[sys.executable, str(script)])
    assert found.kinds["waits"]["note"] == "stopped between two cases: Killed"


def test_samples_are_drawn_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs walk through a set of strings alike, whatever this process was started with."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    path = tmp_path / "worker.py"
    path.write_text(
        "import json, os\n"
        "for one in ({'hello': {'virtual': True, 'machine': {'chip': 'M9'}}, 'cases': 1, 'note': ''},\n"
        "            {'begin': 0, 'case': 'seed'},\n"
        "            {'done': 0, 'answer': {'value': os.environ['PYTHONHASHSEED']}}, {'end': 1}):\n"
        "    print(json.dumps(one), flush=True)\n"
    )
    answers = ask(("waits",), 1, worker=[sys.executable, str(path)])
    assert answers.answers == {"waits": {"seed": {"value": "0"}}}
