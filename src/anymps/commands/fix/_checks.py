"""Checks of a changed script without a Mac: the losses without a GPU, and options that name a device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from anymps._text import listed
from anymps.commands.fix._runs import Progress, Runs, Tried
from anymps.fix import Budget, Cause, Disagreement, Program, agree, by_lines_of, names_device
from anymps.plan import end_all

_STEPS = 5
_LEAST_S = 10.0
_CUDA_DEVICE = "/dev/nvidiactl"
_WHERE = {"cpu": "without a GPU", "cuda": "on this machine's CUDA GPU"}


@dataclass
class Checks:
    """Compares a program before and after its edits in short runs, two at a time, and keeps what it found in `notes`.

    `options` are what to add to the command line, each in a pair of runs of its own.
    """

    runs: Runs
    budget: Budget
    progress: Progress
    options: Sequence[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)
    _befores: dict[tuple[str, ...], Tried] = field(default_factory=dict)

    def __call__(self, before: Program, after: Program) -> Disagreement | None:
        """What speaks against the edits between two programs; None if nothing does."""
        self.notes.clear()
        options = list(self.options) if names_device(before, after) else []
        places = ["cpu", *(["cuda"] if _has_cuda() else [])]
        named = [_WHERE[device] for device in places] + [f"with {' '.join(words)}" for words in options]
        self.progress.run(
            f"the first steps {', '.join(named)}", min(self.budget.longest or _LEAST_S, _LEAST_S) * len(named)
        )
        for device in places:
            found = self._without_gpu(before, after, device)
            if found is not None:
                return found
        for number, words in enumerate(options):
            if self.budget.left <= 0:
                rest = listed([" ".join(one) for one in options[number:]])
                why = f"it was not run with {rest} within the time of {self.budget.runs} runs (--runs allows more)"
                return Disagreement(why, cause=Cause.NOT_SEEN)
            found = self._with_option(before, after, words)
            if found is not None:
                return found
        return None

    @property
    def _seconds(self) -> float:
        """How long one short run may take."""
        return max(_LEAST_S, min(self.budget.longest, self.budget.left))

    def _without_gpu(self, before: Program, after: Program, device: str) -> Disagreement | None:
        where = _WHERE[device]

        def run(program: Program) -> Tried:
            steps = min(self.runs.order.steps or _STEPS, _STEPS)
            return self.runs.try_out(program, device=device, cuda_as_mps=False, steps=steps, seconds=self._seconds)

        first, second = self._pair((device,), before, after, run)
        if first.ran.error and not (first.ran.losses and first.ran.stops_like(second.ran)):
            now = f"it stops there too: {second.ran.error}" if second.ran.error else "it runs there now"
            self.notes.append(f"{where} the script stopped before ({first.ran.error}); {now}")
            return None
        if second.ran.error and not first.ran.error:
            return Disagreement(f"{where} the script stops{_place(before, after, second)}: {second.ran.error}")
        if _cut_before_model(first, second):
            return _not_seen(f"{where} nothing was computed", first, second, by_device=False)
        if first.places != second.places:
            return Disagreement(f"{where} {_moved(first, second)}")
        found = _losses_differ(first, second)
        if found:
            return Disagreement(f"{where} {found}")
        if compared := min(len(first.ran.losses), len(second.ran.losses)):
            self.notes.append(
                f"{where} the first {compared} losses agree" if compared > 1 else f"{where} the loss agrees"
            )
        elif first.cut or second.cut:
            return _not_seen(f"{where} no loss was computed", first, second, by_device=False)
        else:
            how = f"stops as before: {second.ran.error}" if second.ran.error else "runs as before"
            self.notes.append(f"{where} the script {how}")
        return None

    def _with_option(self, before: Program, after: Program, words: tuple[str, ...]) -> Disagreement | None:
        name = " ".join(words)

        def run(program: Program) -> Tried:
            return self.runs.try_out(program, added=words, steps=1, seconds=self._seconds)

        first, second = self._pair(words, before, after, run)
        if first.ran.error or not (first.places or first.cut):
            return None  # it could not be run with it as it was
        if second.ran.error:
            return Disagreement(f"with {name} the script stops{_place(before, after, second)}: {second.ran.error}")
        if _cut_before_model(first, second):
            return _not_seen(f"with {name} nothing was computed", first, second)
        if first.places != second.places:
            return Disagreement(f"with {name} {_moved(first, second)}")
        self.notes.append(f"with {name} the model is on {' and '.join(second.places)}, as before")
        return None

    def _pair(
        self, key: tuple[str, ...], before: Program, after: Program, run: Callable[[Program], Tried]
    ) -> tuple[Tried, Tried]:
        """The same short run of two programs, at the same time."""
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            first = None if key in self._befores else pool.submit(run, before)
            second = pool.submit(run, after)
            try:
                if first is not None:
                    self._befores[key] = first.result()
                ended = second.result()
            except BaseException:
                end_all()
                raise
        self.budget.spend(time.monotonic() - began, whole=False)
        return self._befores[key], ended


def _cut_before_model(*tries: Tried) -> bool:
    """Whether one of the runs was ended for its time before any model of it was called: it tells of no device."""
    return any(tried.cut and not tried.places for tried in tries)


def _not_seen(what: str, first: Tried, second: Tried, *, by_device: bool = True) -> Disagreement:
    """A run that was ended for its time before it showed what is compared."""
    limit = next(tried.limit for tried in (first, second) if tried.cut)
    return Disagreement(f"{what} within {limit:.0f} s (--runs allows more)", cause=Cause.NOT_SEEN, by_device=by_device)


def _place(before: Program, after: Program, second: Tried) -> str:
    """Where the changed script stopped, by the lines of the other."""
    return by_lines_of(before, after, second.ran).place


def _moved(first: Tried, second: Tried) -> str:
    here, there = (" and ".join(tried.places) or "no device" for tried in (second, first))
    return f"the model is on {here} instead of {there}"


def _losses_differ(first: Tried, second: Tried) -> str:
    """How the losses differ, as far as both runs came."""
    if not (first.cut or second.cut) and len(first.ran.losses) != len(second.ran.losses):
        return f"{len(second.ran.losses):,} losses instead of {len(first.ran.losses):,}"
    for one, other in zip(first.ran.losses, second.ran.losses, strict=False):
        if not agree(one, other):
            return f"losses differ: {other:.6g} instead of {one:.6g}"
    return ""


def _has_cuda() -> bool:
    """Whether this machine has a CUDA GPU, and torch is built for one."""
    try:
        return os.path.exists(_CUDA_DEVICE) and "+cpu" not in version("torch")
    except PackageNotFoundError:
        return False
