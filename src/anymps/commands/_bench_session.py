"""The session of `anymps bench` with a script: some steps to warm up, some that count, and the end."""

from __future__ import annotations

__all__ = ["BenchSession"]

import contextlib
import sys
from typing import TYPE_CHECKING

from anymps._errors import UsageError
from anymps.commands._bench_json import bench_json
from anymps.commands._target import Target

if TYPE_CHECKING:
    from anymps.train.timing import StepTimer


class Enough(SystemExit):
    """The steps that were asked for are timed; ends the script with status 0."""


class BenchSession:
    """A `Session` of `run_target` that times optimizer steps and prints them on stdout."""

    def __init__(self, mac: str | None, fallback: bool | None, warmup: int, repeat: int, as_json: bool) -> None:
        self._mac, self._fallback = mac, fallback
        self._warmup, self._repeat, self._as_json = warmup, repeat, as_json
        self._name = ""
        self._timer: StepTimer | None = None
        self._stack = contextlib.ExitStack()

    def start(self, target: Target) -> None:
        """Switch the device on and watch the optimizers."""
        import anymps

        anymps.enable(self._mac, fallback=self._fallback, start_method="system")  # as beside it on the CPU
        from anymps.train.timing import StepTimer

        self._name = f"step of {target.name}"
        self._timer = self._stack.enter_context(StepTimer(self._warmup, self._on_step))
        self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))

    def finish(self, ending: dict[str, object]) -> int:
        """Print the result. Raises UsageError if the script made too few steps for one."""
        self.keep(ending)
        timing = self._timer.timing(self._name) if self._timer is not None else None
        if timing is not None:
            print(bench_json([timing]) if self._as_json else timing)
        elif self._timer is not None and not ending.get("status"):
            made = f"{self._timer.steps} optimizer step{'' if self._timer.steps == 1 else 's'}"
            raise UsageError(
                f"{self._name.removeprefix('step of ')} made {made}, and the first {self._warmup} do not count"
            )
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Watch no longer."""
        self._stack.close()

    def _on_step(self, counted: int) -> None:
        if counted >= self._repeat:
            raise Enough(0)
