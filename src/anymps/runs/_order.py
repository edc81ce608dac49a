"""An order: what a process is to run, on which device, within which limits, and what is noted of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from anymps._settings import Settings

if TYPE_CHECKING:
    from anymps.device import State

ORDER: Final = "order"
"""The file of an order, in the run's folder."""


class Observer:
    """Notes what one kind of run is made for. It is handed to the process as it is, and this one does nothing."""

    def start(self, order: Order, folder: Path, state: State | None) -> None:
        """The device is there, and the script is about to run. `state` is that of mps, None for another device.

        `folder` is the run's own: what lies there is left when the process has ended.
        """

    def stepped(self) -> bool:
        """In an order with `steps`, a step or call came; whether to note facts now, as a killed process cannot."""
        return False

    def stop(self) -> None:
        """The script has ended, and the recording is about to be closed."""

    def facts(self, ending: Mapping[str, object]) -> dict[str, object]:
        """What is known in the end, for JSON; `ending` is how the script ended, empty where it goes on."""
        return {}


@dataclass(frozen=True)
class Order:
    """One run of a script or module, `words` with `-m` and arguments, in a process of its own.

    It runs `on` mps, as `device` says it, or on a machine that has only a CPU, or that and an NVIDIA card; empty leaves
    the process as it is. If `seeded`, all generators begin with the same seed. `recorded` makes a recording, with
    `children` also of the processes that the script starts; `observer` notes what else is asked for.

    After `steps` of its loop the script is ended, with or without an optimizer, after `seconds` the process. If
    `patient` it may use its seconds of the processor, however busy the machine is, and is ended after PATIENCE times as
    long.

    Unless it `may_write`, what it writes goes to the run's folder. `sources` are texts to run in place of files.
    `environment` are variables, None for one to do without; `directory` is another current folder.
    """

    words: tuple[str, ...]
    on: Literal["mps", "cpu", "cuda", ""] = "mps"
    device: Settings = field(default_factory=Settings)
    seeded: bool = True
    recorded: bool = True
    children: bool = False
    observer: Observer = field(default_factory=Observer)
    steps: int | None = None
    seconds: float = 600.0
    patient: bool = False
    may_write: bool = False
    sources: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    directory: str = ""

    @classmethod
    def read(cls, path: Path) -> Order:
        """What `write` left in a folder of this user's, which no script could write to yet."""
        return cast(Order, pickle.loads(path.read_bytes()))

    def write(self, path: Path) -> None:
        """Leave it for the process."""
        path.write_bytes(pickle.dumps(self, protocol=4))
