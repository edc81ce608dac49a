"""Names of CUDA devices, as programs write them, and the functions of torch that take one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _device

from anymps._numbers import whole
from anymps.device.cuda._uses import report_use

# Functions that take a device and are not in torch's own list of those that make tensors.
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_OTHER = ("normal", "tensor", "as_tensor", "asarray", "from_file", "empty_quantized", "nested_tensor")
_AUTOCAST = ("get_autocast_dtype", "is_autocast_enabled", "set_autocast_dtype", "set_autocast_enabled")
_METHODS = ("to", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "new")
TYPES = ("device", "Generator", "Stream", "Event")  # classes that are made with a device by name


def stand_in(function: str, name: str) -> str:
    """The name of the mps device for `cuda` and `cuda:0`, as an argument of a function of torch.

    Raises torch.AcceleratorError for another device of CUDA, as CUDA does with one GPU.
    """
    index = name[5:]
    number = whole(index)
    if number:
        raise no_such_device(number)
    report_use()
    return f"mps{name[4:]}"


def no_such_device(index: int) -> Exception:
    """The error of CUDA for a GPU that is not there."""
    return torch.AcceleratorError(
        "CUDA error: invalid device ordinal\n"
        f"anymps: a Mac has one GPU, so there is no cuda:{index}; use cuda or cuda:0"
    )


def index_of(device: Any = None) -> int:
    """The index of a device of CUDA that a program names by text, number or object; None is the current one.

    Raises ValueError for a device that is none of CUDA's, and torch.AcceleratorError for one that is not there.
    """
    if device is None:
        return 0
    if hasattr(device, "__index__"):  # a number, of NumPy too
        index = operator.index(device)
    else:
        device = torch.device(device)
        if device.type != "mps":
            raise ValueError(f"Expected a cuda device, but got: {device}")  # torch/cuda/_utils.py
        index = device.index or 0
    if index > 0:
        raise no_such_device(index)
    return 0


def place_of(device: Any) -> str:
    """Where `.cuda(device)` puts something: on the mps device, which has index 0.

    Raises what `index_of` does, and RuntimeError for a negative number, which stands for no device there.
    """
    if hasattr(device, "__index__") and operator.index(device) < 0:
        raise RuntimeError("Device index must not be negative")  # torch/csrc/utils/python_arg_parser.h
    return f"mps:{index_of(device)}"


def functions_with_device() -> Iterator[Callable[..., Any]]:
    """Torch's functions, built in, that are given a device by name."""
    built_in = type(torch.empty)
    for function in _device._device_constructors():
        if isinstance(function, built_in):
            yield function
    for name in (*_LIKE, *_OTHER, *_AUTOCAST):
        function = getattr(torch, name, None)
        if isinstance(function, built_in):
            yield function
    yield torch._C._nn._parse_to  # what `Module.to` is given
    for name in _METHODS:
        yield getattr(torch._C.TensorBase, name)
