"""Times a function that is named on the command line, on one device or alternately on several."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._command_settings import BenchSettings
from anymps._errors import BuildError, EnableError, UsageError
from anymps._text import first_line
from anymps.cleanup import leave_signals
from anymps.commands._target import Target, TargetNotFoundError, execute
from anymps.commands.bench._session import bench_text, more_runs, recorded_steps

if TYPE_CHECKING:
    from anymps.commands.bench._prediction import Prediction
    from anymps.timing import Comparison, Contender, Timing


class BenchFunction:
    """`module:function` or `file.py:function`, and the devices to time it on."""

    def __init__(self, home: str, name: str, asked: BenchSettings) -> None:
        self._home, self._name, self._asked = home, name, asked
        self._devices = [device.strip() for device in (asked.devices or "mps").split(",")]
        self._comparison: Comparison | None = None
        self._predictions: list[Prediction] = []

    def run(self) -> int:
        """Time it, print the result on stdout, and return the exit status.

        Raises AnympsError: there is no such function or device. What the user's code raises is shown, with status 1.
        """
        is_module = not self._home.endswith(".py")
        target = Target(self._home, is_module=is_module)
        target.check()
        _check_devices(self._devices, self._asked)
        target.set_import_path()
        leave_signals()
        with contextlib.redirect_stdout(sys.stderr):
            status, _ = execute(self._time)
        if self._comparison is not None:
            print(bench_text(self._comparison, self._predictions, as_json=self._asked.json))
        return status

    def _time(self) -> None:
        """Import, prepare and time. Raises TargetNotFoundError."""
        from anymps.timing import compare

        asked, function = self._asked, self._find()
        takes_device = "device" in _parameters(function)
        if len(self._devices) > 1 and not takes_device:
            raise TargetNotFoundError(
                f"{self._home}:{self._name} has no parameter 'device', so it cannot be put on "
                f"{' and '.join(self._devices)}: give it one, or name one device"
            )
        contenders: dict[str, Contender] = {}
        for device in self._devices:
            name = self._name if len(self._devices) == 1 else f"{self._name} on {device}"
            contenders[name] = _prepare(function, device, takes_device)
        self._comparison = compare(
            contenders, warmup=asked.warmup, repeat=asked.repeat, min_time=asked.min_time, calls=asked.calls
        )
        timings = (replace(timing, more=more_runs(timing.n, asked.repeat)) for timing in self._comparison.timings)
        self._comparison = replace(self._comparison, timings=tuple(timings))
        if asked.predict:
            for timing in self._comparison.timings:
                if timing.device.startswith("mps"):
                    self._predictions.append(_predicted(timing, contenders[timing.name], asked.torch))

    def _find(self) -> Callable[..., object]:
        module = self._import()
        function: Callable[..., object] | None = getattr(module, self._name, None)
        if function is None:
            raise TargetNotFoundError(f"{self._home} has no function {self._name}")
        if not callable(function):
            raise TargetNotFoundError(f"{self._home}:{self._name} is not a function")
        needed = [
            name
            for name, parameter in _parameters(function).items()
            if name != "device"
            and parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if needed:
            raise TargetNotFoundError(
                f"{self._home}:{self._name} needs {', '.join(needed)}: only a parameter 'device' is passed to it"
            )
        return function

    def _import(self) -> object:
        if self._home.endswith(".py"):
            name = Path(self._home).stem
            spec = importlib.util.spec_from_file_location(name, self._home)
            assert spec is not None and spec.loader is not None  # the ending is that of Python's source files
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            return module
        try:
            return importlib.import_module(self._home)
        except ModuleNotFoundError as error:
            if error.name is not None and (self._home == error.name or self._home.startswith(f"{error.name}.")):
                raise TargetNotFoundError(f"there is no module named {self._home!r}") from None
            raise


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except ValueError:  # a builtin that does not tell
        return {}


def _prepare(function: Callable[..., object], device: str, takes_device: bool) -> Contender:
    """The function to time: the named one, or the function that it returns.

    Only a first call shows which. That call is timed too, because it compiles.
    """
    from anymps.timing import Contender, Stopwatch

    results: list[object] = []

    def call() -> object:
        return function(device=device) if takes_device else function()

    first = Stopwatch.of(device).time(lambda: results.append(call()))
    prepared = results.pop()
    return Contender(prepared, device) if inspect.isroutine(prepared) else Contender(call, device, first)


def _predicted(timing: Timing, contender: Contender, torch: str) -> Prediction:
    """What is predicted for a function: some more calls of it are recorded, each as a step."""
    import anymps
    from anymps.commands.bench._prediction import Prediction, predict

    try:
        with anymps.record() as capture:
            for _ in range(recorded_steps(timing)):
                with capture.call():
                    result = contender.function()
                del result  # between two calls, where its time is no step's
    except (BuildError, EnableError) as error:  # a Mac without a compiler, a function that records itself
        return Prediction(timing, None, error.reason)
    return predict(timing, capture.recording, torch)


def _check_devices(devices: Sequence[str], asked: BenchSettings) -> None:
    """Switch mps on if it is wanted. Raises UsageError for a device that is not there."""
    if len(set(devices)) < len(devices):
        raise UsageError(f"--device {','.join(devices)} names a device twice")
    if any(name.partition(":")[0] == "mps" for name in devices):
        import anymps

        anymps.enable(**{**asked.device(), "start_method": "system"})
    elif asked.mac is not None:
        raise UsageError("--mac is for the device mps, which --device does not name")
    for name in devices:
        _check_device(name)


def _check_device(name: str) -> None:
    import torch

    try:
        torch.empty(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what torch raises, by kind of device
        raise UsageError(f"there is no device {name!r} here: {first_line(str(error))}") from error
