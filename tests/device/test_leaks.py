"""Nothing leaks, nothing crashes at exit: counters and live blocks stand still, processes end with their own code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from device.compare import values
from device.counters import live
from processes import ENABLE, run_python

pytestmark = pytest.mark.usefixtures("mps_device")


def training() -> Callable[[], None]:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(36, 3),
    ).to("mps")
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = values(4, 1, 8, 8).to("mps"), torch.tensor([0, 1, 2, 0], device="mps")

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def views() -> None:
    x = torch.ones(10, 10, device="mps")
    kept = [x[i].view(2, 5).t().unbind(0) for i in range(10)]
    torch.stack([part for row in kept for part in row]).sum().item()


def moves() -> None:
    x = values(100).to("mps")
    x.cpu().to("mps", torch.float16).float().cpu()
    torch.as_tensor(x.tolist(), device="mps")


def refusals() -> None:
    x = torch.ones(3, device="mps")
    for call in (
        lambda: x + torch.ones(3),
        lambda: x.double(),
        lambda: x.mode(),
        lambda: x.view(2, 2),
        lambda: x @ x[:2],
    ):
        try:
            call()
        except (RuntimeError, TypeError, NotImplementedError):
            pass


def failed_backwards() -> None:
    x = torch.ones(3, device="mps", requires_grad=True)
    y = (x * 2).exp()
    y.register_hook(lambda gradient: gradient.mode())
    try:
        y.sum().backward()
    except (RuntimeError, NotImplementedError):
        pass


def dropped_graphs() -> None:
    x = torch.ones(3, device="mps", requires_grad=True)
    y = x
    for _ in range(10):
        y = y.sin() * x
    torch.autograd.grad(y.sum(), x, create_graph=True)


def in_place_and_out() -> None:
    x = torch.ones(4, device="mps")
    x.resize_(100).fill_(1)
    x.set_()
    out = torch.empty(0, device="mps")
    torch.add(torch.ones(5, device="mps"), 1, out=out)
    torch.sort(torch.ones(5, device="mps"), out=(out, torch.empty(0, dtype=torch.int64, device="mps")))


def sparse() -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2), check_invariants=True).to("mps")
    (x + x).coalesce().to_dense().sum().item()
    x.coalesce().values().sum().item()
    torch.sparse.mm(x, torch.ones(2, 2, device="mps"))


def several_results() -> None:
    x = values(6, 4).to("mps")
    x.sort()
    x.topk(2)
    torch.linalg.lu(x)
    x.max(0)
    torch.split(x, 2)
    torch.unique(x.int(), return_counts=True)
    torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])


def generators_and_events() -> None:
    torch.Generator("mps").manual_seed(3).get_state()
    torch.rand(3, generator=torch.Generator("mps"), device="mps")
    event = torch.mps.Event()
    event.record()
    torch.Event("mps").record()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
@pytest.mark.parametrize(
    "work",
    [
        views,
        moves,
        refusals,
        failed_backwards,
        dropped_graphs,
        in_place_and_out,
        sparse,
        several_results,
        generators_and_events,
    ],
    ids=lambda work: work.__name__,
)
def test_repeated_work_leaves_nothing_behind(work: Callable[[], None]) -> None:
    """After each round of work the counters stand where they stood."""
    work()
    before = live()
    for _ in range(20):
        work()
    assert before == live()


def test_training_steps_leave_nothing_behind() -> None:
    """A hundred training steps hold no more memory than the third, and nothing after model and optimizer are gone."""
    start = live()
    step = training()
    for _ in range(3):
        step()
    before = live()
    for _ in range(100):
        step()
    assert before == live()
    assert before > start
    del step
    assert live() == start


def test_an_exception_does_not_keep_tensors() -> None:
    """Tensors of frames that an exception has left are freed with it."""
    before = live()
    with pytest.raises(RuntimeError):
        x = torch.ones(1000, device="mps")
        (x + torch.ones(1000)).sum()
    del x
    assert before == live()


ENDINGS = {
    "live tensors, graph, model, event and generator": (
        """
x = torch.ones(10, device="mps", requires_grad=True)
y = (x * 2).exp().sum()
y.backward(retain_graph=True)
model = torch.nn.LSTM(3, 4, device="mps")
event, generator = torch.mps.Event(), torch.Generator("mps")
event.record()
""",
        0,
    ),
    "sys.exit with tensors in a cycle": (
        """
import sys
class Node: pass
a, b = Node(), Node()
a.other, b.other, a.x, b.x = b, a, torch.ones(3, device="mps"), torch.ones(3, device="mps")
sys.exit(7)
""",
        7,
    ),
    "an uncaught refusal": (
        """
x = torch.ones(3, device="mps", requires_grad=True)
(x * 2).sum().backward()
x + torch.ones(3)
""",
        1,
    ),
    "an uncaught error in backward": (
        """
x = torch.ones(3, device="mps", requires_grad=True)
y = x * 2
y.register_hook(lambda g: 1 / 0)
y.sum().backward()
""",
        1,
    ),
    "threads with tensors": (
        """
import threading
done = threading.Event()
def work(last):
    x = torch.ones(100, device="mps", requires_grad=True)
    y = (x * 2).exp()
    y.sum().backward(retain_graph=True)
    done.wait(None if last else 0.1)
threading.Thread(target=work, args=[True], daemon=True).start()
threading.Thread(target=work, args=[False]).start()
work(False)
""",
        0,
    ),
    "tensors freed by atexit and by module teardown": (
        """
import atexit, sys, types
module = types.ModuleType("late")
module.x = torch.ones(3, device="mps")
sys.modules["late"] = module
atexit.register(lambda: module.x.sum().item())
class Last:
    def __init__(self): self.x = torch.ones(3, device="mps")
    def __del__(self): self.x.add_(1)
torch.kept_to_the_end = Last()
""",
        0,
    ),
}


@pytest.mark.parametrize("name", list(ENDINGS))
def test_processes_end_with_their_own_code(name: str) -> None:
    """Whatever is alive when Python ends, the exit code is the script's and nothing is said of crashes."""
    code, status = ENDINGS[name]
    answer = run_python(ENABLE + code)
    assert status == answer.status, answer.err
    for word in ("Segmentation", "terminate called", "Fatal Python error", "Exception ignored"):
        assert word not in answer.err
