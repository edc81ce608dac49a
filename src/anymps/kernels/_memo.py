"""A cache of launches, by everything that their descriptions read of a call."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymps.kernels._library import CompiledKernel
from anymps.kernels.launches import Call, Launch, Work
from anymps.metal import Packed

Signature = tuple[Any, ...]


def signature_of(
    arguments: Sequence[Any], tensors: Sequence[torch.Tensor], anew: int | None, rest: Signature
) -> Signature | None:
    """All that a description reads of a call, but the value of a float in the place `anew`; None if nothing is kept.

    `tensors` are those among the arguments; `rest` is what else tells calls apart.
    """
    identities = [id(one) for one in tensors]
    try:
        storages = [one.untyped_storage().data_ptr() for one in tensors]
    except NotImplementedError:  # a sparse tensor has none
        return None
    return (
        *rest,
        *[_read(one) if at != anew or type(one) is not float else "float" for at, one in enumerate(arguments)],
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        *[identities.index(one) for one in identities],  # which are one,
        *[storages.index(one) for one in storages],  # and which share memory
    )


def tensors_of(arguments: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among them, and in lists."""
    found = []
    for one in arguments:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, list):
            found += [item for item in one if isinstance(item, torch.Tensor)]
    return found


def _read(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        lies = (value.shape, value.stride(), value.storage_offset())
        return value.dtype, lies, value.is_conj(), value.is_neg()
    if isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
        return tuple(map(_read, value))
    return repr(value)  # 1 is not 1.0


class _Result(NamedTuple):
    """A tensor that the call makes, perhaps of zeros, or the argument that it writes, perhaps with another shape."""

    argument: int | None
    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    begins_as_zeros: bool
    is_resized: bool

    def make(self, given: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.argument is None:
            made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="cpu")
            return made.zero_() if self.begins_as_zeros else made
        one = given[self.argument]
        return one.resize_(self.shape).as_strided_(self.shape, self.strides) if self.is_resized else one


class _Launch(NamedTuple):
    """A launch again: in which slot the address of which tensor goes, and how far behind its first element."""

    kernel: CompiledKernel
    packed: Packed
    places: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Recipe:
    """What is left to do for a later call of the same signature."""

    results: tuple[_Result, ...]
    returned: int
    numbers: tuple[tuple[int, torch.dtype], ...]
    launches: tuple[_Launch, ...]

    def run(self, arguments: Sequence[Any], given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results of a call, computed by the kernels; `given` are the tensors among the arguments."""
        results = [one.make(given) for one in self.results]
        tensors = [*given, *results, *[number_as(arguments[at], dtype) for at, dtype in self.numbers]]
        for kernel, packed, places in self.launches:
            kernel.run_again(packed, [(slot, tensors[at], offset) for slot, at, offset in places])
        return tuple(results[: self.returned])


def number_as(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number of a call, as a kernel of that dtype gets it: by way of float32, as c10::Scalar makes it of a double."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.tensor(value, dtype=torch.float32, device="cpu").to(dtype)


def recipe_of(call: Call, work: Work, kernels: Sequence[CompiledKernel], before: Sequence[torch.Size]) -> Recipe | None:
    """The recipe of a call that was just described, or None. `before` are the shapes that its tensors came with."""
    if not work.kept or work.cast is not None or work.copies:
        return None
    names = list(call.given)
    given = tensors_of(list(call.given.values()))
    zeros = [one.tensor for one in work.made if one.how == "zeros"]
    room = [one.tensor for one in work.made if one.how in ("room", "zeros") and not _is_among(one.tensor, work.results)]
    anew = [one for one in work.made if one.of]
    results = [_result(one, given, before, _is_among(one, zeros)) for one in (*work.results, *room)]
    tensors = [*given, *work.results, *room, *(one.tensor for one in anew)]
    constant = [one.tensor for one in work.made if one.how == "number"]
    launches = [
        _launch(launch, kernel, tensors, constant) for launch, kernel in zip(work.launches, kernels, strict=True)
    ]
    if None in results or None in launches:
        return None
    numbers = tuple((names.index(one.of), one.tensor.dtype) for one in anew)
    return Recipe(tuple(filter(None, results)), len(work.results), numbers, tuple(filter(None, launches)))


def _is_among(tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> bool:
    return any(one is tensor for one in others)


def _result(
    one: torch.Tensor, given: Sequence[torch.Tensor], before: Sequence[torch.Size], zeroed: bool
) -> _Result | None:
    shape = (one.dtype, one.shape, one.stride(), zeroed)
    for at, argument in enumerate(given):
        if argument is one:
            return None if zeroed else _Result(at, *shape, before[at] != one.shape)
    whole = one.untyped_storage().nbytes() == one.numel() * one.element_size()
    return _Result(None, *shape, False) if whole and not one.storage_offset() else None


def _launch(
    launch: Launch, kernel: CompiledKernel, tensors: Sequence[torch.Tensor], constant: Sequence[torch.Tensor]
) -> _Launch | None:
    if launch.errors is not None:
        return None
    buffers, places = list(launch.buffers), []
    for slot, buffer in enumerate(launch.buffers):
        if not isinstance(buffer, torch.Tensor):
            continue
        if _is_among(buffer, constant):
            buffers[slot] = buffer.reshape(1).view(torch.uint8).numpy().tobytes()
            continue
        at = _place(buffer, tensors)
        if at is None:
            return None
        places.append((slot, at, buffer.data_ptr() - tensors[at].data_ptr()))
    packed = kernel.packed(buffers, launch.threads, launch.group)
    return None if packed is None else _Launch(kernel, packed, tuple(places))


def _place(buffer: torch.Tensor, tensors: Sequence[torch.Tensor]) -> int | None:
    """Which of the tensors a buffer is, or else a part of."""
    storage = buffer.untyped_storage().data_ptr()
    ways = (
        (at for at, one in enumerate(tensors) if one is buffer),
        (at for at, one in enumerate(tensors) if storage and one.untyped_storage().data_ptr() == storage),
    )
    return next(itertools.chain(*ways), None)
