"""The session of one run of `anymps fix`: the same seeds each time, the losses kept, nothing written."""

from __future__ import annotations

__all__ = ["LOSSES", "ProofSession"]

import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps.children import ChildParts, ChildSettings, serve_sources
from anymps.commands._apart import divert_writes, end_with_parent
from anymps.commands._enough import Enough, identity
from anymps.commands._target import Target
from anymps.plan import Turns

if TYPE_CHECKING:
    from torch import Tensor

    from anymps.capture import Capture

LOSSES = "losses.json"
"""File beside the recording, with the values that backward was called on."""
_SEED = 0


@dataclass(frozen=True)
class Order:
    """What the process is asked for.

    `changed` names, by file of the program, the one with the text to run instead; `steps` is when the script has run
    far enough, in steps of its loop.
    """

    recording: str
    changed: Mapping[str, str] = field(default_factory=dict)
    mac: str | None = None
    fallback: bool | None = None
    cuda_as_mps: bool = False
    steps: int | None = None


class ProofSession:
    """A `Session` of `run_target` that writes a recording and the losses into a private folder."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._capture: Capture | None = None
        self._children = ChildParts()
        self._losses: list[Tensor] = []

    def start(self, target: Target) -> None:
        """Divert writes, switch the device on, seed all generators and begin to record."""
        end_with_parent()
        private = os.path.dirname(self._order.recording)
        divert_writes(private)
        for path, text in self._order.changed.items():
            with open(text, "rb") as source, open(path, "wb") as file:  # diverted: a reader sees what runs
                file.write(source.read())
        serve_sources(self._order.changed)
        import torch

        import anymps

        order = self._order
        anymps.enable(order.mac, fallback=order.fallback, quiet=True, cuda_as_mps=order.cuda_as_mps or None)
        random.seed(_SEED)
        torch.manual_seed(_SEED)
        try:
            import numpy
        except ImportError:
            pass
        else:
            numpy.random.seed(_SEED)
        torch.autograd.backward = self._watching(torch.autograd.backward)
        capture = anymps.record(order.recording, script=target.name, argv=list(target.arguments))
        self._capture = capture.__enter__()
        self._children.open(ChildSettings(order.mac), order.changed)
        if order.steps is not None:
            _end_after(order.steps)

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording, with those of its processes in it, and write the losses."""
        self._children.wait()
        self.keep(ending)
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording and write the losses."""
        if self._capture is not None:
            self._capture.close(ending)
            self._children.join(self._capture.recording, Path(self._order.recording))
            self._children.close()
            self._capture = None
            values = [loss.item() for loss in self._losses]
            Path(self._order.recording).with_name(LOSSES).write_text(json.dumps(values), encoding="utf-8")

    def _watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward`, which `Tensor.backward` calls, too."""

        def backward(tensors: Any, *given: Any, **named: Any) -> Any:
            for tensor in tensors if isinstance(tensors, (tuple, list)) else (tensors,):
                if getattr(tensor, "numel", lambda: 0)() == 1 and not tensor.is_complex():
                    self._losses.append(tensor.detach())
            return original(tensors, *given, **named)

        return backward


def _end_after(steps: int) -> None:
    """End the script after so many steps of its loop: optimizers that take turns make one together."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    turns = Turns(steps)

    def after_step(optimizer: Any, *_: Any) -> None:
        if turns.step(identity(optimizer)):
            sys.stdout.flush()
            raise Enough(0)

    register_optimizer_step_post_hook(after_step)  # after the recording's own hook, which ends the step
