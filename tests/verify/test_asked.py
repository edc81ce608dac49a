"""What the device answers: the same twice, and otherwise where a rule, a text or a kernel was altered."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from anymps.device import enforce_hazards, known_hazards
from anymps.rules.faults import Check, all_hazards
from anymps.verify import KINDS, Difference, compare
from anymps.verify.cases import FAULT_CALLS, WAITING, FaultCall, _asked, _samples, _streams, _surface, _waits, cases_of
from anymps.verify.cases._database import drawing_quickly
from anymps.verify.cases._faults import _asked as _asked_fault
from anymps.verify.cases._faults import _recorded, _seen

from .answering import asked

pytestmark = pytest.mark.usefixtures("virtual_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
CASES = {
    "surface": ("names of torch.mps", "torch.zeros(2, device='mps').item()", "torch.device('mps')"),
    "memory": ("one tensor of each size", "fraction 3"),
    "streams": ("fill uniform float32", "call randperm"),
    "waits": ("item", "clone"),
    "pairs": ("pair add int32", "pair erf float16", "rows softmax float32"),
    "operators": (
        "forward nn.functional.silu float32",
        "forward svd float32",
        "forward rand_like float32",
        "forward new_empty float32",
        "gradient matmul float32",
        "errors cat",
    ),
    "fallbacks": ("fallback special.airy_ai float32",),
    "faults": ("MPS602", "MPS623", "MPS651"),
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
    """Many of each, with identities of their own."""
    assert set(_asked._MADE) == set(KINDS)
    for kind in KINDS:
        cases, note = cases_of(kind)
        assert len(cases) > 10
        assert note == ""


def test_another_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is off by more than its bound, in one operator of the database and in one pair."""
    before = asked("pairs", CASES["pairs"])
    (softmax,) = (case for case in CASES["pairs"] if "softmax" in case)
    from anymps.verify.cases import ROWS

    monkeypatch.setitem(ROWS, "softmax", (lambda x: x.softmax(-1) * 1.001, False))
    found = differences("pairs", before)
    assert {(one.case, one.what.partition(",")[0]) for one in found} == {(softmax, "values")}


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
    from anymps.verify.cases import WAITING, WaitingCall

    before = asked("waits", ("clone",))
    call = WAITING["clone"]
    monkeypatch.setitem(WAITING, "clone", WaitingCall(lambda x: x.clone().cpu(), call.waits, call.make))
    (found,) = differences("waits", before, cases=("clone",))
    assert (found.what, found.mac, found.ours) == ("waits for the device", "False", "True")


def test_another_name_or_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is missing, and an answer that is another."""
    before = asked("surface", ("names of torch.mps", "torch.mps.device_count()"))
    monkeypatch.delattr(torch.mps, "seed")
    monkeypatch.setattr(torch.mps, "device_count", lambda: 2)
    found = differences("surface", before, cases=("names of torch.mps", "torch.mps.device_count()"))
    assert [(one.what, one.mac, one.ours) for one in found] == [("names", "seed", "no others"), ("value", "1", "2")]
    assert _surface._EXPRESSIONS.count("\n") > 90


def test_another_counter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of one tensor more."""
    before = asked("memory", ("one tensor of each size",))
    plain = torch.mps.current_allocated_memory
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: plain() + 256)
    (found,) = differences("memory", before, cases=("one tensor of each size",))
    assert found.what == "bytes in tensors and in the driver"


def test_another_rule_is_found(hazards_put_back: None) -> None:
    """A fault that the rules no longer know, and one that they claim of this Mac too."""
    before = asked("faults", ("MPS602", "MPS651"))
    kept = tuple(one for one in known_hazards() if one.id not in ("MPS602", "MPS651"))
    enforce_hazards(kept)
    without = asked("faults", ("MPS602", "MPS651"))
    if RELEASE <= (2, 13):  # the releases that have both
        found = compare(before, without).differences
        assert [(one.case, one.mac, one.ours) for one in found] == [
            ("MPS602", "shows it", "does not report it"),
            ("MPS651", "shows it", "does not report it"),
        ]
    fault = next(one for one in all_hazards() if one.id == "MPS602")
    enforce_hazards((*kept, fault))
    (found_again,) = compare(without, asked("faults", ("MPS602",))).differences
    assert (found_again.case, found_again.mac, found_again.ours) == ("MPS602", "does not show it", "reports it")


