"""How known faults are recognised without the native core: the conditions of native/law/hazard_checks.cpp, in Python.

Each is a function of sizes, strides, dtypes and arguments, and looks at no value. A test asks both for many calls, and
they must answer alike (`tests/test_hazards_alike.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from anymps.rules.faults import Check, Hazard

_TILE = 16  # smaller results of a matrix product take another kernel
_WIDE = (torch.float64, torch.complex128)
_HALVES = (torch.float16, torch.bfloat16)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)


class Seen:
    """What a condition sees: all arguments of a call, and those that it asks for by their role."""

    __slots__ = ("_places", "all", "hazard")

    def __init__(self, hazard: Hazard, places: Sequence[int], arguments: Sequence[Any]) -> None:
        self.hazard = hazard
        self.all = arguments
        self._places = places

    def at(self, role: int) -> Any:
        """The argument, None if the operator has none."""
        place = self._places[role] if role < len(self._places) else -1
        return self.all[place] if 0 <= place < len(self.all) else None

    def any_tensor(self, role: int) -> torch.Tensor | None:
        """A tensor wherever it lies."""
        value = self.at(role)
        return value if isinstance(value, torch.Tensor) else None

    def tensor(self, role: int) -> torch.Tensor | None:
        """A tensor on mps that is not sparse."""
        value = self.at(role)
        return value if isinstance(value, torch.Tensor) and value.is_mps and not value.is_sparse else None

    def wants(self, role: int, bit: int) -> bool:
        """Whether a mask of wanted results has that bit."""
        value = self.at(role)
        return isinstance(value, (list, tuple)) and bit < len(value) and value[bit] is True

    def above(self, measure: int) -> bool:
        """Whether a measure is beyond the fault's limit."""
        return measure > self.hazard.low

    def in_range(self, measure: int) -> bool:
        """Whether a measure lies between the fault's limits."""
        return measure >= self.hazard.low and (self.hazard.high == 0 or measure <= self.hazard.high)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (bool, int, float)) else 0.0


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie without gaps, in whatever order."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() == 0 or reach == tensor.numel()


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


# --- copies: Copy.mm casts and moves one run of memory where both have equal strides, and gathers otherwise


class _Copy(NamedTuple):
    to: torch.Tensor
    source: torch.Tensor
    straight: bool
    casts: bool


def _copy_to_cpu(seen: Seen) -> _Copy | None:
    to, source = seen.any_tensor(0), seen.tensor(1)
    if to is None or source is None or to.is_mps:
        return None
    straight = to.shape == source.shape and to.stride() == source.stride()
    return _Copy(to, source, straight, to.dtype != source.dtype)


def _narrowing_copy(seen: Seen) -> bool:
    copy = _copy_to_cpu(seen)
    return (
        copy is not None
        and copy.straight
        and copy.casts
        and copy.source.storage_offset() == 0
        and copy.to.element_size() <= copy.source.element_size()
    )


def _offset_copy(seen: Seen) -> bool:
    copy = _copy_to_cpu(seen)
    return copy is not None and copy.straight and copy.casts and copy.source.storage_offset() != 0


def _gappy_copy(seen: Seen) -> bool:
    copy = _copy_to_cpu(seen)
    return copy is not None and copy.straight and not _is_dense(copy.source)


def _double_copy(seen: Seen) -> bool:
    copy = _copy_to_cpu(seen)
    return copy is not None and copy.casts and copy.to.dtype in _WIDE


def _cpu_scalar_view(seen: Seen) -> bool:
    for role in (0, 1):
        scalar = seen.any_tensor(role)
        if (
            scalar is not None
            and scalar.is_cpu
            and scalar.dim() == 0
            and scalar.storage_offset() != 0
            and scalar.dtype not in _WIDE
            and seen.tensor(1 - role) is not None
        ):
            return True
    return False


# --- matrix products


def _long_inner(seen: Seen) -> bool:
    left, right = seen.tensor(0), seen.tensor(1)
    if left is None or right is None or left.dim() < 1 or right.dim() < 1:
        return False
    inner = left.shape[-1]
    return seen.in_range(inner) and left.numel() // inner >= _TILE and right.numel() // inner >= _TILE


def _long_inner_backward(seen: Seen) -> bool:
    given, weight = seen.tensor(0), seen.tensor(1)
    if given is None or weight is None or weight.dim() != 2 or weight.shape[1] == 0:
        return False
    rows = given.numel() // weight.shape[1]
    outputs, inputs = weight.shape
    return (seen.wants(2, 1) and seen.in_range(rows) and outputs >= _TILE and inputs >= _TILE) or (
        seen.wants(2, 0) and seen.in_range(outputs) and rows >= _TILE and inputs >= _TILE
    )


