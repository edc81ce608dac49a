"""On which thread a backward runs: one of the engine's own, as on a Mac, wherever code or an observer could tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import anymps
from anymps.record import Phase, Recording
from device.compare import assert_same, values

pytestmark = pytest.mark.usefixtures("mps_device")

Seen = list[int]


def leaf(*shape: int) -> torch.Tensor:
    """A leaf on mps that requires gradients."""
    return values(*shape).to("mps").requires_grad_()


def here() -> int:
    """The calling thread."""
    return threading.get_ident()


def own_function(seen: Seen) -> torch.Tensor:
    """A loss with a backward of the user's."""

    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(here())
            return grad * 2

    return Double.apply(leaf(3)).sum()


def hook_on_a_result(seen: Seen) -> torch.Tensor:
    y = leaf(3).exp()
    y.register_hook(lambda grad: seen.append(here()))
    return y.sum()


def hook_on_a_leaf(seen: Seen) -> torch.Tensor:
    x = leaf(3)
    x.register_hook(lambda grad: seen.append(here()))
    return x.exp().sum()


def hook_after_accumulation(seen: Seen) -> torch.Tensor:
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda parameter: seen.append(here()))
    return x.exp().sum()


def hook_before_a_node(seen: Seen) -> torch.Tensor:
    y = leaf(3).exp()
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda grads: seen.append(here()))
    return y.sum()


def hook_behind_a_node(seen: Seen) -> torch.Tensor:
    y = leaf(3).exp()
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(here()))
    return y.sum()


def hook_of_a_module(seen: Seen) -> torch.Tensor:
    module = nn.Linear(3, 3).to("mps")
    module.register_full_backward_hook(lambda *_: seen.append(here()))
    return module(leaf(2, 3)).sum()


def hooks_of_saved_tensors(seen: Seen) -> torch.Tensor:
    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(here())
        return tensor

    x = leaf(3)
    with saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = x.exp()
    return y.sum()


def recomputed(seen: Seen) -> torch.Tensor:
    """A checkpoint, whose forward is run again in the backward."""

    def block(x: torch.Tensor) -> torch.Tensor:
        seen.append(here())
        return x.exp() * x

    result = checkpoint(block, leaf(3), use_reentrant=False).sum()
    seen.clear()
    return result


CODE = [
    own_function, hook_on_a_result, hook_on_a_leaf, hook_after_accumulation, hook_before_a_node, hook_behind_a_node,
    hook_of_a_module, hooks_of_saved_tensors, recomputed,
]  # fmt: skip


@pytest.mark.parametrize("loss_of", CODE, ids=lambda function: function.__name__)
def test_code_in_a_graph_runs_on_the_thread_of_the_engine(loss_of: Callable[[Seen], torch.Tensor]) -> None:
    """What is the user's code in a backward sees another thread than the one that called it, as on a Mac."""
    seen: Seen = []
    loss_of(seen).backward()
    assert len(seen) == 1
    assert seen[0] != here()


def test_a_mode_sees_the_thread_of_the_engine() -> None:
    """While a dispatch mode looks at operators, a backward has a thread of its own."""
    loss, seen = leaf(3).exp().sum(), set[int]()

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(here())
            return func(*args, **(kwargs or {}))

    with Look():
        loss.backward()
    assert seen - {here()}


def threads_of(path: Path, work: Callable[[], object]) -> tuple[set[int], set[int]]:
    """The threads of forward and of backward operators, by their numbers in a recording."""
    with anymps.record(path):
        work()
    found: tuple[set[int], set[int]] = (set(), set())
    with Recording.open(path) as recording:
        for call in recording.calls():
            found[call.phase == Phase.BACKWARD].add(call.thread)
    return found


@pytest.mark.usefixtures("virtual_device")
def test_a_backward_of_operators_alone_runs_on_the_calling_thread(tmp_path: Path) -> None:
    """Where nothing can tell, no other thread is waited for; also after a checkpoint, whose graph is another one."""
    recomputed([]).backward()
    x = leaf(4)

    def work() -> None:
        (x.exp() * 2).sum().backward()

    forward, backward = threads_of(tmp_path / "r.anymps", work)
    assert len(forward) == 1
    assert backward == forward


def test_gradients_of_two_graphs_at_once_are_those_of_each(tmp_path: Path) -> None:
    """One output with a hook is enough for all of them to go to the engine's thread."""
    x, y, seen = leaf(4), leaf(4), list[int]()
    y.register_hook(lambda grad: seen.append(here()))

    def work() -> None:
        torch.autograd.backward([x.exp().sum(), (y * 3).sum()])

    forward, backward = threads_of(tmp_path / "r.anymps", work)
    assert backward.isdisjoint(forward)
    assert seen != [here()]
    assert_same(x.grad, x.detach().cpu().exp())
    assert_same(y.grad, torch.full((4,), 3.0))


# Up to torch 2.12 the first profile of a process warns, also where it has one cycle.
@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle:UserWarning")
def test_a_profile_shows_the_thread_of_the_engine() -> None:
    """torch.profiler names the thread of each operator: those of a backward have another one, as on a Mac."""
    loss = leaf(4).exp().sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        leaf(4).exp()
        loss.backward()
    events = profile.events()
    assert events is not None
    forward = {event.thread for event in events if event.name == "aten::exp"}
    backward = {event.thread for event in events if event.name == "ExpBackward0"}
    assert len(forward) == len(backward) == 1
    assert forward != backward


def test_the_setting_of_the_thread_stays_as_it_was() -> None:
    """`is_multithreading_enabled` is the user's: after a backward, after one that fails, and where it is off."""
    leaf(3).exp().sum().backward()
    assert torch.autograd.is_multithreading_enabled()
    x = leaf(3)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    assert torch.autograd.is_multithreading_enabled()
    with torch.autograd.set_multithreading_enabled(False):
        leaf(3).exp().sum().backward()
        assert not torch.autograd.is_multithreading_enabled()


def test_a_backward_within_a_backward() -> None:
    """A hook that computes gradients of another graph gets them, and the outer backward its own."""
    x, inner = leaf(3), leaf(3)
    y = x.exp()

    @torch.enable_grad()
    def more(grad: torch.Tensor) -> torch.Tensor:
        return grad + torch.autograd.grad((inner * 5).sum(), inner)[0]

    y.register_hook(more)
    y.sum().backward()
    assert_same(x.grad, x.detach().cpu().exp() * 6)


def test_gradients_inside_a_module_belong_to_their_forward_lines(tmp_path: Path) -> None:
    """A module that takes a gradient in its forward: what the backward runs is no operator of that module's call."""

    class Penalty(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            (slope,) = torch.autograd.grad(y, x)
            return slope.square().sum()

    penalty, x = Penalty(), leaf(4)
    with anymps.record(tmp_path / "r.anymps"):
        y = x.exp().sum()
        penalty(x, y)
    with Recording.open(tmp_path / "r.anymps") as recording:
        calls = [call for call in recording.calls() if call.phase == Phase.BACKWARD]
        names = [recording.signature(call.signature).operator for call in calls]
        modules = {recording.module(call.module) for call in calls}
        lines = {recording.site(call.site).source for call in calls if call.site}
    assert "aten::mul.Tensor" in names
    assert modules == {""}
    assert lines == {"y = x.exp().sum()"}