def test_a_fault_takes_at_most_half_of_the_working_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs more is not asked, and says how much it needs."""
    gib = 1 << 30
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 34 * gib)
    call = FaultCall(lambda d: torch.ones(1, device=d), bytes_needed=17 * gib)
    assert _asked_fault("MPS653", call)["shows"] is False
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 34 * gib - 2)
    answer = _asked_fault("MPS653", call)
    assert (answer["does"], answer["text"]) == ("unasked", "needs 17 GiB, more than half of the working set")


def test_in_which_order_faults_are_asked() -> None:
    """In one process the small ones; then each in one of its own, those that end a process last of all."""
    cases, _ = cases_of("faults")
    alone = [case.alone for case in cases]
    assert alone == sorted(alone)
    dire = [any(row.is_dire for row in all_hazards() if row.id == case.id) for case in cases]
    assert all(alone for alone, ends in zip(alone, dire, strict=True) if ends)
    assert dire == sorted(dire)
    assert all(FAULT_CALLS[case.id].by_rule <= case.alone for case in cases)
    groups = [
        [case.id for case, key in zip(cases, zip(alone, dire, strict=True), strict=True) if key == one]
        for one in sorted(set(zip(alone, dire, strict=True)))
    ]
    assert all(group == sorted(group) for group in groups)
    assert {case.patience for case in cases} == {45.0}


def test_every_known_fault_has_a_call() -> None:
    """The list of calls is that of the rules."""
    assert set(FAULT_CALLS) == {one.id for one in all_hazards()}


@pytest.mark.parametrize("identity", [name for name, call in FAULT_CALLS.items() if not call.by_rule])
def test_the_call_of_a_fault_meets_it(identity: str, hazards_put_back: None) -> None:
    """With the rule in force, whatever the release, the virtual device tells of it at that call."""
    rows = tuple(one for one in all_hazards() if one.id == identity)
    if identity == "MPS604" and RELEASE != (2, 14):
        pytest.skip("other releases refuse the copy before it is one")
    if identity == "MPS660" and RELEASE < (2, 14):
        pytest.skip("other releases compute decompositions on the CPU alone, or not at all")
    if identity == "MPS691" and RELEASE >= (2, 13):
        pytest.skip("the fused kernels take the scale from torch 2.13 on, by another overload")
    assert all(row.check is not Check.THREADS for row in rows)
    enforce_hazards(rows)
    assert _recorded(identity, FAULT_CALLS[identity])["shows"] is True


@pytest.mark.parametrize("identity", [name for name, call in FAULT_CALLS.items() if not call.by_rule])
def test_the_call_of_a_fault_is_right_beside_the_cpu(identity: str, hazards_put_back: None) -> None:
    """As a Mac is asked: the virtual device, which computes it right, shows no fault but what it refuses."""
    enforce_hazards(())
    call = FAULT_CALLS[identity]
    refused = identity == "MPS643" or (identity == "MPS660" and RELEASE < (2, 14))
    assert _seen(call)["shows"] is (call.raises and refused)


def test_a_wrong_result_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number, another size, another run, an exception: each as a Mac would show it."""

    def wrong(device: str) -> torch.Tensor:
        return torch.tensor([1.0, 2.0 if device == "cpu" else 2.5], device=device)

    assert _seen(FaultCall(wrong)) == {"shows": True, "text": "1 of 2 wrong; 2.5 at [1], 2.0 on the CPU"}
    assert _seen(FaultCall(wrong, expected=lambda: torch.tensor([1.0, 2.5]))) == {"shows": False}
    assert _seen(FaultCall(wrong, expected=lambda: torch.ones(3))) == {
        "shows": True,
        "text": "sizes of the results differ from the CPU's",
    }
    assert _seen(FaultCall(lambda d: torch.rand(1, device=d), varies=True)) == {"shows": False}  # from one seed
    numbers = iter(range(100))
    assert _seen(FaultCall(lambda d: torch.tensor(next(numbers)), varies=True)) == {"shows": True}
    assert _seen(FaultCall(lambda d: torch.zeros(2, device=d).item(), raises=True)) == {
        "shows": True,
        "error": "RuntimeError",
        "text": "a Tensor with 2 elements cannot be converted to Scalar",
    }
    assert _seen(FaultCall(lambda d: torch.zeros(1, device=d), raises=True)) == {"shows": False}


def test_a_wait_is_timed_behind_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Mac is asked. What it finds here says nothing: there is no queue."""
    monkeypatch.setattr(_waits, "_SIDE", 16)
    monkeypatch.setattr(_waits, "_QUEUE", 0.001)
    _waits._work.cache_clear()
    answer = _waits._timed(WAITING["item"])
    assert set(answer) == {"waits", "seconds", "queue"}
    assert 0 < answer["seconds"] <= answer["queue"]
    _waits._work.cache_clear()


WITHOUT = """
import sys
from importlib.machinery import PathFinder

plain = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {blocked!r} else plain(name, path, target)

PathFinder.find_spec = find_spec
from anymps.device import enable
enable("M3 Pro 18GB", quiet=True)
from anymps.verify.cases import cases_of
for kind in ("operators", "pairs"):
    cases, note = cases_of(kind)
    print(len(cases) > 1000, note)
pairs, _ = cases_of("pairs")
print(pairs[0].ask()["samples"][0]["does"], "expecttest" in sys.modules)
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
    (found,) = differences("fallbacks", before, cases=(case,))
    assert (found.what, found.ours) == ("outcome", "computes")
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
def test_the_database_draws_the_same_samples_quickly() -> None:
    """As torch's own tests have them, and without a note of each seed; torch's tests find their own code again."""
    from torch.testing._internal import common_utils

    own = common_utils.set_rng_seed, common_utils.extract_test_fn
    info = _samples.database()[("nn.functional.layer_norm", "")]
    slow = [sample.input for sample in info.sample_inputs("cpu", torch.float32)]
    noted = len(torch.cuda._queued_calls)
    with drawing_quickly():
        quick = [sample.input for sample in info.sample_inputs("cpu", torch.float32)]
    assert len(torch.cuda._queued_calls) == noted
    assert len(quick) == len(slow) > 3
    assert all(torch.equal(one, other) for one, other in zip(quick, slow, strict=True))
    assert (common_utils.set_rng_seed, common_utils.extract_test_fn) == own
