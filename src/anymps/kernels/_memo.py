"""A cache of launches, by everything that their descriptions read of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from anymps.kernels._library import CompiledKernel
from anymps.kernels.launches import KernelCall, Made, Work
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
        *[one.index(each) for one in (identities, storages) for each in one],  # which are one, and which share memory
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
    """A tensor that the call makes, or the argument that it writes."""

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


@dataclass(frozen=True)
class Recipe:
    """What is left to do for a later call of the same signature.

    A launch is a kernel, its packed arguments, and in which slot the address of which tensor goes, and how far behind
    the tensor's first element.
    """

    results: tuple[_Result, ...]
    returned: int
    numbers: tuple[tuple[int, torch.dtype], ...]
    launches: tuple[tuple[CompiledKernel, Packed, tuple[tuple[int, int, int], ...]], ...]

    def run(self, arguments: Sequence[Any], given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results of a call, computed by the kernels; `given` are the tensors among the arguments."""
        results = [one.make(given) for one in self.results]
        tensors = [*given, *results, *[_number_as(arguments[at], dtype) for at, dtype in self.numbers]]
        for kernel, packed, places in self.launches:
            kernel.run_again(packed, [(slot, tensors[at], offset) for slot, at, offset in places])
        return tuple(results[: self.returned])


def _number_as(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number of a call, as a kernel of that dtype gets it: by way of float32, as c10::Scalar makes it of a double."""
    number = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float32, device="cpu")
    return number.to(dtype)


def recipe_of(
    call: KernelCall, work: Work, kernels: Sequence[CompiledKernel], before: Sequence[torch.Size]
) -> Recipe | None:
    """The recipe of a call that was just described, or None. `before` are the shapes that its tensors came with."""
    own = set(map(id, work.results))
    if len(own) < len(work.results) or work.copies or any(one.errors is not None for one in work.launches):
        return None
    names, given = list(call.given), tensors_of(list(call.given.values()))
    made = {id(one.tensor): one for one in call.made}
    anew = [one for one in call.made if one.of]
    room = [one.tensor for one in call.made if one.how in ("room", "zeros") and id(one.tensor) not in own]
    tensors = [*given, *work.results, *room, *(one.tensor for one in anew)]
    launches = []
    try:
        results = tuple(_result(one, made.get(id(one)), given, before) for one in (*work.results, *room))
        for launch, kernel in zip(work.launches, kernels, strict=True):
            buffers, places = list(launch.buffers), []
            for slot, buffer in enumerate(launch.buffers):
                if id(buffer) in made and made[id(buffer)].how == "number":
                    buffers[slot] = buffer.reshape(1).view(torch.uint8).numpy().tobytes()
                elif isinstance(buffer, torch.Tensor):
                    at = _place(buffer, tensors)
                    places.append((slot, at, buffer.data_ptr() - tensors[at].data_ptr()))
            launches.append((kernel, kernel.packed(buffers, launch.threads, launch.group), tuple(places)))
    except LookupError:
        return None
    numbers = tuple((names.index(one.of), one.tensor.dtype) for one in anew)
    return Recipe(results, len(work.results), numbers, tuple(launches))


def _result(
    one: torch.Tensor, made: Made | None, given: Sequence[torch.Tensor], before: Sequence[torch.Size]
) -> _Result:
    """How a result, or room, is made again. Raises LookupError for one that is not known how."""
    argument = next((at for at, other in enumerate(given) if other is one), None)
    if argument is None and made is None:
        raise LookupError
    zeroed = made is not None and made.how == "zeros"
    is_resized = argument is not None and before[argument] != one.shape
    return _Result(argument, one.dtype, one.shape, one.stride(), zeroed, is_resized)


def _place(buffer: torch.Tensor, tensors: Sequence[torch.Tensor]) -> int:
    """Which of the tensors a buffer is, or else a part of. Raises LookupError if it is of none."""
    storage = buffer.untyped_storage().data_ptr()
    found = [at for at, one in enumerate(tensors) if one is buffer]
    found += [at for at, one in enumerate(tensors) if storage and one.untyped_storage().data_ptr() == storage]
    return found[0]
