"""Large CPU tensors without values: a model of billions of weights is made and moved without its bytes being written.

A CPU tensor that nobody writes costs address space only. While a plan runs, filling, casting or copying a large CPU
tensor of floating-point numbers therefore does nothing beyond its shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

LARGE = 4 * 1024**2
"""Bytes from which on a tensor is hollow."""

_FILLS = frozenset(
    getattr(Tensor, name)
    for name in [
        "normal_",
        "uniform_",
        "zero_",
        "fill_",
        "erfinv_",
        "mul_",
        "add_",
        "sub_",
        "div_",
        "clamp_",
        "copy_",
        "trunc_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "bernoulli_",
        "random_",
        "geometric_",
        "copysign_",
        "sign_",
    ]
)
_CASTS = frozenset(
    (Tensor.to, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.type, Tensor.clone, Tensor.contiguous)
)
_FACTORIES = frozenset((torch.zeros, torch.ones, torch.full, torch.rand, torch.randn))
# Written in Python, so what they call inside is out of the mode's sight. Known by name: libraries put their own
# functions in their place (transformers 5, initialization.py).
_INITIALIZERS = frozenset(name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_"))


_EMBEDDINGS = frozenset((torch.nn.functional.embedding, torch.embedding))


class Hollow(TorchFunctionMode):
    """The mode; enter it once, in the thread that runs the script."""

    embeds = False
    """Whether the script looked up embeddings."""

    def __torch_function__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _EMBEDDINGS:
            self.embeds = True
        if function in _FILLS and args and is_large(args[0]):
            return args[0]
        if isinstance(function, FunctionType) and function.__name__ in _INITIALIZERS:
            tensor = args[0] if args else kwargs.get("tensor")
            if is_large(tensor):
                return tensor
        if function in _CASTS and is_large(args[0]):
            return self._cast(function, args, kwargs)
        if function in _FACTORIES and _elements(function, args, kwargs) * 2 >= LARGE:
            return self._make(function, args, kwargs)
        return function(*args, **kwargs)

    def _cast(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the call gives, worked out on a meta tensor; a call that leaves the CPU is made as it is."""
        source: Tensor = args[0]
        if source.requires_grad and torch.is_grad_enabled():
            return function(*args, **kwargs)
        shape = torch.empty_strided(source.size(), source.stride(), dtype=source.dtype, device="meta")
        if any(_names_device(value) for value in (*args[1:], *kwargs.values())):
            return function(*args, **kwargs)
        result = function(shape, *args[1:], **kwargs)
        return source if result is shape else _empty_like(result)

    def _make(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("out") is not None or _device(kwargs) != "cpu":
            return function(*args, **kwargs)
        grad = kwargs.get("requires_grad", False)
        plain = {name: value for name, value in kwargs.items() if name != "generator"}
        shape = function(*args, **{**plain, "device": "meta", "requires_grad": False})
        if not shape.is_floating_point() or shape.nbytes < LARGE:
            return function(*args, **kwargs)
        return _empty_like(shape).requires_grad_(grad)


def is_large(value: object) -> bool:
    """Whether a value is a hollow tensor."""
    return (
        isinstance(value, Tensor)
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and value.is_floating_point()
        and value.nbytes >= LARGE
    )


def _empty_like(shape: Tensor) -> Tensor:
    return torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype, device="cpu")


def _names_device(value: object) -> bool:
    return isinstance(value, (torch.device, str, Tensor)) and str(value) != "cpu"


def _device(kwargs: dict[str, Any]) -> str:
    device = kwargs.get("device")
    return torch.device(device).type if device is not None else torch.get_default_device().type


def _elements(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args)
    if function is torch.full and args:
        size = args[0]
    if len(size) == 1 and not isinstance(size[0], int):
        size = size[0]
    try:
        return math.prod(int(length) for length in size)
    except (TypeError, ValueError):
        return 0
