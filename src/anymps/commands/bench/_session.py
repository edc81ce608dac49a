"""The session of `anymps bench` with a script: warm-up steps, timed steps, recorded steps, and the results as text."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from anymps._command_settings import BenchSettings
from anymps._errors import AnympsError, UsageError
from anymps._version import __version__
from anymps.commands._target import Target
from anymps.runs.inside import StepsDone

if TYPE_CHECKING:
    from anymps.capture import Capture
    from anymps.commands.bench._prediction import Prediction
    from anymps.timing import Comparison, StepTimer, Timing

FORMAT: Final = "anymps-bench"
VERSION: Final = 1
"""Of the JSON, by docs/schema/bench-1.json."""
_FEWEST, _MOST = 4, 16
"""Steps that are recorded for the prediction: of few, each may have been held up by another program."""
_RECORDED_NS: Final = 1e9
"""How long they may take, where there are more than the fewest. A recorded step takes a little longer."""


class BenchSession:
    """A `Session` of `run_target` that times optimizer steps and prints them on stdout."""

    def __init__(self, asked: BenchSettings) -> None:
        self._asked = asked
        self._name = ""
        self._timer: StepTimer | None = None
        self._timing: Timing | None = None
        self._since = 0  # steps after those that are timed
        self._recorded = _FEWEST
        self._capture: Capture | None = None
        self._unrecorded = ""
        self._stack = contextlib.ExitStack()

    def start(self, target: Target) -> None:
        """Switch the device on and watch the optimizers."""
        import anymps

        anymps.enable(**{**self._asked.device(), "start_method": "system"})  # as beside it on the CPU
        from anymps.timing import StepTimer

        self._name = f"step of {target.name}"
        self._timer = self._stack.enter_context(StepTimer(self._asked.warmup, self._on_step))
        self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))

    def finish(self, ending: dict[str, object]) -> int:
        """Print the result. Raises UsageError if the script made too few steps for one."""
        self.keep(ending)
        timing = self._timing or (self._timer.timing(self._name) if self._timer is not None else None)
        if timing is not None:
            from anymps.timing import Comparison

            timing = replace(timing, more=more_runs(timing.n, self._asked.repeat))
            found = self._prediction(timing)
            print(bench_text(Comparison((timing,)), [] if found is None else [found], as_json=self._asked.json))
        elif self._timer is not None and not ending.get("status"):
            raise UsageError(too_few_steps(self._name.removeprefix("step of "), self._timer.steps, self._asked.warmup))
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Watch no longer."""
        if self._capture is not None:
            self._capture.close(ending)
        self._stack.close()

    def _on_step(self, counted: int) -> None:
        assert self._timer is not None
        if self._timing is not None:
            self._since += 1
            # A script that calls no module is not waited for.
            if self._capture.is_over if self._capture is not None else self._since >= 2 * self._recorded:
                raise StepsDone(0)
        elif counted >= self._asked.repeat:
            self._timer.stop()
            self._timing = self._timer.timing(self._name)
            if self._timing is None or not self._asked.predict or not self._timing.device.startswith("mps"):
                raise StepsDone(0)
            self._recorded = recorded_steps(self._timing)
            self._record_from_the_next_module()

    def _record_from_the_next_module(self) -> None:
        """Begin to record where a module is called next: hooks of optimizers cannot be added by one of them."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        def begin(*_: Any) -> None:
            import anymps

            before.remove()
            capture = anymps.record(steps=(1, 1 + self._recorded))
            try:
                self._capture = capture.__enter__()
            except AnympsError as error:  # a Mac without a compiler, a recording of the script's own
                self._unrecorded = error.reason
                self._since = 2 * self._recorded

        before = register_module_forward_pre_hook(begin)
        self._stack.callback(before.remove)

    def _prediction(self, timing: Timing) -> Prediction | None:
        """What is predicted for the recorded steps, or why nothing is; None where none was asked for."""
        if not self._asked.predict or not timing.device.startswith("mps"):
            return None
        from anymps.commands.bench._prediction import Prediction, predict

        if self._capture is None:
            return Prediction(timing, None, self._unrecorded or no_step_left(timing.n + self._since))
        return predict(timing, self._capture.recording, self._asked.torch)


def recorded_steps(timing: Timing) -> int:
    """How many steps are recorded for the prediction, after those that were timed."""
    return max(_FEWEST, min(_MOST, int(_RECORDED_NS / max(1.0, timing.median_ns))))


def more_runs(made: int, repeat: int) -> str:
    """How to time more, where a measurement was to have `repeat` runs and made fewer, or as many."""
    from anymps.timing import FEW_RUNS

    return "let the script make more steps" if made < repeat else f"pass --repeat {FEW_RUNS}"


def no_step_left(made: int) -> str:
    """Why no step of a script was recorded, and what to do: after the warm-up it made `made`."""
    from anymps.timing import FEW_RUNS

    fewer = made - _FEWEST - 2
    repeat = f"time fewer steps, such as --repeat {fewer}" if fewer >= FEW_RUNS else "let it make more steps"
    return f"the script ended, or called no module, before a step could be recorded: {repeat}"


def too_few_steps(script: str, made: int, warmup: int) -> str:
    """Why no step of a script was timed, and what to do: it made `made`, of which the first `warmup` do not count."""
    function = f"time one of its functions, such as `anymps bench {script}:train_step`"
    if not made:
        return f"{script} made no optimizer step, and a step is timed from one to the next: {function}"
    steps = "1 optimizer step" if made == 1 else f"{made} optimizer steps"
    first = "the first does" if warmup == 1 else f"the first {warmup} do"
    sooner = "" if made == 1 or warmup == 1 else ", count from the second one on with --warmup 1"
    return f"{script} made {steps}, and {first} not count: let it make more{sooner}, or {function}"


def bench_text(found: Comparison, predictions: Sequence[Prediction], *, as_json: bool) -> str:
    """All of it; as JSON with two spaces of indentation, and times in nanoseconds."""
    if not as_json:
        return "\n\n".join(map(str, [found, *predictions]))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "generator": {"name": "anymps", "version": __version__},
        **found.to_json(),
        "predictions": [prediction.to_json() for prediction in predictions],
    }
    return json.dumps(content, indent=2, allow_nan=False)
