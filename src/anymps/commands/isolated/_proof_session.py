"""The session of one run of `anymps fix`: the same seeds each time, the losses kept, nothing written."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anymps
from anymps._settings import Settings
from anymps._text import error_words
from anymps.children import ChildParts, ChildSettings, serve_sources
from anymps.commands._target import Target
from anymps.commands.isolated._isolation import DIVERT_AGAIN, divert_writes, end_with_parent
from anymps.commands.isolated._reached_lines import ReachedLines
from anymps.commands.isolated._same_start import hide_mps, seed_generators
from anymps.commands.isolated._step_limit import end_after

if TYPE_CHECKING:
    from torch import Tensor

    from anymps.capture import Capture

FACTS = "facts.json"
"""File in the run's folder: `losses` (values that backward was called on), `trail` (lines of the exception that ended
it, the outermost first), `reached` (of the watched lines), `places` (types of the devices on which the model was last),
`error`, `used` (whether anything was on mps), `early` (whether its steps ended it) and `modules` (files of the
program's modules)."""
_ANYMPS = os.path.dirname(anymps.__file__) + os.sep


@dataclass(frozen=True)
class Order:
    """What the process is asked for.

    `folder` is its own, `asked` says how the device is. `changed` names, by file of the program, the one with the text
    to run instead; `watch` lines of such files; `steps` is when the script has run far enough, in steps of its loop.
    Without `recorded` there is no recording. `device` is `mps`, or `cpu` for a machine without a GPU. With
    `draws_on_cpu`, mps draws the random numbers that the CPU would.
    """

    folder: str
    asked: Settings = field(default_factory=Settings)
    changed: Mapping[str, str] = field(default_factory=dict)
    watch: Mapping[str, Sequence[int]] = field(default_factory=dict)
    steps: int | None = None
    recorded: bool = True
    device: str = "mps"
    draws_on_cpu: bool = False

    @classmethod
    def read(cls, text: str) -> Order:
        """The order of a command line: `anymps fix` starts its own processes with it."""
        told = json.loads(text)
        return cls(**{**told, "asked": Settings(**told["asked"])})

    def to_json(self) -> str:
        """As one word of a command line; of what was asked for only what is about the device."""
        told = {row.name: getattr(self, row.name) for row in fields(self)}
        return json.dumps({**told, "asked": self.asked.device()})

    @property
    def recording(self) -> Path:
        """Where the recording lies."""
        return Path(self.folder, "recording")


class ProofSession:
    """A `Session` of `run_target` that writes a recording and the facts of the run into a private folder."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._capture: Capture | None = None
        self._children = ChildParts()
        self._losses: list[float | Tensor] = []
        self._is_in_memory = False
        self._places: tuple[str, ...] = ()
        self._reached = ReachedLines(order.watch)
        self._ended_early = False
        self._is_open = False

    def start(self, target: Target) -> None:
        """Divert writes, switch the device on, seed all generators and begin to record."""
        end_with_parent()
        order = self._order
        divert_writes(order.folder)
        for path, text in order.changed.items():
            with open(text, "rb") as source, open(path, "wb") as file:  # diverted: a reader sees what runs
                file.write(source.read())
        serve_sources(order.changed)
        if order.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import torch

        if order.device == "mps":
            state = anymps.enable(**order.asked.device(), quiet=True)
            self._is_in_memory = state.virtual and state.substrate == "host"
        else:
            hide_mps()
        if order.draws_on_cpu:
            from anymps.compare.inside import draw_on_cpu

            draw_on_cpu()
        seed_generators()
        torch.autograd.backward = self._watching(torch.autograd.backward)
        self._watch_places()
        if order.recorded:
            capture = anymps.record(order.recording, script=target.name, argv=list(target.arguments))
            self._capture = capture.__enter__()
        prepare = (DIVERT_AGAIN, order.folder)
        settings = ChildSettings(order.asked.mac, prepare=prepare, device=order.device == "mps")
        self._children.open(settings, order.changed)
        if order.steps is not None:
            end_after(order.steps, at_end=self._note_end)
        self._is_open = True
        self._reached.watch()

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording, with those of its processes in it, and write the facts."""
        self._children.wait()
        self.keep(ending)
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording and write the facts."""
        if not self._is_open:
            return
        self._is_open = False
        if self._capture is not None:
            self._capture.close(ending)
            self._children.join(self._capture.recording, self._order.recording)
            self._capture = None
        self._children.close()
        facts = {
            "losses": [loss if isinstance(loss, float) else float(loss.item()) for loss in self._losses],
            "trail": trail_of(ending),
            "reached": sorted(self._reached.found),
            "places": self._places,
            "error": error_of(ending),
            "used": self._order.device == "mps" and _used_mps(),
            "early": self._ended_early,
            "modules": _modules(),
        }
        Path(self._order.folder, FACTS).write_text(json.dumps(facts), encoding="utf-8")

    def _note_end(self) -> None:
        self._ended_early = True

    def _watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward`, which `Tensor.backward` calls, too."""

        def backward(tensors: Any, *given: Any, **named: Any) -> Any:
            for tensor in tensors if isinstance(tensors, (tuple, list)) else (tensors,):
                if getattr(tensor, "numel", lambda: 0)() == 1 and not tensor.is_complex():
                    self._losses.append(self._value(tensor.detach()))
            return original(tensors, *given, **named)

        return backward

    def _value(self, loss: Tensor) -> float | Tensor:
        """A loss, read at once from the virtual device's memory: one that is kept changes the blocks handed out next.

        Elsewhere reading waits for the device, so it is kept.
        """
        if loss.device.type != "mps" or not self._is_in_memory:
            return loss
        import torch

        content = bytearray(ctypes.string_at(loss.data_ptr(), loss.itemsize))
        return float(torch.frombuffer(content, dtype=loss.dtype).item())

    def _watch_places(self) -> None:
        """Keep where the parameters of the last optimizer that stepped are, without one those of the last model."""
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        stepped = False

        def before_step(optimizer: Any, *_: Any) -> None:
            nonlocal stepped
            stepped = True
            tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
            self._places = tuple(sorted({tensor.device.type for tensor in tensors}))

        register_optimizer_step_pre_hook(before_step)
        if self._order.recorded:
            return  # only what compares devices pays for each module's call

        def before_forward(module: Any, _: Any) -> None:
            if not stepped:
                tensor = next(module.parameters(), None)
                self._places = self._places if tensor is None else (tensor.device.type,)

        register_module_forward_pre_hook(before_forward)


def _used_mps() -> bool:
    import torch

    return torch.mps.driver_allocated_memory() > 0


def trail_of(ending: Mapping[str, object]) -> list[tuple[str, int]]:
    error = getattr(sys, "last_value", None) if "exception" in ending else None
    trace = getattr(error, "__traceback__", None)
    lines = []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(("<", _ANYMPS)):
            lines.append((os.path.realpath(name), int(trace.tb_lineno)))
        trace = trace.tb_next
    return lines


def error_of(ending: Mapping[str, object]) -> str:
    """How a run ended, in one line; empty for one that ended with 0."""
    if not ending.get("status") and "exception" not in ending:
        return ""
    name = str(ending.get("exception", f"exit status {ending.get('status')}"))
    return error_words(name, _said(str(ending.get("message", ""))))


def _said(message: str) -> str:
    """What an exception says; of one that torch passes on from a worker, what was raised there."""
    if "Original Traceback" not in message:
        return message
    return next((line for line in reversed(message.splitlines()) if line[:1].isalpha()), message)


def _modules() -> list[str]:
    """The files of what was imported, installed packages apart."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(
        os.path.realpath(file) for file in files if isinstance(file, str) and file.endswith(".py") and _is_own(file)
    )


def _is_own(file: str) -> bool:
    return not file.startswith((_ANYMPS, sys.prefix, sys.base_prefix))
