"""Indices on a card that the host knows to be good: no kernel looks at them, and whatever may change them ends that.

The CPU plays the card. A profile tells which kernels a call ran.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from processes import run_with_torch

START = """
import json, threading, torch, anymps
from torch.nn import functional as F
anymps.enable('M3 Pro 18GB', substrate='cuda', quiet=True)
D = 'mps'
table = torch.arange(12.0, device=D).view(6, 2)
scores = torch.zeros(3, 6, device=D)
LOOKS = {"aten::clamp", "aten::clamp_max", "aten::threshold", "aten::where", "aten::eq", "aten::sub", "aten::any"}
def looks(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    seen = [it for it in profile.key_averages() if it.key in LOOKS]
    return sorted(it.key.removeprefix("aten::") for it in seen for _ in range(it.count))
def error_at_wait():
    try:
        torch.mps.synchronize()
    except torch.AcceleratorError as error:
        return str(error).split(chr(10))[0]
"""


def lines(code: str) -> list[Any]:
    return [json.loads(line) for line in run_with_torch(START + code, env={"ANYMPS_CARD": "cpu"}).lines]


def test_what_the_host_has_sent_or_counted_is_not_looked_at() -> None:
    """Nor are views, copies and wider integers of it, forward or backward."""
    code = """
table.requires_grad_(), scores.requires_grad_()
ids = torch.tensor([[1, 5, 0], [2, 2, 4]]).to(D)
labels = torch.tensor([0, -100, 5]).to(D)
narrow = torch.tensor([3], dtype=torch.int32).to(D)
counted = torch.arange(6, device=D), torch.arange(5, -1, -1, device=D)
sent = ids, ids[:, 1:], ids[:, :-1].reshape(-1), ids.clone(), narrow, narrow.long(), torch.tensor([5, 3], device=D)
for given in (*counted, *sent):
    print(json.dumps(looks(lambda: F.embedding(given, table).sum().backward())))
print(json.dumps(looks(lambda: F.cross_entropy(scores, labels).backward())))
print(json.dumps(looks(lambda: table.detach().gather(0, ids[:, :2]))))
print(json.dumps([looks(lambda: table.detach()[ids]), error_at_wait()]))
"""
    assert lines(code) == [[]] * 11 + [[[], None]]


def test_others_are_looked_at_once_until_the_next_wait_and_known_after_it() -> None:
    code = """
table.requires_grad_()
ids = torch.tensor([1, 5, 0]).to(D) + 0
use = lambda: F.embedding(ids, table).sum().backward()
wider = torch.zeros(7, 2, device=D)
print(json.dumps([looks(use), looks(use)]))
print(json.dumps([error_at_wait(), looks(use), looks(lambda: F.embedding(ids, wider))]))
labels = torch.tensor([1, -100, 0]).to(D) + 0
use = lambda: F.cross_entropy(scores, labels)
print(json.dumps([looks(use), looks(use), looks(lambda: F.cross_entropy(scores[:, :3], labels))]))
print(json.dumps([error_at_wait(), looks(use), looks(lambda: F.cross_entropy(scores[:, :3], labels))]))
"""
    first = ["clamp_max", "sub", "threshold"]
    assert lines(code) == [[["clamp", "sub"], []], [None, [], []], [first, [], first], [None, [], []]]


CHANGES = {
    "an element": "ids[1] = 99",
    "all, by its data": "ids.data.fill_(99)",
    "what is detached": "ids.detach().add_(99)",
    "a view": "ids[1:].mul_(99)",
    "a view of another dtype": "ids.view(torch.int32)[2] = 99",
    "bytes": "ids.view(torch.uint8)[8] = 99",
    "a result": "torch.add(ids, 98, out=ids)",
    "a copy from the CPU": "ids.copy_(torch.tensor([0, 99, 0]))",
    "a part of it copied from the CPU": "ids[1:2].copy_(torch.tensor([99]))",
    "a copy": "ids.copy_(torch.tensor([0, 49, 0], device=D) * 2 + 1)",
    "a scatter": "ids.scatter_(0, torch.tensor([1], device=D), 99)",
    "an index": "ids.index_put_((torch.tensor([1], device=D),), torch.tensor(99, device=D))",
    "a mask": "ids.masked_fill_(ids == 1, 99)",
    "random numbers": "ids.random_(99, 100)",
    "a list": "torch._foreach_add_([ids, ids.clone()], 98)",
    "a piece of its storage": "ids.new_empty(0).set_(ids.untyped_storage()[8:16], 0, (1,), (1,)).fill_(99)",
    "its storage": "ids.untyped_storage().copy_(torch.tensor([0, 99, 0], device=D).untyped_storage())",
    "another storage": "ids.set_(torch.tensor([0, 98, 0], device=D) + 1)",
    "its data": "ids.data = torch.tensor([0, 98, 0], device=D) + 1",
    "its size": "ids.resize_(2000).add_(99)",
    "its memory": "del ids; ids = torch.tensor([0, 98, 0], device=D) + 1",
}


@pytest.fixture(scope="module")
def changed() -> dict[str, Any]:
    """What each change led to, by its name: all in one process."""
    code = """
print(json.dumps(found))
"""
    cases = "".join(
        f"""
ids = torch.tensor([0, 1, 0]).to(D)
before = F.embedding(ids, table).tolist()
{change}
made = F.embedding(ids[:3], table)
found[{name!r}] = [before, error_at_wait(), made[1].tolist()]
"""
        for name, change in CHANGES.items()
    )
    return dict(lines("found = {}\n" + cases + code)[0])


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_have_changed_is_looked_at_again(changed: dict[str, Any], name: str) -> None:
    """The kernel gets the nearest good index, and the next wait tells of the bad one."""
    before, error, row = changed[name]
    assert before == [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]
    assert error is not None
    assert "out of bounds" in error
    assert row == [10.0, 11.0]


def test_running_statistics_that_are_read_as_integers_are_looked_at() -> None:
    """Their operator does not say that it writes them."""
    code = """
mean, variance = torch.zeros(4, device=D), torch.ones(4, device=D)
ids = mean.view(torch.int64)
F.embedding(ids, table)
print(json.dumps([error_at_wait(), looks(lambda: F.embedding(ids, table))]))
F.batch_norm(torch.full((3, 4), 2.0, device=D), mean, variance, training=True)
F.embedding(ids, table)
print(json.dumps(error_at_wait()))
"""
    first, second = lines(code)
    assert first == [None, []]
    assert "out of bounds" in second


def test_labels_are_good_or_bad_by_what_is_left_out() -> None:
    code = """
labels = torch.tensor([0, -100, 5]).to(D)
for given in (labels, labels + 0):
    for ignored in (-100, 5, 6, -1):
        F.cross_entropy(scores, given, ignore_index=ignored)
        print(json.dumps(error_at_wait()))
for bad in ([0, -5, 1], [0, 6, 1], [-100, -101, 1]):
    for given in (torch.tensor(bad).to(D), torch.tensor(bad).to(D) + 0):
        loss = F.cross_entropy(scores, given)
        print(json.dumps([error_at_wait(), round(loss.item(), 4)]))
"""
    left, bad = None, "Target -100 is out of bounds."
    found = [[f"Target {label} is out of bounds.", 1.7918] for label in (-5, -5, 6, 6, -101, -101)]
    assert lines(code) == [*[left, bad, bad, bad] * 2, *found]


def test_what_stands_for_a_matrix_does_not_stand_for_its_transpose() -> None:
    code = """
ids = torch.tensor([[0, 1], [2, 3]]).to(D) + 0
made = [F.embedding(it, table)[..., 0] for it in (ids, ids.t(), ids.view(4)[:2])]
print(json.dumps([it.tolist() for it in made]))
"""
    assert lines(code) == [[[[0.0, 2.0], [4.0, 6.0]], [[0.0, 4.0], [2.0, 6.0]], [0.0, 2.0]]]


def test_each_call_with_a_bad_index_is_told_of() -> None:
    """Two calls that share a look have both been wrong: the recording has both lines."""
    code = """
ids = torch.tensor([0, 9]).to(D) + 0
with anymps.record() as capture:
    F.embedding(ids, table)
    F.embedding(ids, table)
    error_at_wait()
print(json.dumps([it.message.split(chr(10))[0][:40] for it in capture.recording.refusals()]))
"""
    told = lines(code)[0]
    assert len(told) == 2
    assert told[0] == told[1]


IN_A_KERNEL = """
during = []
def kernel(table, dim, index):
    while during:
        during.pop()()
    return table[index]
library = torch.library.Library("aten", "IMPL")
library.impl("index_select", kernel, "CPU")
"""
"""Calls of Python while a kernel that takes indices is queued: the CPU, which plays the card, has this one."""


def test_a_write_of_another_thread_waits_for_the_kernel_that_relies_on_what_it_ends() -> None:
    """Else the kernel would get the bad index."""
    code = f"""
{IN_A_KERNEL}
ids = torch.tensor([1, 0]).to(D)
about, order = threading.Event(), []
def write():
    about.set()
    ids.fill_(99)
    order.append("written")
writer = threading.Thread(target=write)
def meanwhile():
    writer.start()
    about.wait()
    writer.join(0.5)
    order.append("queued")
during.append(meanwhile)
row = table.index_select(0, ids)[0].tolist()
writer.join()
print(json.dumps([order, row]))
table.index_select(0, ids)
print(json.dumps(error_at_wait()))
"""
    first, second = lines(code)
    assert first == [["queued", "written"], [2.0, 3.0]]
    assert second.startswith("index 99 is out of bounds for dimension 0 with size 6")


def test_a_kernel_that_writes_itself_does_not_wait_for_its_own_end() -> None:
    code = f"""
{IN_A_KERNEL}
ids = torch.tensor([1, 0]).to(D)
during.append(lambda: ids.add_(1))
print(json.dumps(table.index_select(0, ids)[1].tolist()))
"""
    assert lines(code) == [[2.0, 3.0]]


def test_nothing_is_learned_while_another_thread_is_in_a_call() -> None:
    """That one may be about to write, and has not seen that anything is known."""
    code = f"""
{IN_A_KERNEL}
ids = torch.tensor([1, 0]).to(D)
found, sent = [], []
def send():
    sent.append(torch.tensor([3, 2]).to(D))
    use = lambda: F.embedding(sent[0], table)
    found.extend([looks(use), looks(use), error_at_wait(), looks(use)])
def meanwhile():
    other = threading.Thread(target=send)
    other.start()
    other.join()
during.append(meanwhile)
table.index_select(0, ids)
print(json.dumps(found))
use = lambda: F.embedding(sent[0], table)
print(json.dumps([looks(use), looks(use), error_at_wait(), looks(use)]))
"""
    checked = ["clamp", "sub"]
    assert lines(code) == [[checked, checked, None, checked], [checked, [], None, []]]
