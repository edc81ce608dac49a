"""Faults that the checker finds without running a kernel: arguments that do not fit, unset variables."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import torch

from anymps.metal._arguments import LETTERS, PADDING, Arguments, Constant
from anymps.metal._launch import Launch
from anymps.metal._runtime import Parameter
from anymps.metal.checking._messages import ShaderFault

_NAMES = dict(
    zip(
        "?bBhHiIqQeEf",
        ["bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float"],
        strict=True,
    )
)
_SIZES = dict(zip("?bBhHeEiIfqQ", (1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8), strict=True))
_FLOATS = frozenset("eEf")
_BYTES = frozenset("bB")  # memory as such
_BY_INDUCTOR = "generated_kernel"  # its kernels know the strides of what they are given


def argument_faults(launch: Launch) -> Iterator[ShaderFault]:
    """What is wrong with the arguments of one launch."""
    kernel, entry, bound = launch.kernel, launch.entry, launch.bound
    subject = f"The Metal kernel `{kernel}`"
    given, taken = len(bound.slots), int(entry.buffers)
    if given > taken:
        many = f"{taken} buffer{'' if taken == 1 else 's'}"
        yield _fault(
            kernel,
            "extra",
            f"{subject} takes {many}, but the call passed {given}: argument {taken} is never read.",
            False,
        )
    for index, slot in enumerate(bound.slots):
        parameter = entry.parameters.get(index)
        letter = parameter.letter.decode() if parameter is not None else ""
        if parameter is None or letter not in _NAMES:  # a struct, or no buffer of it
            continue
        if isinstance(slot, torch.Tensor):
            yield from _tensor(kernel, index, slot, parameter, bound)
        elif isinstance(slot, Constant) and slot.letter:
            yield from _number(kernel, index, slot, parameter)


def unset_faults(launch: Launch, source: str) -> Iterator[ShaderFault]:
    """Variables of the kernel that are read before they are written, by what its compiler says."""
    kernel = launch.kernel
    lines = source.splitlines()
    for line, variable, sure in launch.entry.unset:
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        name = f"the variable `{variable}`" if variable else "a variable"
        when = "before it is written" if sure else "which may not have been written yet"
        yield ShaderFault(
            "unset" if sure else "unset_maybe",
            kernel,
            line,
            f"The Metal kernel `{kernel}` reads {name} {when} at line {line}, `{text}`."
            if sure
            else f"The Metal kernel `{kernel}` reads {name}, {when}, at line {line}, `{text}`.",
            sure,
        )


def _fault(kernel: str, kind: str, what: str, serious: bool) -> ShaderFault:
    return ShaderFault(kind, kernel, 0, what, serious)


def _tensor(
    kernel: str, index: int, tensor: torch.Tensor, parameter: Parameter, bound: Arguments
) -> Iterator[ShaderFault]:
    wanted, own = parameter.letter.decode(), LETTERS.get(tensor.dtype, "")
    if own and not _fits(own, wanted, parameter):
        bits = _SIZES[own] == _SIZES[wanted]
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield _fault(
            kernel,
            "dtype",
            f"The Metal kernel `{kernel}` takes argument {index} as `{_taken(parameter)}`, but the call passed a "
            f"tensor of {dtype}: its bytes are misread.",
            serious=not (bits and own not in "eE" and wanted not in _FLOATS),
        )
    if parameter.many and not tensor.is_contiguous() and not kernel.startswith(_BY_INDUCTOR):
        strides = {
            stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1 and stride != 1
        }
        if not strides <= _passed_strides(bound):
            yield _fault(
                kernel,
                "strides",
                f"The Metal kernel `{kernel}` got a tensor that is not contiguous as argument {index}, with strides "
                f"{tuple(tensor.stride())}: it reads the storage as it lies in memory, and the call passed no strides.",
                serious=False,
            )


def _fits(own: str, wanted: str, parameter: Parameter) -> bool:
    """Whether bytes of a dtype may be read as a kernel reads them."""
    if own == wanted or wanted in _BYTES or own in _BYTES:  # a tensor of bytes holds anything
        return True
    if own in _FLOATS or wanted in _FLOATS:
        return bool(parameter.atomic) and _SIZES[own] == _SIZES[wanted] and own == "f"  # compared and exchanged as bits
    return _SIZES[own] in (_SIZES[wanted], _SIZES[wanted] * parameter.count)


def _number(kernel: str, index: int, constant: Constant, parameter: Parameter) -> Iterator[ShaderFault]:
    wanted, own = parameter.letter.decode(), constant.letter
    size = _SIZES[own]
    count = (len(constant.data) - PADDING) // size
    if not parameter.many and len(constant.data) - PADDING < _SIZES[wanted] * min(parameter.count, 3):
        return  # too few bytes, which is reported while the kernel runs
    several = count > 1 and (parameter.many or parameter.count > 1)
    problem = ""
    if (own in _FLOATS) != (wanted in _FLOATS) or (own in _FLOATS and own != wanted):
        problem = "the bytes are misread"
    elif several and size != _SIZES[wanted]:
        problem = f"each has {size} bytes, but the kernel reads {_SIZES[wanted]} at a time"
    elif not several and own not in _FLOATS and own != "E" and size > _SIZES[wanted]:
        (value,) = struct.unpack_from(own, constant.data)
        bits = 8 * _SIZES[wanted]
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            problem = f"{value:,} does not fit"
    if problem:
        numbers = "numbers" if count > 1 else "a number"
        yield _fault(
            kernel,
            "number",
            f"The Metal kernel `{kernel}` takes argument {index} as `{_taken(parameter)}`, but the call passed "
            f"{numbers} of type `{_NAMES[own]}`: {problem}.",
            serious=True,
        )


def _passed_strides(bound: Arguments) -> set[int]:
    """The integers among the arguments, those in small tensors included."""
    found = bound.integers()
    for slot in bound.slots:
        if isinstance(slot, torch.Tensor) and not slot.is_floating_point() and slot.numel() <= 32:
            found.update(_listed(slot))
    return found


def _listed(tensor: torch.Tensor) -> Sequence[int]:
    values = tensor.detach().cpu().flatten()
    return [] if values.is_complex() else [int(value) for value in values.tolist()]


def _taken(parameter: Parameter) -> str:
    count = str(parameter.count) if parameter.count > 1 else ""
    name = f"{_NAMES[parameter.letter.decode()]}{count}"
    return f"{f'atomic<{name}>' if parameter.atomic else name}{'*' if parameter.many else '&'}"
