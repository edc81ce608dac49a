"""Transformers: a callback for its Trainer."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from anymps._errors import UsageError
from anymps.integrations._steps import FIRST, LAST, Steps


def _callback() -> Any:
    try:
        return importlib.import_module("transformers").TrainerCallback
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
    raise UsageError("anymps.integrations.TransformersCallback needs Transformers: pip install transformers")


class TransformersCallback(_callback()):  # type: ignore[misc]
    """Records steps `first` to `last` of a training: `Trainer(..., callbacks=[TransformersCallback()])`.

    The numbers go to the history in the Trainer's state. To send them to TensorBoard, or wherever else `report_to`
    says, name the Trainer: `trainer.add_callback(TransformersCallback(trainer=trainer))`. The files are in `folder`, by
    default `anymps` in `output_dir`.
    """

    def __init__(
        self,
        first: int = FIRST,
        last: int = LAST,
        folder: str | os.PathLike[str] | None = None,
        *,
        trainer: Any = None,
    ) -> None:
        self._first, self._last, self._folder = first, last, folder
        self._trainer = trainer
        self._steps: Steps | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin before the iterators of loaders are made."""
        if state.is_world_process_zero:
            self._steps = Steps(self._first, self._last, self._folder or Path(args.output_dir, "anymps"))
            self._steps.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell at once when the last step is over."""
        if self._steps is not None and self._steps.is_over:
            self._finish(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A training may end before the last step."""
        self._finish(state)

    def _finish(self, state: Any) -> None:
        steps, self._steps = self._steps, None
        judged = steps.finish() if steps is not None else None
        if judged is None:
            return
        if self._trainer is not None:
            self._trainer.log(dict(judged.numbers))
        else:
            state.log_history.append({**judged.numbers, "step": state.global_step})
