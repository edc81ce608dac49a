"""Several threads use the device: results, gradients, modes and memory are those of one thread. And its own threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from device.compare import assert_same, values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")  # hardware may crash with two threads (pytorch issue 197805)

THREADS = 4


def all_at_once(work: Callable[[int], object]) -> list[object]:
    """What `work(number)` gives in threads that start together."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_one_graph_is_walked_by_many_threads() -> None:
    """Backwards of several threads into one leaf add up."""
    x = values(50).to("mps").requires_grad_()
    all_at_once(lambda number: (x * (number + 1)).sum().backward())
    assert_same(x.grad, torch.full((50,), float(sum(range(1, THREADS + 1)))))


def test_modes_belong_to_their_thread() -> None:
    """no_grad, autocast and the default device of one thread do not reach another."""
    inside, done = threading.Event(), threading.Event()
    seen: list[tuple[bool, torch.dtype, str]] = []

    def other() -> None:
        inside.wait()
        x = torch.ones(2, 2, device="mps", requires_grad=True)
        y = x @ x
        seen.append((y.requires_grad, y.dtype, torch.zeros(1).device.type))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with torch.no_grad(), torch.autocast("mps"), torch.device("mps"):
        inside.set()
        done.wait()
    thread.join()
    assert [(True, torch.float32, "cpu")] == seen


@pytest.mark.usefixtures("still_memory")
def test_memory_comes_back_from_every_thread() -> None:
    """Tensors made in one thread may be dropped in another; nothing stays behind."""
    before = torch.mps.current_allocated_memory()
    made: list[torch.Tensor] = []
    all_at_once(lambda number: made.extend(torch.ones(100 + number, device="mps") for _ in range(50)))
    assert torch.mps.current_allocated_memory() > before

    def drop(_: int) -> None:
        for _ in range(50):
            made.pop()

    all_at_once(drop)
    assert [] == made
    assert before == torch.mps.current_allocated_memory()


def test_errors_stay_in_their_thread() -> None:
    """A refusal in one thread is raised there and leaves the others alone."""

    def work(number: int) -> str:
        try:
            for _ in range(50):
                x = torch.ones(4, device="mps")
                if number % 2:
                    x + torch.ones(4)
        except RuntimeError as error:
            return str(error)
        return f"{x.sum().item()}"

    refused = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
    assert ["4.0", refused, "4.0", refused] == all_at_once(work)


def test_synchronize_and_empty_cache_beside_work() -> None:
    """synchronize, empty_cache and the counters may be called while others compute."""

    def work(number: int) -> float:
        x = torch.ones(100, device="mps")
        for _ in range(50):
            if number == 0:
                torch.mps.empty_cache()
                torch.mps.synchronize()
                torch.mps.current_allocated_memory()
            else:
                x = x * 1.0
        return x.sum().item()

    assert [100.0] * THREADS == all_at_once(work)


def test_the_device_is_switched_on_by_one_of_many_threads() -> None:
    """enable from several threads at once gives one device."""
    lines = run_with_torch(
        ENABLE.replace("anymps.enable", "enable = lambda number: anymps.enable")
        + """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    states = list(pool.map(enable, range(4)))
    sums = list(pool.map(lambda n: torch.ones(n, device="mps").sum().item(), range(4)))
print(len(set(map(id, states))), sums)
"""
    ).lines
    assert lines == ["1 [0.0, 1.0, 2.0, 3.0]"]


SEEN_THREADS = """
import json
library = torch.library.Library("aten", "IMPL")
seen = []
def one(x):
    seen.append(torch.get_num_threads())
    return x.clone()
def two(x, y):
    seen.append(torch.get_num_threads())
    return torch.add(x, y)
library.impl("relu", one, "CPU")
library.impl("erf", one, "CPU")
library.impl("maximum", two, "CPU")
def number(call):
    seen.clear()
    call()
    return [*seen, torch.get_num_threads()]
torch.set_num_threads(3)
small, large = torch.ones(2, 16384, device="mps"), torch.ones(3, 16384, device="mps")
row, column = torch.ones(1, 256, device="mps"), torch.ones(256, 1, device="mps")
print(json.dumps({
    "typed": number(lambda: torch.relu(small)), "boxed": number(lambda: torch.erf(small)),
    "large, typed": number(lambda: torch.relu(large)), "large, boxed": number(lambda: torch.erf(large)),
    "pair": number(lambda: torch.maximum(row, row)), "large together": number(lambda: torch.maximum(small, small)),
    "broadcast": number(lambda: torch.maximum(row, column)), "host": number(lambda: torch.relu(torch.ones(1))),
}))
"""


