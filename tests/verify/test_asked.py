"""What the device answers: the same twice, and otherwise where a rule, a text or a kernel was altered."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest
import torch

from anymps.device import enforce_hazards
from anymps.rules.faults import all_hazards
from anymps.verify import KINDS, Difference, compare
from anymps.verify.cases import TABLE, WAITING, SampleCall, _samples, _streams, _waits, cases_of

from .answering import answers, asked

pytestmark = pytest.mark.usefixtures("virtual_device")

CASES = {
    "faults": ("MPS602", "MPS623"),
    "waits": ("item", "clone"),
    "streams": ("fill uniform float32", "call randperm"),
    "fallbacks": ("fallback special.airy_ai float32",),
    "operators": (
        "forward nn.functional.silu float32",
        "forward svd float32",
        "forward rand_like float32",
        "forward new_empty float32",
        "gradient matmul float32",
        "errors cat",
    ),
    "memory": ("one tensor of each size", "fraction 3"),
}


def differences(kind: str, before: Any, *, cases: tuple[str, ...] = ()) -> list[Difference]:
    """Where the device parts from what it answered before."""
    now = asked(kind, cases or CASES[kind])
    return compare(before, now).differences


DATABASE = {"operators", "fallbacks"}  # it takes long to load


@pytest.mark.parametrize("kind", [pytest.param(one, marks=[pytest.mark.slow] * (one in DATABASE)) for one in CASES])
def test_the_device_agrees_with_itself(kind: str) -> None:
    """Each kind, bit for bit; something is answered, and nothing is unasked."""
    before, again = asked(kind, CASES[kind]), asked(kind, CASES[kind])
    comparison = compare(before, again)
    assert comparison.differences == []
    count = comparison.counts[kind]
    assert (count.both, count.agree, count.exactly) == (len(CASES[kind]),) * 3


@pytest.mark.slow
def test_every_kind_has_cases() -> None:
    """Several of each."""
    assert list(TABLE) == list(KINDS)
    for kind in KINDS:
        cases, note = cases_of(kind)
        assert len(cases) > 5
        assert note == ""


@pytest.mark.slow
def test_another_refusal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that refuses what was computed, and one that refuses with other words."""
    cases = ("forward nn.functional.silu float32", "errors cat")
    before = asked("operators", cases)
    info = _samples.database()[("nn.functional.silu", "")]
    cat = _samples.database()[("cat", "")]

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not for this dtype")

    monkeypatch.setattr(info, "op", refuse)
    monkeypatch.setattr(cat, "op", refuse)
    found = differences("operators", before, cases=cases)
    first = next(one for one in found if one.case == cases[0])
    assert (first.what, first.mac, first.ours) == (
        "outcome, sample 1",
        "computes",
        "refuses: RuntimeError: not for this dtype",
    )
    assert any(one.case == cases[1] and one.what.startswith("error message") for one in found)


@pytest.mark.slow
def test_another_layout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides and dtype of a result."""
    cases = ("forward nn.functional.silu float32",)
    before = asked("operators", cases)
    info = _samples.database()[("nn.functional.silu", "")]
    plain = info.op
    monkeypatch.setattr(info, "op", lambda x: plain(x).half())
    assert {one.what.partition(",")[0] for one in differences("operators", before, cases=cases)} == {"dtype"}
    monkeypatch.setattr(info, "op", lambda x: torch.stack([plain(x)] * 2, -1)[..., 0])
    assert {one.what.partition(",")[0] for one in differences("operators", before, cases=cases)} == {"strides"}


def test_another_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of another seed, and a generator that moved on further."""
    before = asked("streams", ("call rand",))
    plain = _streams._CALLS["rand"]
    monkeypatch.setitem(_streams._CALLS, "rand", lambda n: plain(n + 4)[4:])
    found = differences("streams", before, cases=("call rand",))
    assert found
    assert {one.what.partition(",")[0] for one in found} == {"values"}


def test_another_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits where it did not."""
    before = asked("waits", ("clone",))
    call = WAITING["clone"]
    monkeypatch.setitem(WAITING, "clone", SampleCall(lambda x: x.clone().cpu(), call.waits, call.make))
    (found,) = differences("waits", before, cases=("clone",))
    assert (found.what, found.mac, found.ours) == ("value", "does not wait", "waits")


def test_another_counter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of one tensor more."""
    gc.collect()
    plain = torch.mps.current_allocated_memory
    others = plain()  # what earlier tests have left
    before = asked("memory", ("one tensor of each size",))
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: plain() + 256)
    first = differences("memory", before, cases=("one tensor of each size",))[0]
    assert (first.what, first.mac) == ("value, sample 1", f"one of 0: {others:,} bytes in tensors, 0 in the driver")
    assert first.ours == f"one of 0: {others + 256:,} bytes in tensors, 0 in the driver"


