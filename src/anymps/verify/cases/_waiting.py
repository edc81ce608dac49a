"""The calls of `calls.toml`, and those among them that make the host wait for the GPU, by release."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from anymps._tables import read_table, row
from anymps._vocabulary import Wait

CALLS: Final = read_table(__file__, "calls.toml")


@dataclass(frozen=True)
class SampleCall:
    """A call on what `make` gives, and the kinds of wait that it records in releases from `since` to `until`."""

    call: Callable[..., object]
    waits: set[Wait]
    make: Callable[[], tuple[object, ...]]
    since: tuple[int, int] = (2, 11)
    until: tuple[int, int] = (2, 15)
    kernel: str = ""  # an operator that not every release has


def compiled(code: str, *names: str) -> Callable[..., Any]:
    """A row's Python as a function of these names."""
    made: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {code}", _NAMES)
    return made


def optimizer(kind: str, rate: str) -> tuple[torch.optim.Optimizer]:
    """An optimizer with a gradient to take, its learning rate a number or a tensor on the device."""
    lr = 0.1 if rate == "number" else torch.tensor([0.1]).to("mps")[0]
    fused = not kind.startswith("plain ")
    made: torch.optim.Optimizer = getattr(torch.optim, kind.removeprefix("plain "))([*weight()], lr=lr, fused=fused)
    return (made,)


def weight() -> tuple[torch.nn.Parameter]:
    """A parameter with a gradient."""
    parameter = torch.nn.Parameter(torch.ones(4).to("mps"))
    parameter.grad = torch.ones(4).to("mps")
    return (parameter,)


def scaler() -> tuple[torch.amp.GradScaler, torch.optim.Optimizer]:
    """A gradient scaler after its backward, and the optimizer."""
    parameter = torch.nn.Parameter(torch.ones(4).to("mps"))
    made = torch.amp.GradScaler("mps")
    torch.autograd.backward(made.scale(parameter.sum()))
    return made, torch.optim.SGD([parameter], lr=0.1)


def events() -> tuple[torch.mps.Event, torch.mps.Event]:
    """Two recorded events with timing."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    return start, end


_NAMES: Final[dict[str, Any]] = {made.__name__: made for made in (torch, copy, optimizer, weight, scaler, events)}
_NAMES.update({name: compiled(code) for name, code in CALLS["given"].items()})


def _waiting(call: str, given: str = "()", waits: tuple[str, ...] = (), **release: Any) -> SampleCall:
    made = {"call": eval(call, _NAMES), "waits": {Wait[name] for name in waits}, "make": compiled(given)}
    return row(SampleCall, {**release, **made})


WAITING: Final = {name: _waiting(**given) for name, given in CALLS["waits"].items()}