def test_small_calls_run_on_the_calling_thread_alone() -> None:
    """Up to 32,768 elements, of all tensors and of what they broadcast to; the caller keeps its threads."""
    found = json.loads(run_with_torch(ENABLE + SEEN_THREADS).lines[-1])
    assert found == {
        "typed": [1, 3],
        "boxed": [1, 3],
        "large, typed": [3, 3],
        "large, boxed": [3, 3],
        "pair": [1, 3],
        "large together": [3, 3],
        "broadcast": [3, 3],
        "host": [3, 3],
    }


SEEN_IN_PRODUCTS = """
import json
library = torch.library.Library("aten", "IMPL")
seen = []
def stands_in(result):
    def kernel(*inputs):
        seen.append(torch.get_num_threads())
        return result(*inputs)
    return kernel
library.impl("linear", stands_in(lambda x, w, b=None: x.new_zeros(*x.shape[:-1], w.shape[0])), "CPU")
library.impl("mm", stands_in(lambda a, b: a.new_zeros(a.shape[0], b.shape[1])), "CPU")
library.impl("addmm", stands_in(lambda c, a, b: a.new_zeros(a.shape[0], b.shape[1])), "CPU")
library.impl("bmm", stands_in(lambda a, b: a.new_zeros(*a.shape[:2], b.shape[2])), "CPU")
library.impl("baddbmm", stands_in(lambda c, a, b: a.new_zeros(*a.shape[:2], b.shape[2])), "CPU")
library.impl("convolution", stands_in(lambda x, w, *rest: x.new_zeros(x.shape[0], w.shape[0], *x.shape[2:])), "CPU")
library.impl("native_batch_norm", stands_in(lambda x, w, *rest: (x.clone(), w.clone(), w.clone())), "CPU")
def ones(*shape):
    return torch.ones(*shape, device="mps")
def number(call):
    seen.clear()
    call()
    return seen[0]
torch.set_num_threads(3)
F = torch.nn.functional
print(json.dumps({
    "linear, a row": number(lambda: F.linear(ones(1, 1, 128), ones(384, 128), ones(384))),
    "linear, a large result": number(lambda: F.linear(ones(2048, 1), ones(2048, 1), ones(2048))),
    "mm, 2 million": number(lambda: ones(128, 128) @ ones(128, 128)),
    "mm, more": number(lambda: ones(126, 128) @ ones(128, 131)),
    "mm, many elements": number(lambda: ones(8, 256) @ ones(256, 256)),
    "mm, many elements, more": number(lambda: ones(9, 256) @ ones(256, 256)),
    "mm, too many": number(lambda: ones(1, 256) @ ones(256, 512)),
    "addmm": number(lambda: torch.addmm(ones(384), ones(2, 128), ones(128, 384))),
    "bmm": number(lambda: torch.bmm(ones(64, 16, 32), ones(64, 32, 16))),
    "bmm, more": number(lambda: torch.bmm(ones(64, 16, 33), ones(64, 33, 16))),
    "baddbmm": number(lambda: torch.baddbmm(ones(512), ones(2, 8, 64), ones(2, 64, 512))),
    "convolution": number(lambda: F.conv2d(ones(2, 64, 8, 8), ones(64, 64, 1, 1), ones(64))),
    "convolution, 4 million": number(lambda: F.conv2d(ones(1, 16, 32, 32), ones(256, 16, 1, 1), ones(256))),
    "convolution, more": number(lambda: F.conv2d(ones(1, 16, 32, 32), ones(257, 16, 1, 1), ones(257))),
    "batch norm": number(lambda: F.batch_norm(ones(8, 64, 8, 8)[:7], None, None, ones(64), ones(64), True)),
    "batch norm, large": number(lambda: F.batch_norm(ones(8, 64, 8, 8), None, None, ones(64), ones(64), True)),
}))
"""


def test_products_and_norms_are_small_by_what_they_do() -> None:
    """By multiplications, and products up to 131,072 elements; a bias or a weight of a norm counts for itself alone."""
    found = json.loads(run_with_torch(ENABLE + SEEN_IN_PRODUCTS).lines[-1])
    assert found == {
        "linear, a row": 1,
        "linear, a large result": 3,
        "mm, 2 million": 1,
        "mm, more": 3,
        "mm, many elements": 1,
        "mm, many elements, more": 3,
        "mm, too many": 3,
        "addmm": 1,
        "bmm": 1,
        "bmm, more": 3,
        "baddbmm": 1,
        "convolution": 1,
        "convolution, 4 million": 1,
        "convolution, more": 3,
        "batch norm": 1,
        "batch norm, large": 3,
    }
