"""The session of an order: the device, the seeds, what is recorded and noted, and the end after some steps."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import RequireError, UsageError
from anymps.children import ChildParts, ChildSettings, serve_sources
from anymps.runs._order import Order
from anymps.runs._process import NOTED, RECORDING
from anymps.runs.inside._endings import error_of, trail_of
from anymps.runs.inside._isolation import DIVERT_AGAIN, divert_writes, end_with_parent
from anymps.runs.inside._loops import end_after

if TYPE_CHECKING:
    from anymps.capture import Capture
    from anymps.device import State
    from anymps.runs.sandbox import Layer


_SEED: Final = 0  # of all runs, which are compared


class OrderSession:
    """A `Session` of `run_target` that leaves in a folder what an order asks for."""

    def __init__(self, order: Order, folder: Path) -> None:
        self._order, self._folder = order, folder
        self._capture: Capture | None = None
        self._children = ChildParts()
        self._layer: Layer | None = None
        self._ended_early = False
        self._loop: tuple[str, int] | None = None  # whose rounds ended the script
        self._is_open = False

    def start(self, target: object) -> None:
        """Divert writes, switch the device on, seed all generators and begin to record.

        Raises AnympsError if the device is not available.
        """
        end_with_parent()
        order = self._order
        if not order.may_write:
            self._layer = divert_writes(str(self._folder))
        sources = self._serve_sources()
        folder = sys.path[0]
        try:
            state = self._choose_device()
            if order.seeded:
                _seed_generators()
        except Exception:
            if hidden := _hidden_package(folder):
                raise UsageError(hidden) from None
            raise
        order.observer.start(order, self._folder, state)
        if order.recorded:
            from anymps.capture import record

            name, *arguments = order.words[order.words[0] == "-m" :]
            capture = record(self._folder / RECORDING, script=name, argv=arguments)
            self._capture = capture.__enter__()
        if order.children:
            prepare, on_mps = (DIVERT_AGAIN, str(self._folder)), order.on == "mps"
            self._children.open(ChildSettings(order.device.mac, prepare=prepare, device=on_mps, sources=sources))
        if order.steps is not None:
            end_after(order.steps, order.on or "mps", self._stepped, self._note_end)
        self._is_open = True

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording, with those of its processes in it, and note the facts."""
        if self._order.children:
            self._children.wait()
        self.keep(ending)
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording and note the facts."""
        if not self._is_open:
            return
        self._is_open = False
        self._order.observer.stop()
        unrecorded = ""
        if self._capture is not None:
            self._capture.close(ending)
            unrecorded = str(self._capture.failure or "")
            if self._order.children:
                self._children.join(self._capture.recording, self._folder / RECORDING)
        self._children.close()
        self._note(ending, unrecorded)

    def _note(self, ending: Mapping[str, object], unrecorded: str = "") -> None:
        layer = self._layer
        facts = {
            "error": error_of(ending),
            "trail": trail_of(ending),
            "early": self._ended_early,
            "loop": self._loop,
            "unrecorded": unrecorded,
            "written": [] if layer is None else list(layer.written),
            "removed": [] if layer is None else list(layer.removed),
            **self._order.observer.facts(ending),
        }
        (self._folder / NOTED).write_text(json.dumps(facts), encoding="utf-8")

    def _stepped(self) -> None:
        if self._order.observer.stepped() and not (self._folder / NOTED).exists():
            try:
                self._note({})
            except OSError:  # told when the recording is closed
                return

    def _note_end(self, loop: tuple[str, int] | None) -> None:
        self._ended_early, self._loop = True, loop

    def _serve_sources(self) -> dict[str, str]:
        """Have this process run the order's texts, which a reader of the files sees, too."""
        texts = {}
        for number, (path, source) in enumerate(self._order.sources.items()):
            texts[path] = str(self._folder / f"text{number}.py")
            for place in (texts[path], path):
                with open(place, "wb") as file:  # diverted
                    file.write(source)
        serve_sources(texts)
        return texts

    def _choose_device(self) -> State | None:
        on = self._order.on
        if on == "mps":
            from anymps.device import enable

            return enable(**self._order.device.device(), quiet=True)
        if on == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        if on:
            _hide_mps()
        if on == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise RequireError("anymps: torch finds no NVIDIA GPU, so nothing can run on cuda")
        return None


def _hidden_package(folder: str) -> str:
    """In one sentence, the file of `folder` that was imported in place of an installed package; or nothing."""
    place = os.path.realpath(folder)
    elsewhere = [path for path in sys.path if os.path.realpath(path) != place]
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name == "__main__" or not file:
            continue
        own = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
        if os.path.dirname(os.path.realpath(own)) == place and PathFinder.find_spec(name, elsewhere) is not None:
            return (
                f"{os.path.basename(own)} beside the script is imported in place of the package {name}, which torch "
                "needs: give it another name"
            )
    return ""


def _seed_generators() -> None:
    """Seed Python's, torch's and NumPy's generators."""
    import torch

    random.seed(_SEED)
    torch.manual_seed(_SEED)
    with suppress(ImportError):
        import numpy

        numpy.random.seed(_SEED)


def _hide_mps() -> None:
    """Let a Mac's own GPU be out of sight; elsewhere there is none."""
    if sys.platform != "darwin":
        return
    import torch

    mps: Any = torch.backends.mps
    mps.is_available = mps.is_built = lambda: False
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: False
    accelerator.current_accelerator = lambda *_, **__: None
    accelerator.device_count = lambda: 0
