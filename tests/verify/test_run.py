"""A run: processes that crash, hang or want another one cost their case; the time is kept, and so are the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anymps import EnableError
from anymps.verify import Answers, _run, ask
from anymps.verify._supervised import Ended

WORKER = """
import json, os, sys, time
job = json.load(sys.stdin)
def say(**message): print(json.dumps(message), flush=True)
say(hello={"virtual": False, "machine": {"chip": "Apple M9", "macos": "27.0", "torch": "2.13.0"}}, cases=6, note="")
used = False
for n in range(job["start"], 6):
    name = f"{job['kind']} {n}"
    if job["wanted"] is not None and name not in job["wanted"]: continue
    if n == 4 and (used or os.environ.get("FLAG") != "1"):
        say(again=n, environment={"FLAG": "1"}); sys.exit()
    say(begin=n, case=name, patience=0.5 if n == 2 else 60)
    if n == 1:
        print("/Users/ann/x.mm:8: failed assertion 'no'", file=sys.stderr)
        os.abort()
    if n == 2: time.sleep(60)
    seen = os.environ.get("FLAG", "") + os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "")
    say(done=n, answer={"does": "computes", "value": seen})
    used = True
    if n == 4:
        say(again=5, environment={}); sys.exit()
say(end=6)
"""


@pytest.fixture
def worker(tmp_path: Path) -> list[str]:
    """A process of six cases: the second crashes, the third hangs, the fifth stands alone with a variable."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    return [sys.executable, str(script)]


def test_a_run_goes_on(worker: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a crash and a hang, which are answers; a case alone has its variables, and the user's are not there."""
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.0")
    told: list[str] = []
    found = ask(["waits", "fallbacks"], 10, tell=told.append, worker=worker)
    assert found.machine == {"chip": "Apple M9", "macos": "27.0", "torch": "2.13.0"}
    assert not found.virtual
    fine = {"does": "computes", "value": ""}
    crash = {"does": "crashes", "text": "exit status -6: .../x.mm:8: failed assertion 'no'"}
    assert found.answers["waits"] == {
        "waits 0": fine,
        "waits 1": crash,
        "waits 2": {"does": "hangs", "text": "no response for 0.5 s"},
        "waits 3": fine,
        "waits 4": {"does": "computes", "value": "1"},
        "waits 5": fine,
    }
    assert found.answers["fallbacks"]["fallbacks 4"] == {"does": "computes", "value": "11"}
    assert [found.kinds["waits"][name] for name in ("cases", "note")] == [6, ""]
    assert told[:3] == ["waits: 1 of 6", "waits: 2 of 6", "waits: 3 of 6"]


def test_a_fault_that_kills_shows(worker: list[str]) -> None:
    """A crash or a hang is what a known fault shows itself by."""
    found = ask(["faults"], 10, wanted={"faults": ["faults 1", "faults 3"]}, worker=worker)
    assert list(found.answers["faults"]) == ["faults 1", "faults 3"]
    assert found.answers["faults"]["faults 1"]["shows"] is True


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


def test_a_kind_without_time_is_said(worker: list[str]) -> None:
    """It has no answers, and a note."""
    found = ask(["waits", "times"], 1e-4, worker=worker)
    assert {kind: about["note"] for kind, about in found.kinds.items()} == dict.fromkeys(
        ("waits", "times"), "no time left"
    )
    assert found.count == 0


def test_a_kind_that_is_not_finished_says_so(tmp_path: Path) -> None:
    """Its answers are fewer than its cases, and the note tells why."""
    script = tmp_path / "worker.py"
    hello = {"hello": {"virtual": True, "machine": {}}, "cases": 2, "note": "no numpy"}
    script.write_text(
        f"import json, time\nprint({json.dumps(hello)!r})\n"
        "print(json.dumps({'begin': 0, 'case': 'waits 0', 'patience': 60}))\n"
        "print(json.dumps({'done': 0, 'answer': {'does': 'computes'}}))\n"
        "time.sleep(1.3)\nprint(json.dumps({'late': 1}))\n"
    )
    found = ask(["waits"], 0.02, worker=[sys.executable, str(script)])
    assert found.kinds["waits"]["note"] == "no numpy; ran out of time; --minutes allows more"
    assert found.count == 1


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
    hello = {"hello": {"virtual": True, "machine": {}}, "cases": 2, "note": ""}
    script.write_text(f"import sys\nprint({json.dumps(hello)!r})\nsys.exit('Killed')\n")
    found = ask(["waits"], 10, worker=[sys.executable, str(script)])
    assert found.kinds["waits"]["note"] == "stopped between two cases: Killed"


def test_the_time_is_shared(worker: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kinds' shares; what one leaves goes to the others."""
    given: list[tuple[str, float]] = []

    def note(self: Any, kind: Any, seconds: float, wanted: Any) -> None:
        given.append((kind.name, round(seconds)))
        self._asked[kind.name] = _run._Progress(kind, finished=kind.name != "surface")

    monkeypatch.setattr(_run._Run, "ask", note)
    ask(["operators", "times", "surface"], 10, worker=worker)
    # The last one's quarter is kept while the first one is asked again.
    assert given == [("surface", 30), ("operators", 442), ("surface", 450), ("times", 600)]


def test_a_kind_that_ran_out_of_time_goes_on_while_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three waits of 100 s each in a share of 120 s: the third is asked in what the times leave."""
    now = [0.0]
    started: list[tuple[str, int, int]] = []

    def listen(_: object, __: object, job: str, hear: Any, ___: object) -> Ended:
        asked = json.loads(job)
        started.append((asked["kind"], asked["start"], round(asked["seconds"])))
        hear({"hello": {"virtual": True, "machine": {}}, "cases": 3, "note": "no numpy"})
        end = now[0] + asked["seconds"]
        for number in range(asked["start"], 3):
            if now[0] >= end:
                return Ended("exit", 0, "")
            hear({"begin": number, "case": str(number), "patience": 9})
            now[0] += 100.0 if asked["kind"] == "waits" else 1.0
            hear({"done": number, "answer": {"does": "computes"}})
        hear({"end": 3})
        return Ended("exit", 0, "")

    monkeypatch.setattr(_run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_run, "listen", listen)
    found = ask(["waits", "times", "faults"], 10, worker=["none"])
    assert started == [("waits", 0, 120), ("times", 0, 250), ("waits", 2, 217), ("faults", 0, 297)]
    assert found.kinds["waits"] == {"cases": 3, "seconds": 300.0, "note": "no numpy"}
    assert [len(answers) for answers in found.answers.values()] == [3, 3, 3]


def test_samples_are_drawn_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs walk through a set of strings alike, whatever this process was started with."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    path = tmp_path / "worker.py"
    path.write_text(
        "import json, os\n"
        "for one in ({'hello': {'virtual': True, 'machine': {}}, 'cases': 1, 'note': ''},\n"
        "            {'begin': 0, 'case': 'seed', 'patience': 9},\n"
        "            {'done': 0, 'answer': {'value': os.environ['PYTHONHASHSEED']}}, {'end': 1}):\n"
        "    print(json.dumps(one), flush=True)\n"
    )
    answers = ask(("surface",), 1, worker=[sys.executable, str(path)])
    assert answers.answers == {"surface": {"seed": {"value": "0"}}}
