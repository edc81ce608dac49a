"""Lightning: a callback for its Trainer, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from anymps._errors import UsageError
from anymps.integrations._steps import FIRST, LAST, Steps


def _callback() -> Any:
    """The base class: of the package that the program has imported already, else of the one that is installed."""
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules)
    found = next(filter(None, map(_installed, names)), None)
    if found is None:
        raise UsageError("anymps.integrations.LightningCallback needs Lightning: pip install lightning")
    return found.Callback


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name.startswith(str(error.name)):
            return None
        raise


class LightningCallback(_callback()):  # type: ignore[misc]
    """Records steps `first` to `last` of a fit: `Trainer(callbacks=[LightningCallback()])`.

    The numbers go to every logger of the trainer. The files are in `folder`, by default `anymps` in the trainer's
    `log_dir`.
    """

    def __init__(self, first: int = FIRST, last: int = LAST, folder: str | os.PathLike[str] | None = None) -> None:
        self._first, self._last, self._folder = first, last, folder
        self._steps: Steps | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin before the optimizer and the iterators of loaders are made."""
        folder = self._folder or Path(trainer.log_dir or trainer.default_root_dir, "anymps")
        if stage == "fit" and trainer.is_global_zero:
            self._steps = Steps(self._first, self._last, folder)
            self._steps.begin()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Tell at once when the last step is over."""
        if self._steps is not None and self._steps.is_over:
            self._finish(trainer)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """A training may end before the last step."""
        self._finish(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """A training that fails has a report, too."""
        self._finish(trainer, exception)

    def _finish(self, trainer: Any, error: BaseException | None = None) -> None:
        steps, self._steps = self._steps, None
        judged = steps.finish(error) if steps is not None else None
        if judged is None:
            return
        for logger in trainer.loggers:
            logger.log_metrics(dict(judged.numbers), step=trainer.global_step)
