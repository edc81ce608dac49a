"""The launch that the device takes with `kernels="real"` for a call, beside the device without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.kernels import Launcher


class _Calls(TorchDispatchMode):
    """Notes the operators that a call comes to, with all arguments in the order of the schema."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema, named = func._schema, dict(kwargs or {})
        given = [
            args[at] if at < len(args) else named.get(one.name, one.default_value)
            for at, one in enumerate(schema.arguments)
        ]
        self.seen.append((schema.name + (f".{schema.overload_name}" if schema.overload_name else ""), given))
        return func(*args, **named)


def described_by(launcher: Launcher) -> set[str]:
    """The names of the operators whose launches are described."""
    return set(launcher.operators())


def run_described(
    launcher: Launcher, call: Callable[..., Any], tensors: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...] | None:
    """The results of the first operator of a call whose launch is described, on copies of this machine; else None."""
    described = described_by(launcher)
    with _Calls() as calls:
        call(*tensors)
    for operator, given in calls.seen:
        if operator in described:
            return launcher(operator, [one.cpu() if isinstance(one, torch.Tensor) else one for one in given], [])
    return None
