"""Calls as the mode of PyTorch's own kernels describes them, without the kernels: which are launched, and how."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from anymps.kernels.launches import BY_VALUES, DESCRIBED, KernelCall, Launch, Work

_READ_VALUES: Final = frozenset(
    {*("item", "tolist", "numpy", "equal", "__bool__", "__int__", "__float__", "__index__", "__complex__")}
)


class EveryKernel:
    """A release that has every kernel."""

    def __contains__(self, name: object) -> bool:
        return True


class _Reads(TorchFunctionMode):
    """Notes which functions read values of these tensors, or of views of them."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.found: list[str] = []
        self._memory = {one.untyped_storage().data_ptr() for one in given.values() if isinstance(one, torch.Tensor)}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in _READ_VALUES and args[0].untyped_storage().data_ptr() in self._memory - {0}:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def find(
    operator: str,
    written: tuple[torch.Tensor, ...] = (),
    release: tuple[int, int] = (2, 13),
    foreign: Iterable[str] = (),
    kernels: Container[str] | None = None,
    **given: Any,
) -> Work | None:
    """The work of a call that writes into some of its tensors, in a release with these kernels, or with every one.

    What may be kept for later calls, or declined for all, must not depend on the values of tensors.
    """
    with _Reads(given) as reads:
        there = kernels or EveryKernel()
        call = KernelCall(given, written, frozenset(foreign), there, release)
        work = DESCRIBED[operator](call)
    if operator not in BY_VALUES:
        assert not reads.found, f"{operator} is decided by values: {reads.found}"
    return work


def describe(operator: str, *written: Any, **given: Any) -> Work:
    """The work of a call that is described."""
    work = find(operator, *written, **given)
    assert work is not None
    return work


def declines(operator: str, *written: Any, **given: Any) -> bool:
    """Whether a call is left to the CPU."""
    return find(operator, *written, **given) is None


def launch_of(work: Work) -> Launch:
    """Its only launch."""
    (launch,) = work.launches
    return launch


def launched(operator: str, **given: Any) -> tuple[torch.Tensor, Launch]:
    """The first result and the only launch of a call that is described."""
    work = describe(operator, **given)
    return work.results[0], launch_of(work)
