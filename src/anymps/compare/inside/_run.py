"""One side of a comparison, inside its process: the tracer, and what tells it about steps, losses and autocast."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from anymps.capture import OptimizerNumbers
from anymps.compare._trace import NOWHERE, Ending, TraceWriter
from anymps.compare.inside._draws import draw_on_cpu
from anymps.compare.inside._names import rename_devices
from anymps.compare.inside._tracer import Tracer, is_full_step
from anymps.device import count_real_calls
from anymps.record import Site
from anymps.record.loop import Rounds
from anymps.runs.inside import watch_losses

if TYPE_CHECKING:
    from anymps.compare._traced import Traced
    from anymps.device import State


class TracedRun:
    """Traces this process from `start` until `close`, as it is `asked`.

    `device` is where the script is to compute: `cpu`, `mps` or `cuda`. The first steps are traced call by call, then
    steps at doubling intervals.
    """

    def __init__(self, asked: Traced, device: str, path: Path, state: State | None) -> None:
        self._writer = TraceWriter(path)
        facts = {"device": device, "torch": torch.__version__}
        if state is not None:
            facts |= {"mac": state.mac.name if state.mac is not None else "", "kernels": state.kernels}
            facts |= {"substrate": state.substrate, "virtual": "1" if state.virtual else ""}
            facts |= {"kernels_torch": state.kernels_torch}
        self._writer.row("facts", facts)
        self._device, self._asked = device, asked
        self._tracer = Tracer(
            self._writer,
            device,
            in_host_memory=state is not None and state.virtual and state.substrate == "host",
            by_kernels=count_real_calls,
        )
        self._is_entered = False
        self._optimizers, self._rounds = OptimizerNumbers(), Rounds()

    def start(self) -> None:
        """Begin: what runs from now on is traced."""
        if self._asked.names:
            rename_devices(self._asked.names, self._device)
        if self._asked.random_on_cpu and self._device != "cpu":
            draw_on_cpu(self._device)
        torch.compiler.set_stance("force_eager")  # compiled code has no calls to compare
        watch_losses(self._note_losses)
        self._watch_autocast()
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._stepped)
        self._writer.row("traced", 0)
        self._tracer.__enter__()  # type: ignore[no-untyped-call]
        self._is_entered = True

    def close(self, error: str, site: Site | None) -> None:
        """End the trace. `error` is how the run ended, in one line, and `site` the program's line of it."""
        tracer = self._tracer
        tracer.is_on = False
        self._writer.close(Ending(error, site or NOWHERE, False, tracer.step, tracer.left_out))

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Optimizers that take turns make a step together."""
        tracer = self._tracer
        self._rounds.step(self._optimizers.number(optimizer))
        if not self._rounds.have_ended(tracer.step + 1, self._optimizers.existing):
            return
        tracer.step = max(tracer.step + 1, self._rounds.number)
        was_on, tracer.is_on = tracer.is_on, is_full_step(tracer.step, self._asked.full_steps)
        if was_on != tracer.is_on:
            self._switch()
        if tracer.is_on:
            self._writer.row("traced", tracer.step)

    def _switch(self) -> None:
        """Leave the mode where nothing is traced, for speed; not from within another."""
        tracer = self._tracer
        if tracer.is_on and not self._is_entered:
            tracer.__enter__()  # type: ignore[no-untyped-call]
            self._is_entered = True
        elif not tracer.is_on and torch.utils._python_dispatch._get_current_dispatch_mode() is tracer:
            tracer.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._is_entered = False

    def _note_losses(self, losses: Sequence[torch.Tensor]) -> None:
        """Write the numbers that backward begins with."""
        tracer = self._tracer
        site, _ = tracer.lines.now()
        tracer.backward_site = self._writer.number("site", site) if site is not None else 0
        for loss in losses:
            with torch.utils._python_dispatch._disable_current_modes():
                value = float(loss.detach())
            self._writer.row("loss", [tracer.calls, tracer.backward_site, tracer.step, value])

    def _watch_autocast(self) -> None:
        """Keep which dtype the innermost autocast casts to: in a call that it has cast it is off already."""
        from torch.amp.autocast_mode import autocast

        tracer = self._tracer
        outer: list[str] = []
        entered, left = autocast.__enter__, autocast.__exit__

        @functools.wraps(entered)
        def enter(context: Any) -> Any:
            outer.append(tracer.autocast)
            is_on = context._enabled and context.device == self._device
            tracer.autocast = str(context.fast_dtype).removeprefix("torch.") if is_on else ""
            return entered(context)  # type: ignore[no-untyped-call]

        @functools.wraps(left)
        def leave(context: Any, *error: Any) -> Any:
            tracer.autocast = outer.pop() if outer else ""
            return left(context, *error)

        autocast.__enter__, autocast.__exit__ = enter, leave  # type: ignore[method-assign]