def test_another_rule_is_found(hazards_put_back: None) -> None:
    """One that the rules claim, which the Mac does not show; and one that a Mac shows and the rules do not know."""
    enforce_hazards(())
    unknown = asked("faults", ("MPS602",))
    enforce_hazards(tuple(one for one in all_hazards() if one.id == "MPS602"))
    known = asked("faults", ("MPS602",))
    right = {key: one for key, one in unknown.answers["faults"]["MPS602"].items() if key != "reports"}
    wrong = {**right, "results": [{**right["results"][0], "digest": "0", "values": ""}]}
    found = [
        [(one.what, one.ours) for one in compare(answers(faults={"MPS602": mac}), ours).differences]
        for mac in (right, wrong)
        for ours in (unknown, known)
    ]
    assert found == [[], [("known bug", "reports it")], [("values", "3 values kept")], []]


def test_in_which_order_faults_are_asked() -> None:
    """Those that end a process last, each list in the order of its names; all bugs but those of GiB or of no result."""
    names = [case.id for case in cases_of("faults")[0]]
    dire = {row.id for row in all_hazards() if row.is_dire}
    assert names == sorted(set(names) - dire) + sorted(set(names) & dire)
    assert len({row.id for row in all_hazards() if not row.is_slow} - set(names)) == 16
    assert not {row.id for row in all_hazards() if row.is_slow} & set(names)


def test_the_example_of_a_fault_is_asked(hazards_put_back: None) -> None:
    """Whatever the release: the virtual device reports each at its example, and that gives results or a refusal.

    Those left out need another release of torch, as in tests/findings/test_hazards.py.
    """
    for case in cases_of("faults")[0]:
        if case.id in ("MPS604", "MPS660", "MPS691"):
            continue
        enforce_hazards(tuple(one for one in all_hazards() if one.id == case.id))
        answer = case.ask()
        assert answer["reports"] in ("may", "sure"), case.id
        assert answer.get("results") or answer["does"] == "refuses", case.id


def test_a_wait_is_timed_behind_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Mac is asked. What it finds here says nothing: there is no queue."""
    monkeypatch.setattr(_waits, "_SIDE", 16)
    monkeypatch.setattr(_waits, "_QUEUE", 0.001)
    _waits._work.cache_clear()
    assert _waits._timed(WAITING["item"]) in (True, False)
    _waits._work.cache_clear()


WITHOUT = """
import sys
from importlib.machinery import PathFinder

plain = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {blocked!r} else plain(name, path, target)

PathFinder.find_spec = staticmethod(find_spec)  # dill asks an instance
from anymps.device import enable
enable("M3 Pro 18GB", quiet=True)
from anymps.verify.cases import cases_of
for kind in ("operators", "streams"):
    cases, note = cases_of(kind)
    print(len(cases) > 50, note)
print(cases[0].ask()["samples"][0]["does"], "expecttest" in sys.modules)
"""


def without(*blocked: str) -> list[str]:
    """What a process says where these modules are not installed."""
    code = WITHOUT.format(blocked=set(blocked))
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


@pytest.mark.slow
def test_torch_alone_is_enough() -> None:
    """Without expecttest all is asked; without numpy the database cannot be loaded, which is said."""
    assert without("expecttest", "pytest", "hypothesis", "scipy") == ["True ", "True ", "computes False"]
    note = "torch's operator database needs numpy, which is not installed: pip install numpy"
    assert without("expecttest", "numpy") == [f"False {note}", "True ", "computes False"]


@pytest.mark.slow
def test_another_fallback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator without a kernel that computes; here without the fallback, so that it was refused before."""
    case = "fallback special.airy_ai float32"
    before = asked("fallbacks", (case,))
    monkeypatch.setattr(_samples.database()[("special.airy_ai", "")], "op", lambda x: x + 1)
    found = differences("fallbacks", before, cases=(case,))[0]
    assert (found.what, found.ours) == ("outcome, sample 1", "computes")
    assert found.mac.startswith("refuses: NotImplementedError: The operator 'aten::special_airy_ai")


@pytest.mark.slow
def test_another_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same forward."""
    case = "gradient matmul float32"
    before = asked("operators", (case,))
    info = _samples.database()[("matmul", "")]
    plain = info.op
    monkeypatch.setattr(info, "op", lambda x, y: plain(x, y) + (x.sum() - x.sum().detach()))
    found = differences("operators", before, cases=(case,))
    assert {one.what.partition(",")[0] for one in found} == {"values"}


@pytest.mark.slow
def test_the_database_seeds_without_a_note() -> None:
    """Torch's own function keeps a traceback of each seed, for a device that is not there."""
    info = _samples.database()[("nn.functional.layer_norm", "")]
    noted = len(torch.cuda._queued_calls)
    first, again = ([sample.input for sample in info.sample_inputs("cpu", torch.float32)] for _ in range(2))
    assert len(torch.cuda._queued_calls) == noted
    assert len(first) > 3
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
