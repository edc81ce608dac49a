"""What a later call of the same signature still has to do, in the form that the native core uses.

That is: the entry and the packed table of arguments of each launch, with the places that the addresses of the next call
go to, and the shapes of its results (native/device/launches/kept_launches.h). A call is not kept if a launch has an
error buffer or a table of tensors, or a buffer of which nobody says what is in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from anymps.metal._runtime import runtime
from anymps.metal.kernels._hot import HotLaunches
from anymps.metal.kernels._library import CompiledKernel
from anymps.metal.kernels._support import support
from anymps.metal.kernels.launches import SCALAR_TYPES, Call, Launch, Work

_ARGUMENT, _RESULT, _VALUE, _FLOAT = range(4)  # kept::Source
_READ_ANEW = {"value": _VALUE, "float": _FLOAT}
_ROOM = ("room", "zeros")
_NONE = 0  # a type that nobody reads
_ITEM = 1 << 16  # kept::kItem, between the places of a list of tensors

Patch = tuple[int, int, int, int, int]  # source, place, index, offset, type
Recipe = tuple[int, int, int, Any, int, tuple[Any, ...], tuple[Any, ...]]


def recipe_of(
    call: Call,
    work: Work,
    kernels: Sequence[CompiledKernel],
    before: Mapping[str, torch.Size],
    stopped: Any,
    hot: HotLaunches,
) -> Recipe | None:
    """The recipe of a call that was just computed, or None. `before` are the shapes that its tensors came with.

    It is None, too, while `hot` waits for more calls of one of its launches.
    """
    if not work.kept or work.cast is not None or work.copies:
        return None
    arguments = [(at, name, one) for at, (name, one) in enumerate(call.given.items()) if isinstance(one, torch.Tensor)]
    zeros = [one.tensor for one in work.made if one.how == "zeros"]
    room = [one.tensor for one in work.made if one.how in _ROOM and not _is_among(one.tensor, work.results)]
    results = [_result(one, arguments, before, _is_among(one, zeros)) for one in (*work.results, *room)]
    if any(one is None for one in results):
        return None
    items = [
        (at + _ITEM * place, name, one)
        for at, (name, several) in enumerate(call.given.items())
        for place, one in enumerate(several if isinstance(several, list) else (), 1)
        if isinstance(one, torch.Tensor)
    ]
    launches = [
        _launch(launch, kernel, work, list(call.given), [*arguments, *items], [*work.results, *room], hot)
        for launch, kernel in zip(work.launches, kernels, strict=True)
    ]
    if any(one is None for one in launches):
        return None
    call_, state, set_state = (
        ctypes.cast(function, ctypes.c_void_p).value or 0
        for function in (runtime().anymps_rt_call, support().anymps_k_state, support().anymps_k_set_state)
    )
    return call_, state, set_state, stopped, len(work.results), tuple(results), tuple(launches)


_Arguments = Sequence[tuple[int, str, torch.Tensor]]


def _is_among(tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> bool:
    return any(one is tensor for one in others)


def _result(
    one: torch.Tensor, arguments: _Arguments, before: Mapping[str, torch.Size], zeroed: bool
) -> tuple[Any, ...] | None:
    """A result: an argument, perhaps with a new shape, or a tensor to be made, perhaps of zeros."""
    shape = (SCALAR_TYPES[one.dtype], tuple(one.shape), one.stride())
    for at, name, argument in arguments:
        if argument is one:
            return None if zeroed else (at, *shape, before[name] != one.shape, False)
    whole = one.untyped_storage().nbytes() == one.numel() * one.element_size()
    return (-1, *shape, False, zeroed) if whole and not one.storage_offset() else None


def _launch(
    launch: Launch,
    kernel: CompiledKernel,
    work: Work,
    names: Sequence[str],
    arguments: _Arguments,
    results: Sequence[torch.Tensor],
    hot: HotLaunches,
) -> tuple[Any, ...] | None:
    if launch.errors is not None:
        return None
    made = {id(one.tensor): one for one in work.made if one.how not in _ROOM}
    buffers: list[Any] = []
    found: dict[int, tuple[int, int, int, int]] = {}  # by slot: source, index, offset, type
    for slot, buffer in enumerate(launch.buffers):
        if not isinstance(buffer, torch.Tensor):
            buffers.append(buffer)
            continue
        one = made.get(id(buffer))
        if one is None:
            place = _place(buffer, arguments, results)
            if place is None:
                return None
            found[slot] = (*place, _NONE)
            buffers.append(buffer)
            continue
        if one.how in _READ_ANEW:
            found[slot] = (_READ_ANEW[one.how], names.index(one.of), 0, SCALAR_TYPES[buffer.dtype])
        buffers.append(buffer.reshape(1).view(torch.uint8).numpy().tobytes())
    read_anew = [slot for slot, (source, *_) in found.items() if source in _READ_ANEW.values()]
    kept = None if 0 in launch.threads else hot.kernel_for(launch, kernel, buffers, read_anew)
    packed = None if kept is None else kept.packed(buffers, launch.threads, launch.group)
    if packed is None:
        return None
    patches = tuple(
        (source, packed.places[slot] if slot in read_anew else 8 * slot, index, offset, type_)
        for slot, (source, index, offset, type_) in found.items()
    )
    return packed.entry, packed.data, packed.count, packed.shape, patches


def _place(buffer: torch.Tensor, arguments: _Arguments, results: Sequence[torch.Tensor]) -> tuple[int, int, int] | None:
    """Of which argument or result a buffer is, and how far behind its first element it begins."""
    for at, _, one in arguments:
        if one is buffer:
            return _ARGUMENT, at, 0
    storage = buffer.untyped_storage().data_ptr()
    known = [(_ARGUMENT, at, one) for at, _, one in arguments]
    new = [(_RESULT, at, one) for at, one in enumerate(results)]
    known += [place for place in new if all(place[2] is not one for _, _, one in arguments)]
    same = [place for place in known if place[2].untyped_storage().data_ptr() == storage]
    if len(same) != 1 or not storage:
        return None
    source, at, one = same[0]
    return source, at, buffer.data_ptr() - one.data_ptr()
