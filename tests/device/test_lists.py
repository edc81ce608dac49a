"""`_foreach_*` on a card: books, entries and bits of one operator for each tensor, arithmetic by one kernel for all.

The CPU plays the card, so that this is seen anywhere; `tests/gpu` compares the bits of CUDA's kernels.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from processes import run_with_torch

START = """\
import json, torch, anymps
anymps.enable('M3 Pro 18GB', substrate='cuda', quiet=True)
from anymps.device._enable import native
D, core = 'mps', native()
def tensors(count=4, scale=1.0):
    return [(torch.arange(6.0).view(2, 3) + i).mul_(scale).to(D) for i in range(count)]
def both(make, call):
    '''Of lists in one and one by one: how many there were, and what the call left or gave.'''
    found = []
    for in_one in (True, False):
        core.compute_lists(in_one)
        lists, before = make(), core.lists_computed()
        try:
            given = call(*lists)
        except RuntimeError as error:
            given = str(error).split(chr(10))[0]
        core.compute_lists(True)
        given = [it.tolist() for it in given] if isinstance(given, (list, tuple)) else given
        left = [[(it._version, it.tolist()) for it in one] for one in lists]
        found.append([core.lists_computed() - before, given, left])
    return found
def entries(make, call):
    '''What a recording holds of the call, of lists in one and one by one.'''
    found = []
    for in_one in (True, False):
        core.compute_lists(in_one)
        lists = make()
        with anymps.record() as capture:
            call(*lists)
        core.compute_lists(True)
        signatures = (capture.recording.signature(it.signature) for it in capture.recording.calls())
        found.append([[it.operator, it.fate.name, it.inputs, it.outputs] for it in signatures])
    return found
"""


CALLS = {
    "add a number": "torch._foreach_add_(lists[0], 0.3)",
    "add numbers": "torch._foreach_add_(lists[0], [0.1, 0.2, 0.3, 0.4])",
    "add a list": "torch._foreach_add_(lists[0], lists[1], alpha=-0.7)",
    "mul by a number": "torch._foreach_mul_(lists[0], 0.3)",
    "mul by numbers": "torch._foreach_mul_(lists[0], [0.1, 0.2, 0.3, 0.4])",
    "mul by a list": "torch._foreach_mul_(lists[0], lists[1])",
    "div by a number": "torch._foreach_div_(lists[0], 0.3)",
    "div by numbers": "torch._foreach_div_(lists[0], [0.1, 0.2, 0.3, 0.4])",
    "div by a list": "torch._foreach_div_(lists[0], lists[1])",
    "lerp": "torch._foreach_lerp_(lists[0], lists[1], 0.3)",
    "addcmul": "torch._foreach_addcmul_(lists[0], lists[1], lists[1], 0.3)",
    "addcdiv": "torch._foreach_addcdiv_(lists[0], lists[1], lists[0], [0.1, 0.2, 0.3, 0.4])",
    "sqrt": "torch._foreach_sqrt(lists[0])",
}


UNFIT = {
    "one tensor": ("(tensors(1),)", "torch._foreach_mul_(lists[0], 0.3)"),
    "a tensor twice": ("([*tensors(1) * 2],)", "torch._foreach_mul_(lists[0], 0.3)"),
    "views that overlap": (
        "((lambda x: [x[0:2], x[1:3]])(torch.ones(3, 2, device=D)),)",
        "torch._foreach_add_(lists[0], 1.0)",
    ),
    "what another call writes": (
        "(lambda one: (one, one[::-1]))(tensors(2))",
        "torch._foreach_add_(lists[0], lists[1])",
    ),
    "half precision": ("([it.half() for it in tensors()],)", "torch._foreach_mul_(lists[0], 0.3)"),
    "integers": ("([it.int() for it in tensors()],)", "torch._foreach_add_(lists[0], 3)"),
    "rows of a matrix": ("([it[:, :2] for it in tensors()],)", "torch._foreach_mul_(lists[0], 0.3)"),
    "a broadcast": ("(tensors(2), [it[0] for it in tensors(2)])", "torch._foreach_mul_(lists[0], lists[1])"),
    "an empty one": ("([*tensors(2), torch.empty(0, device=D)],)", "torch._foreach_mul_(lists[0], 0.3)"),
    "a complex number": ("(tensors(),)", "torch._foreach_mul_(lists[0], 1j)"),
    "a number too large": ("(tensors(),)", "torch._foreach_mul_(lists[0], 1e300)"),
    "other lengths": ("(tensors(3), tensors(2))", "torch._foreach_add_(lists[0], lists[1])"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What `both` found of each case, by its name; all in one process."""
    cases = {name: ("(tensors(), tensors(scale=0.25))", call) for name, call in CALLS.items()} | UNFIT
    rows = ", ".join(f"{name!r}: both(lambda: {make}, lambda *lists: {call})" for name, (make, call) in cases.items())
    ended = run_with_torch(f"{START}print(json.dumps({{{rows}}}))\n", env={"ANYMPS_CARD": "cpu"})
    return dict(json.loads(ended.lines[-1]))


