"""A call of an operator as a launch is described from it, and what a description gives."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

READ = ((2, 13), (2, 15))
"""Releases whose kernels were run as a file describes and compared with the CPU, but where it names another."""


How = Literal["room", "zeros", "number", "value", "float"]


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Room in this machine's memory, whatever the program's default device is."""
    return torch.empty(shape, dtype=dtype, device="cpu")


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid: `buffers` by slot, as `anymps.metal_kernels()` takes them, None where one is missing.

    `threads` and `group` are sizes along up to three dimensions; `errors` is the slot of the error buffer.
    """

    kernel: str
    buffers: tuple[Any, ...]
    threads: tuple[int, ...]
    group: tuple[int, ...] | None = None
    errors: int | None = None


@dataclass(frozen=True)
class Made:
    """A tensor among the results or buffers of a launch that a description has made itself.

    `how`: room that a launch fills before it is read, room or a result that begins as zeros, a number that each call of
    the same signature has, the value of the 0-dim argument `of`, in another dtype, or the float that the call gives as
    its argument `of`, one of `TAKEN_ANEW`.
    """

    tensor: torch.Tensor
    how: How
    of: str = ""


@dataclass(frozen=True)
class Work:
    """What computes a call: launches, one after the other, into tensors that become its results.

    `copies` are pairs of a tensor and what the host copies, or casts, into it after the last one.

    A description need not ask whether the release has the kernels that it names, unless it changes what the call gave:
    a call with a launch of any other is declined before the first one.
    """

    results: tuple[torch.Tensor, ...]
    launches: tuple[Launch, ...]
    copies: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()


@dataclass(frozen=True)
class KernelCall:
    """A call on tensors of this machine's memory.

    `given` are the arguments by their names in the schema, defaults included; `written` the tensors that it writes, in
    place or as `out=`; `foreign` the names of tensors that the program has on the CPU; `kernels` the names that the
    release has; `release` its first two numbers.

    `made` are the tensors that the description has made by the call's own methods. Launches are kept for calls of the
    same signature (see `_memo.py`) if all that they read and write is given or among these.
    """

    given: Mapping[str, Any]
    written: tuple[torch.Tensor, ...]
    foreign: frozenset[str]
    kernels: Container[str]
    release: tuple[int, int]
    made: list[Made] = field(default_factory=list)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None) -> torch.Tensor:
        """A result, or room, that a launch writes as a whole."""
        made = empty(shape, dtype)
        if strides is not None:
            made = torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        return self.note(made, "room")

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A result, or room, that launches add to."""
        return self.note(empty(shape, dtype).zero_(), "zeros")

    def note(self, tensor: torch.Tensor, how: How, of: str = "") -> torch.Tensor:
        """The tensor, which is among those that were made."""
        self.made.append(Made(tensor, how, of))
        return tensor

    def takes(self, *tensors: torch.Tensor) -> bool:
        """Whether all are on the device, and these have elements, and in memory what they show: no pending sign."""
        return not self.foreign and all(one.numel() and not (one.is_conj() or one.is_neg()) for one in tensors)

    def makes(self, *tensors: torch.Tensor) -> bool:
        """Whether it takes these, and its results are new."""
        return not self.written and self.takes(*tensors)

    @property
    def is_read(self) -> bool:
        """Whether the host code of the release was read, or its kernels were run with these arguments and compared."""
        return self.release in READ

    @property
    def is_read_or_older(self) -> bool:
        """The same for launches that releases before torch 2.13 share."""
        return self.is_read or self.release < READ[0]

    def first(self, names: list[str]) -> str | None:
        """The first of these kernels that there is."""
        return next((name for name in names if name in self.kernels), None)


Describe = Callable[[KernelCall], "Work | None"]
"""The work of a call; None if no kernel does it, or which one does is not known."""
