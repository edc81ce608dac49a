"""One process in place of a group (`--alone`), so that the rest of a script for many GPUs can be checked.

The group is gloo's with one rank, so samplers, barriers and objects go their way. No Mac sends tensors on mps between
processes: gloo knows the CPU and CUDA (torch/distributed/distributed_c10d.py, Backend.backend_capability, torch 2.7 to
2.15). With one rank there is nothing to send, and each line that would send is reported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import nn

from anymps.device.cuda._refused import USE_GLOO
from anymps.device.cuda._uses import report_use

_ONE: Final = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
_ADDRESS: Final = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
_SENT: Final = "give it a CPU tensor, or leave it out if there is only one process"
_WRAPPED: Final = "use the model itself: a Mac has one GPU"

_installed = False


def run_alone() -> None:
    """Let this process be the only one of each group that the program makes. Nothing is undone."""
    global _installed
    if _installed or not torch.distributed.is_available():
        return
    _installed = True
    os.environ.update(_ONE)
    for name, value in _ADDRESS.items():
        os.environ.setdefault(name, value)
    core: Any = importlib.import_module("torch.distributed.distributed_c10d")
    stand_ins = {name: _collective(getattr(core, name), name, words) for name, words in _COLLECTIVES.items()}
    stand_ins["init_process_group"] = _init(torch.distributed.init_process_group)
    stand_ins["new_group"] = _new_group(core.new_group)
    for name, stand_in in stand_ins.items():
        setattr(core, name, stand_in)
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, stand_in)
    for module in ("torch.nn.parallel", "torch.nn.parallel.distributed"):
        vars(importlib.import_module(module))["DistributedDataParallel"] = DistributedDataParallel


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._C._distributed_c10d import HashStore  # some builds lack this

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(backend, str) and "nccl" in backend.lower():
            name = f'torch.distributed.init_process_group("{backend}")'
            report_use(f"{name} has no counterpart on a Mac; {USE_GLOO}", passed=True)
        return original("gloo", store=HashStore(), rank=0, world_size=1)

    return init_process_group


def _new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_group(ranks: Any = None, *_: Any, **__: Any) -> Any:
        return original([0], backend="gloo")

    return new_group


def _arrive(target: Any, source: Any) -> None:
    """Of one rank, what is sent is what arrives."""
    for one, other in zip(_tensors(target)[:1], _tensors(source)[:1], strict=False):
        with torch.no_grad():
            one.copy_(other.reshape(one.shape))


def _tensors(given: Any) -> Sequence[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    return [tensor for tensor in given or () if isinstance(tensor, torch.Tensor)]


# By name, the parameters that hold tensors: where it arrives, then what is sent. With one only the sum over one rank is
# the tensor itself.
_COLLECTIVES: Final[dict[str, tuple[str, ...]]] = {
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor"),
    "all_reduce": ("tensor",),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "all_to_all_single": ("output", "input"),
    "broadcast": ("tensor",),
    "gather": ("tensor", "gather_list"),  # the other way round
    "reduce": ("tensor",),
    "reduce_scatter": ("output", "input_list"),
    "reduce_scatter_tensor": ("output", "input"),
    "scatter": ("tensor", "scatter_list"),
}


class _Done:
    """The work of a collective with `async_op=True`: there was nothing to wait for."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


def _collective(original: Callable[..., Any], name: str, parameters: Sequence[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def alone(*args: Any, **kwargs: Any) -> Any:
        given = [*args[: len(parameters)], *(kwargs.get(word) for word in parameters[len(args) :])]
        if not any(tensor.is_mps for value in given for tensor in _tensors(value)):
            return original(*args, **kwargs)
        report_use(f"torch.distributed.{name} of a tensor on mps has no counterpart on a Mac; {_SENT}", passed=True)
        if len(given) == 2:
            _arrive(*(reversed(given) if name == "gather" else given))
        return _Done() if kwargs.get("async_op") else None

    return alone


class DistributedDataParallel(nn.Module):
    """A model in the place of its copies in many processes: it is called as it is, under the same names."""

    def __init__(self, module: nn.Module, *_: Any, **__: Any) -> None:
        super().__init__()
        if any(tensor.is_mps for tensor in module.parameters()):
            name = "torch.nn.parallel.DistributedDataParallel"
            report_use(f"{name} of a model on mps has no counterpart on a Mac; {_WRAPPED}", passed=True)
        self.module = module
        self.require_backward_grad_sync = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """There is nothing to put off."""
        yield

    @contextlib.contextmanager
    def join(self, *_: Any, **__: Any) -> Iterator[None]:
        """There is nobody to wait for."""
        yield

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Gradients are sent nowhere."""