@pytest.mark.parametrize("name", CALLS)
def test_one_kernel_gives_the_bits_of_the_single_calls(found: dict[str, Any], name: str) -> None:
    """The list's kernel computes once, and every number is the same; so are the versions that autograd looks for."""
    in_one, by_call = found[name]
    assert (in_one[0], by_call[0]) == (1, 0)
    assert in_one[1:] == by_call[1:]
    first = in_one[1] or [numbers for _, numbers in in_one[2][0]]
    assert first != [[[0.0 + i, 1.0 + i, 2.0 + i], [3.0 + i, 4.0 + i, 5.0 + i]] for i in range(4)]  # it was computed


@pytest.mark.parametrize("name", UNFIT)
def test_other_lists_are_computed_one_by_one(found: dict[str, Any], name: str) -> None:
    """Where a kernel for all might give other numbers; errors are those of the single calls."""
    in_one, by_call = found[name]
    assert in_one[0] == by_call[0] == 0
    assert json.dumps(in_one) == json.dumps(by_call)


def test_each_call_of_a_list_has_its_entry() -> None:
    """The operator, its inputs in their order and its outputs, as those of single calls have them."""
    make = "(tensors(), tensors(scale=0.25))"
    rows = ", ".join(f"{name!r}: entries(lambda: {make}, lambda *lists: {call})" for name, call in CALLS.items())
    ended = run_with_torch(f"{START}print(json.dumps({{{rows}}}))\n", env={"ANYMPS_CARD": "cpu"})
    for name, (in_one, by_call) in json.loads(ended.lines[-1]).items():
        assert (name, in_one) == (name, by_call)
        assert len(in_one) == 4


def test_a_recording_holds_the_single_calls() -> None:
    """An optimizer's step with `foreach=True`: entries, waits, memory and weights, as without the list's kernels."""
    code = f"""\
{START}
def steps(in_one):
    core.compute_lists(in_one)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3)).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True, weight_decay=0.1)
    x = torch.randn(4, 7).to(D)
    before = core.lists_computed()
    with anymps.record() as capture:
        for _ in range(3):
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    recording = capture.recording
    signatures = [recording.signature(call.signature) for call in recording.calls()]
    entries = [[it.operator, it.fate.name, it.inputs, it.outputs] for it in signatures]
    return core.lists_computed() - before, [it.tolist() for it in model.parameters()], entries
in_one, by_call = steps(True), steps(False)
print(json.dumps([in_one, by_call]))
"""
    in_one, by_call = json.loads(run_with_torch(code, env={"ANYMPS_CARD": "cpu"}).lines[-1])
    assert (in_one[0], by_call[0]) == (3 * 8, 0)
    assert in_one[1:] == by_call[1:]
    assert [entry[0] for entry in in_one[2]].count("aten::addcdiv_") == 3 * 4


def test_a_recording_that_follows_a_copy_to_the_cpu_leaves_lists_in_one() -> None:
    """What is looked for is copied back to the device, which no call on a list does."""
    code = f"""\
{START}
before = core.lists_computed()
with anymps.record():
    for _ in range(3):
        torch.ones(2, device=D).cpu()
        torch._foreach_mul_(tensors(), 0.5)
print(core.lists_computed() - before)
"""
    assert run_with_torch(code, env={"ANYMPS_CARD": "cpu"}).lines[-1] == "3"


def test_a_list_whose_results_find_no_room_ends_as_one_by_one() -> None:
    """The Mac's limit is met at the third result, with the words and the memory of the single calls."""
    code = f"""\
{START}
def roots(in_one):
    core.compute_lists(in_one)
    torch.mps.empty_cache()
    try:
        torch._foreach_sqrt(large)
    except RuntimeError as error:
        return str(error).split(chr(10))[0], torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
large = [torch.ones(8 << 20, device=D) for _ in range(4)]
torch.mps.set_per_process_memory_fraction(208e6 / torch.mps.recommended_max_memory())
print(json.dumps([roots(True), roots(False)]))
"""
    in_one, by_call = json.loads(run_with_torch(code, env={"ANYMPS_CARD": "cpu"}).lines[-1])
    assert in_one == by_call
    assert in_one[0].startswith("MPS backend out of memory")


def test_watched_calls_are_computed_one_by_one() -> None:
    """Who observes operators, as a profiler does, finds each one's result when it ends."""
    code = f"""\
{START}
before = core.lists_computed()
with torch.profiler.profile():
    torch._foreach_mul_(tensors(), 0.5)
print(core.lists_computed() - before)
"""
    assert run_with_torch(code, env={"ANYMPS_CARD": "cpu"}).lines[-1] == "0"


def test_the_host_has_no_kernels_for_lists() -> None:
    """There a call for each tensor is as fast."""
    code = f"""\
{START.replace("'cuda'", "'host'")}
torch._foreach_mul_(tensors(), 0.5)
print(core.lists_computed(), torch._C._dispatch_has_kernel_for_dispatch_key("aten::_foreach_mul_.Scalar", "MPS"))
"""
    assert run_with_torch(code).lines == ["0 False"]
