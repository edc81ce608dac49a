"""Tensors and a call's arguments on the CPU, in place or in a wider type, and what the CPU computes from them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from anymps.numerics._operations import Operation

LARGEST: Final = 1 << 27
"""Numbers of a call that is compared: at most 1 GiB in float64."""

_DTYPES: Final = {5: 7, 6: 7, 15: 7, 8: 10, 9: 10}  # the numbers of c10::ScalarType
_DTYPE_NAMES: Final = ("dtype", "out_dtype", "input_dtype")
_KEPT_NARROW: Final = ("state_steps", "lr", "grad_scale", "found_inf", "inv_scale", "max_exp_avg_sqs_steps")
"""Arguments of fused optimizers whose dtype is part of what they are."""

_NARROW_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)

Change = Callable[[torch.Tensor], torch.Tensor]


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 of a float, complex128 of a complex dtype; integers and truth values stay."""
    if dtype.is_complex:
        return torch.complex128
    if dtype in _NARROW_FLOATS:
        return torch.float64
    return dtype


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers on the CPU, in the wide type, with the same sizes; memory of its own unless nothing changes."""
    here = tensor if tensor.device.type == "cpu" else tensor.detach().to("cpu")
    return here.detach().to(wide_dtype(here.dtype))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has strides and numbers, and is of no subclass with a meaning of its own."""
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.dtype is not torch.complex32


def in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements of the virtual device's memory on the CPU, with the same sizes and strides, and no copy.

    For a tensor that has memory on the host substrate. What is written into one of the two is in the other; the memory
    lives as long as either.
    """
    if tensor.device.type == "cpu" or not tensor.numel():
        return tensor.detach().to("cpu")
    if tensor.is_conj() or tensor.is_neg():  # a flag says what its elements stand for
        return tensor.detach().to("cpu")
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    content = (ctypes.c_char * (span * tensor.itemsize)).from_address(tensor.data_ptr())
    here: Any = torch.frombuffer(content, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())
    here.holds = tensor  # the memory is the other's
    return here  # type: ignore[no-any-return]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, lists taken apart."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def changed(value: Any, change: Change) -> Any:
    """The value with each of its tensors replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [changed(item, change) for item in value]
    return value


def read_on_cpu(values: Sequence[Any], in_host_memory: bool) -> tuple[Any, ...]:
    """The values with their tensors on the CPU, to be read before anything writes into them.

    Without a copy where the virtual device has them `in_host_memory`.
    """
    return _each_once(values, in_place if in_host_memory else _moved_to_cpu)


def copied_to_cpu(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of the arguments' tensors on the CPU, in their own dtypes; later writes don't reach them."""
    return _each_once(arguments, lambda tensor: _of_its_own(_moved_to_cpu(tensor), tensor))


def _each_once(values: Sequence[Any], change: Change) -> tuple[Any, ...]:
    """The values with their tensors replaced: one that comes twice, by the same both times."""
    made: dict[int, torch.Tensor] = {}

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = change(tensor)
        return made[id(tensor)]

    return tuple(changed(value, one) for value in values)


def _moved_to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu")


def wide_arguments(
    operation: Operation, arguments: Sequence[Any], change: Change = widened, *, exact_numbers: bool = False
) -> tuple[Any, ...]:
    """The arguments, widened by `change`, which may change their numbers, too. `arguments` lie on the CPU.

    Numbers of Python are rounded to float32, as kernels take them, or exact.
    """
    narrow = None if exact_numbers else _narrowest(arguments)

    def one(place: int, value: Any) -> Any:
        said = operation.arguments[place]
        written = place in operation.written
        if said.is_out:
            return changed(value, lambda tensor: torch.empty(0, dtype=wide_dtype(tensor.dtype)))
        if isinstance(value, (torch.Tensor, list, tuple)) and tensors_in(value):
            if operation.is_fused_step and said.name in _KEPT_NARROW:
                return changed(value, torch.clone)
            return changed(value, (lambda tensor: _of_its_own(change(tensor), tensor)) if written else change)
        return _plain(said, value, narrow)

    return tuple(one(place, value) for place, value in enumerate(arguments))


def _of_its_own(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return made.clone() if made.data_ptr() == tensor.data_ptr() else made


def same_arguments(operation: Operation, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments as they are, for the CPU's own kernel of the same dtypes."""

    def one(place: int, value: Any) -> Any:
        said = operation.arguments[place]
        if said.is_out:
            return changed(value, lambda tensor: torch.empty(0, dtype=tensor.dtype))
        if tensors_in(value):
            return changed(value, torch.clone) if place in operation.written else value
        return _plain(said, value, None, narrow_dtypes=True)

    return tuple(one(place, value) for place, value in enumerate(arguments))


def compute(operation: Operation, arguments: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The fresh results, and the arguments that were written into. Raises what the CPU's kernel raises."""
    plain, named = [], {}
    for said, value in zip(operation.arguments, arguments, strict=False):
        if said.kwarg_only:
            named[said.name] = value
        else:
            plain.append(value)
    assert operation.call is not None
    results = operation.call(*plain, **named)
    results = results if isinstance(results, (tuple, list)) else (results,)
    fresh = fresh_results(operation, results)
    written = [tensor for place in sorted(operation.written) for tensor in tensors_in(arguments[place])]
    return tensors_or_none(fresh)[: operation.results], written


def fresh_results(operation: Operation, results: Sequence[Any]) -> list[Any]:
    """Those results that are no arguments handed back."""
    return [result for result, is_fresh in zip(results, operation.fresh, strict=False) if is_fresh]


def tensors_or_none(values: Sequence[Any]) -> list[Any]:
    """Results in order, lists taken apart, None where there is no tensor."""
    flat: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            flat += tensors_or_none(value)
        else:
            flat.append(value if isinstance(value, torch.Tensor) else None)
    return flat


def _narrowest(arguments: Sequence[Any]) -> torch.dtype | None:
    dtypes = [tensor.dtype for value in arguments for tensor in tensors_in(value) if tensor.dtype.is_floating_point]
    return min(dtypes, key=lambda dtype: dtype.itemsize, default=None)


def _plain(said: Any, value: Any, narrow: torch.dtype | None, *, narrow_dtypes: bool = False) -> Any:
    """An argument that is no tensor, as the CPU's kernel takes it."""
    if said.name == "device" and value is not None:
        return torch.device("cpu")
    if said.name == "pin_memory":
        return None
    if said.name == "half_to_float":
        return False if not narrow_dtypes else value
    if said.name in _DTYPE_NAMES and isinstance(value, int) and not isinstance(value, bool):
        return value if narrow_dtypes else _DTYPES.get(value, value)
    is_tensor = "Tensor" in str(said.type)
    if isinstance(value, float) and narrow is not None:
        # Kernels take numbers of Python as float32.
        value = float(torch.tensor(value, dtype=torch.float32)) if abs(value) < 1e38 else value
    if is_tensor and isinstance(value, (bool, int, float, complex)):
        return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else torch.tensor(value)
    return value
