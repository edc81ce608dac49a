"""Facts about operators for the check: how the CPU computes them, what they overwrite, why they are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from anymps._text import base_name
from anymps.numerics._functions import is_fused_step, named

Reference = Callable[..., Any]

_UNINITIALISED: Final = named("uninitialised")
_RANDOM: Final = named("random")
_FIRST_ALONE: Final = named("running") | named("first_alone")

_CHANCES: Final = ("dropout_p", "dropout")
"""Arguments that say how often a number is dropped; with 0 nothing is random."""

RANDOM: Final = "random numbers"
UNINITIALISED: Final = "uninitialised memory"
NO_KERNEL: Final = "no CPU kernel"


_aten = torch.ops.aten


def _linear_backward(
    x: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor, wanted: list[bool]
) -> tuple[torch.Tensor | None, ...]:
    rows = gradient.reshape(-1, gradient.shape[-1])
    of_input = (rows @ weight).reshape(x.shape) if wanted[0] else None
    of_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if wanted[1] else None
    return of_input, of_weight, rows.sum(0) if wanted[2] else None


def _attention(*arguments: Any, **named: Any) -> Any:
    return _aten._scaled_dot_product_attention_math(*arguments, **named)


def _max_pool2d_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> torch.Tensor:
    places = _aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[1]
    made: torch.Tensor = _aten.max_pool2d_with_indices_backward(
        gradient, x, kernel, stride, padding, dilation, ceil_mode, places
    )
    return made


_EQUIVALENTS: Final[dict[str, Reference]] = {
    "linear_backward": _linear_backward,
    "_scaled_dot_product_attention_math_for_mps": _attention,
    "max_pool2d_backward": _max_pool2d_backward,
}
"""Operators that mps has and the CPU lacks, computed with operators of the CPU; each takes the same arguments.

Source: torch 2.11 to 2.15, native_functions.yaml, rows with kernels for MPS alone.
"""


@dataclass(frozen=True)
class Operation:
    """One overload. `reason` says why it is not compared; empty for one that is."""

    name: str
    base: str
    call: Reference | None
    arguments: tuple[Any, ...]  # the schema's
    written: frozenset[int]  # places of arguments that it writes into
    fresh: tuple[bool, ...]  # by result: whether it is a new tensor, and no argument handed back
    results: int | None  # how many of its fresh results are compared; None: all
    reason: str

    @property
    def is_torchs(self) -> bool:
        """Whether it is one of torch's own, and no program's."""
        return self.name.startswith("aten::")

    @property
    def is_fused_step(self) -> bool:
        """Whether it is the step of a fused optimizer."""
        return is_fused_step(self.base)


@cache
def operation(name: str, overload: str) -> Operation:
    """That of `aten::add_` and `Tensor`."""
    base = base_name(name).removeprefix("_foreach_")
    namespace, _, plain = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), plain)
    call = getattr(packet, overload or "default")
    arguments = tuple(call._schema.arguments)
    written = frozenset(
        place
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    reason = ""
    equivalent = _EQUIVALENTS.get(plain)
    if base in _UNINITIALISED or base.startswith("new_empty"):
        reason = UNINITIALISED
    elif base in _RANDOM or (torch.Tag.nondeterministic_seeded in call.tags and not _may_drop(arguments)):
        reason = RANDOM
    elif equivalent is None and not _computed_by_cpu(name, overload):
        reason = NO_KERNEL
    return Operation(
        name=name + (f".{overload}" if overload else ""),
        base=base,
        call=equivalent or call,
        arguments=arguments,
        written=written,
        fresh=tuple(said.alias_info is None for said in call._schema.returns),
        results=1 if base in _FIRST_ALONE else None,
        reason=reason,
    )


def drops(named: dict[str, Any]) -> bool:
    """Whether a call of attention or of an LSTM drops numbers at random."""
    return any(bool(named.get(name)) for name in _CHANCES) and named.get("train") is not False


def _may_drop(arguments: tuple[Any, ...]) -> bool:
    return any(said.name in _CHANCES for said in arguments)


def _computed_by_cpu(name: str, overload: str) -> bool:
    full = f"{name}.{overload}" if overload else name
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for key in keys)