def _batches(seen: Seen) -> tuple[torch.Tensor, torch.Tensor] | None:
    left, right = seen.tensor(0), seen.tensor(1)
    return None if left is None or right is None or left.dim() != 3 or right.dim() != 3 else (left, right)


def _long_inner_batched(seen: Seen) -> bool:
    found = _batches(seen)
    if found is None or not seen.in_range(found[0].shape[2]):
        return False
    return found[0].shape[1] >= _TILE and found[1].shape[2] >= _TILE


def _expanded_matrix(seen: Seen) -> bool:
    left, right = seen.tensor(0), seen.tensor(1)
    return left is not None and right is not None and (_is_expanded(left) or _is_expanded(right))


def _matmul_output(seen: Seen) -> bool:
    found = _batches(seen)
    return found is not None and any(map(seen.above, (*found[0].shape[:2], found[1].shape[2])))


def _huge_batched(seen: Seen) -> bool:
    found = _batches(seen)
    if found is None or _matmul_output(seen) or (found[0].is_contiguous() and found[1].is_contiguous()):
        return False
    result = found[0].shape[0] * found[0].shape[1] * found[1].shape[2]
    return seen.above(max(result, found[0].numel(), found[1].numel()))


def _integers(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dtype in _INTEGERS


# --- convolution: roles are input, weight, then what a check needs


def _strided_weight(seen: Seen) -> bool:
    weight = seen.tensor(1)
    return (
        weight is not None
        and weight.dim() == 4
        and not weight.is_contiguous()
        and not weight.is_contiguous(memory_format=torch.channels_last)
    )


def _is_like_channels_last(tensor: torch.Tensor) -> bool:
    """Whether strides fall as those of channels_last do (is_channels_last_strides_2d, c10/core/MemoryFormat.h)."""
    sizes, strides = tensor.shape, tensor.stride()
    least = 0
    if strides[1] == 0:
        return False
    for dimension in (1, 3, 2, 0):
        if sizes[dimension] == 0 or strides[dimension] < least or (dimension == 0 and least == strides[1]):
            return False
        least = strides[dimension] * max(sizes[dimension], 1)
    return True


def _channel_slice(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return (
        tensor is not None
        and tensor.dim() == 4
        and _is_like_channels_last(tensor)
        and not tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )


def _wide_kernel(seen: Seen) -> bool:
    weight = seen.tensor(1)
    return weight is not None and weight.dim() == 4 and any(map(seen.in_range, weight.shape[2:]))


def _large_minibatch(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dim() > 0 and seen.in_range(tensor.shape[0]) and seen.wants(2, 1)


def _large_output(seen: Seen) -> bool:
    """convolution(input, weight, bias, stride, padding, dilation, transposed, ...): every dimension of the result."""
    tensor, weight = seen.tensor(0), seen.tensor(1)
    if tensor is None or weight is None or len(seen.all) < 7 or seen.all[6]:
        return False
    if tensor.dim() == 0 or tensor.dim() != weight.dim():
        return False
    if seen.above(tensor.shape[0]) or seen.above(weight.shape[0]):
        return True
    options = seen.all[3:6]
    if not all(isinstance(option, (list, tuple)) and option for option in options):
        return False
    for place, (size, width) in enumerate(zip(tensor.shape[2:], weight.shape[2:], strict=True)):
        stride, padding, dilation = (option[min(place, len(option) - 1)] for option in options)
        if stride > 0 and seen.above((size + 2 * padding - dilation * (width - 1) - 1) // stride + 1):
            return True
    return False


def _convolution_3d(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dim() == 5 and tensor.is_contiguous()


# --- normalisation and recurrent layers


def _strided_norm(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dim() >= 4 and not tensor.is_contiguous()


def _strided_norm_5d(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dim() == 5 and not tensor.is_contiguous()


def _norm_without_input_gradient(seen: Seen) -> bool:
    return not seen.wants(2, 0) and (seen.wants(2, 1) or seen.wants(2, 2))


def _lstm_drops(seen: Seen) -> bool:
    """lstm(input, hx, params, has_biases, num_layers, dropout, train, ...)"""
    return (
        seen.tensor(0) is not None
        and len(seen.all) > 6
        and _number(seen.all[4]) >= 2
        and _number(seen.all[5]) > 0
        and _number(seen.all[6]) != 0
    )


def _lstm_dropout_backward(seen: Seen) -> bool:
    if not _lstm_drops(seen) or not torch.is_grad_enabled():
        return False
    trained = (seen.all[0], *(seen.all[2] if isinstance(seen.all[2], (list, tuple)) else ()))
    return any(tensor.requires_grad for tensor in trained)


def _lstm_strided(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and not tensor.is_contiguous() and tensor.requires_grad and torch.is_grad_enabled()


# --- attention


def _value_width(seen: Seen) -> bool:
    query, value = seen.tensor(0), seen.tensor(1)
    return (
        query is not None
        and value is not None
        and query.dim() > 0
        and value.dim() > 0
        and query.shape[-1] != value.shape[-1]
    )


def _causal_half(seen: Seen) -> bool:
    query = seen.tensor(0)
    if query is None or query.dim() < 2 or not _number(seen.at(2)) or query.shape[-2] < 2:
        return False
    return query.dtype in _HALVES


def _dropout(seen: Seen) -> bool:
    return _number(seen.at(2)) > 0


# --- sizes


def _elements(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and seen.above(tensor.numel())


def _cat_elements(seen: Seen) -> bool:
    tensors = seen.at(0)
    return isinstance(tensors, (list, tuple)) and seen.above(sum(tensor.numel() for tensor in tensors))


def _fold_elements(seen: Seen) -> bool:
    tensor = seen.tensor(0)
    return tensor is not None and tensor.dim() >= 2 and seen.above(tensor.shape[-1] * tensor.shape[-2])


def _bytes(seen: Seen) -> bool:
    return any(
        isinstance(value, torch.Tensor) and value.is_mps and not value.is_sparse and seen.above(value.nbytes)
        for value in seen.all
    )


def _deterministic(_: Seen) -> bool:
    return torch.are_deterministic_algorithms_enabled()


def _grad_scaler(seen: Seen) -> bool:
    return seen.any_tensor(0) is not None or seen.any_tensor(1) is not None


Roles = tuple[tuple[str, ...], ...]
_COPY_ROLES: Roles = (("self",), ("src",))
_SELF: Roles = (("self",),)
_MATRICES: Roles = (("mat1", "input", "self"), ("mat2", "weight"))
_BATCHED: Roles = (("batch1", "self"), ("batch2", "mat2"))
_LAYER: Roles = (("input", "self"), ("weight",), ("output_mask",))
_ATTENTION: Roles = (("query",), ("value",), ("is_causal",))

CHECKS: dict[Check, tuple[Callable[[Seen], bool], Roles]] = {
    Check.NARROWING_COPY: (_narrowing_copy, _COPY_ROLES),
    Check.OFFSET_COPY: (_offset_copy, _COPY_ROLES),
    Check.GAPPY_COPY: (_gappy_copy, _COPY_ROLES),
    Check.DOUBLE_COPY: (_double_copy, _COPY_ROLES),
    Check.CPU_SCALAR_VIEW: (_cpu_scalar_view, (("self",), ("other",))),
    Check.LONG_INNER: (_long_inner, _MATRICES),
    Check.LONG_INNER_BACKWARD: (_long_inner_backward, (("self",), ("weight",), ("output_mask",))),
    Check.LONG_INNER_BATCHED: (_long_inner_batched, _BATCHED),
    Check.EXPANDED_MATRIX: (_expanded_matrix, _MATRICES),
    Check.HUGE_BATCHED: (_huge_batched, _BATCHED),
    Check.INTEGERS: (_integers, _SELF),
    Check.STRIDED_WEIGHT: (_strided_weight, _LAYER),
    Check.CHANNEL_SLICE: (_channel_slice, _LAYER),
    Check.WIDE_KERNEL: (_wide_kernel, _LAYER),
    Check.LARGE_MINIBATCH: (_large_minibatch, _LAYER),
    Check.LARGE_OUTPUT: (_large_output, _LAYER),
    Check.CONVOLUTION_3D: (_convolution_3d, _LAYER),
    Check.STRIDED_NORM: (_strided_norm, _LAYER),
    Check.STRIDED_NORM_5D: (_strided_norm_5d, _LAYER),
    Check.NORM_WITHOUT_INPUT_GRADIENT: (_norm_without_input_gradient, _LAYER),
    Check.LSTM_DROPOUT: (_lstm_drops, _LAYER),
    Check.LSTM_DROPOUT_BACKWARD: (_lstm_dropout_backward, _LAYER),
    Check.LSTM_STRIDED: (_lstm_strided, _LAYER),
    Check.VALUE_WIDTH: (_value_width, _ATTENTION),
    Check.CAUSAL_HALF: (_causal_half, _ATTENTION),
    Check.DROPOUT: (_dropout, (("query",), ("value",), ("dropout_p",))),
    Check.ELEMENTS: (_elements, _SELF),
    Check.CAT_ELEMENTS: (_cat_elements, (("tensors",),)),
    Check.FOLD_ELEMENTS: (_fold_elements, _SELF),
    Check.MATMUL_OUTPUT: (_matmul_output, _BATCHED),
    Check.BYTES: (_bytes, ()),
    Check.DETERMINISTIC: (_deterministic, ()),
    Check.GRAD_SCALER: (_grad_scaler, (("grad_scale",), ("found_inf",))),
}
"""The condition of each check, and what it asks for: of each role the first name that the operator has."""
