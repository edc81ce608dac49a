"""What a plan notes in the process of a measurement: the script runs on shapes, with what its scenario changes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._paths import package_of
from anymps.plan._scenario import Scenario
from anymps.runs import Observer, Order

if TYPE_CHECKING:
    from anymps.device import State

_RETRIES = re.compile(rb"out of memory|OutOfMemoryError|find_executable_batch_size|auto_find_batch_size")
"""What code says that catches torch's error, or leaves that to accelerate or transformers."""


@dataclass
class Shapes(Observer):
    """Applies a scenario, and notes what the script's batches look like; `placed`: its arguments hold sizes, too."""

    scenario: Scenario
    placed: bool

    def start(self, order: Order, folder: Path, state: State | None) -> None:
        """Change what the scenario changes, and keep large tensors of the CPU without values."""
        from anymps.plan.inside import Hollow, apply

        self._home = sys.path[0]  # the script may change it
        self._applied = apply(self.scenario)
        self._hollow = Hollow()
        self._hollow.__enter__()  # type: ignore[no-untyped-call]

    def stepped(self) -> bool:
        """What the first step tells is enough."""
        return True

    def stop(self) -> None:
        """The rest is no part of the script."""
        with suppress(Exception):
            self._hollow.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def facts(self, ending: Mapping[str, object]) -> dict[str, object]:
        """Its batches, what it does where memory runs out, and why the scenario changed nothing."""
        return {
            "batch": self._applied.batch,
            "sequence": self._applied.sequence,
            "last_batch": self._applied.last_batch,
            "adapters": quantised.adapters if (quantised := self._applied.quantised) else 0,
            "embeds": self._hollow.embeds,
            "retries": _tells_of_retries(self._home),
            "without_effect": self._applied.without_effect(self.scenario, self.placed),
        }


def _tells_of_retries(folder: str) -> bool:
    """Whether a loaded module of `folder` says what to do where memory runs out."""
    inside = os.path.realpath(folder) + os.sep
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.realpath(file).startswith(inside) or package_of(file):
            continue
        try:
            with open(file, "rb") as source:
                if _RETRIES.search(source.read()):
                    return True
        except OSError:
            continue
    return False
