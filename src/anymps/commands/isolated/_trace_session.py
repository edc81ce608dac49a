"""The session of one side of `anymps compare`: the same seeds, each call traced, nothing written."""

from __future__ import annotations

import json
import linecache
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anymps._errors import RequireError
from anymps._paths import package_of
from anymps.commands._target import Target
from anymps.commands.isolated._isolation import divert_writes, end_with_parent
from anymps.commands.isolated._proof_session import error_of, trail_of
from anymps.commands.isolated._same_start import hide_mps, seed_generators
from anymps.commands.isolated._step_limit import end_after
from anymps.compare import Site

if TYPE_CHECKING:
    from anymps.compare.inside import TracedRun

TRACE: Final = "trace.jsonl"
"""The trace, in the run's folder."""


@dataclass(frozen=True)
class TraceOrder:
    """What the process is asked for: its `folder`, the `device`, the arguments of `anymps.enable` for mps.

    `steps` ends the script after that many steps of its loop; `full_steps` of them are traced call by call. `names` are
    those of devices that mean `device` in the script.
    """

    folder: str
    device: str
    enable: dict[str, Any]
    full_steps: int
    steps: int | None = None
    random_on_cpu: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> TraceOrder:
        """Read an order from the command line; `anymps compare` starts its own processes with it."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """As one word of a command line."""
        return json.dumps(asdict(self))


class TraceSession:
    """A `Session` of `run_target` that writes a trace into a private folder."""

    def __init__(self, order: TraceOrder) -> None:
        self._order = order
        self._run: TracedRun | None = None

    def start(self, target: Target) -> None:
        """Divert writes, set up the device, seed all generators and start tracing.

        Raises AnympsError if the device is not available.
        """
        end_with_parent()
        order = self._order
        divert_writes(order.folder)
        if order.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import torch

        in_host_memory, facts = False, {}
        if order.device == "mps":
            import anymps

            state = anymps.enable(**order.enable, quiet=True)
            in_host_memory = state.virtual and state.substrate == "host"
            facts = {"mac": state.mac.name if state.mac is not None else "", "kernels": state.kernels}
            facts |= {"substrate": state.substrate, "virtual": "1" if state.virtual else ""}
            facts |= {"kernels_torch": state.kernels_torch}
        else:
            hide_mps()
            if order.device == "cuda" and not torch.cuda.is_available():
                raise RequireError("anymps: torch finds no NVIDIA card, so nothing can run on cuda")
        seed_generators()
        from anymps.compare.inside import TracedRun
        from anymps.device import count_real_calls

        self._run = TracedRun(
            Path(order.folder, TRACE),
            order.device,
            full_steps=order.full_steps,
            random_on_cpu=order.random_on_cpu,
            in_host_memory=in_host_memory,
            by_kernels=count_real_calls,
            names=order.names,
            facts=facts,
        )
        self._run.start()
        if order.steps is not None:
            end_after(order.steps)

    def finish(self, ending: dict[str, object]) -> int:
        """Close the trace."""
        self.keep(ending)
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Close the trace."""
        run, self._run = self._run, None
        if run is not None:
            trail = [place for place in trail_of(ending) if not package_of(place[0])]
            run.close(error_of(ending), _site(*trail[-1]) if trail else None)


def _site(file: str, line: int) -> Site:
    return Site(file, line, "", linecache.getline(file, line).strip())
