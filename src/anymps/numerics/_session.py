"""Switches the check on and off, and says if there is nothing to compare."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Literal

from anymps._errors import EnableError, UsageError
from anymps._settings import row_of
from anymps.device import State, count_real_calls, native, state
from anymps.numerics._check import REFUSED, Found, NumberCheck, say
from anymps.rules import has_metal_kernel, installed_torch

Which = Literal["some", "all"]
WHICH: Final = row_of("check_numbers").words
NOTHING_TO_COMPARE: Final = (
    "check-numbers: this machine's CPU computes everything, so there is nothing to compare; add --kernels real "
    "(PyTorch's own Metal kernels) or --substrate cuda (an NVIDIA GPU), or run on a Mac"
)

_running: NumberCheck | None = None


def can_differ(current: State) -> bool:
    """Whether something other than this machine's CPU computes."""
    return not current.virtual or current.substrate == "cuda" or current.kernels == "real"


def start_checking(which: str = "some", told: Callable[[Found, int], None] | None = None) -> NumberCheck | None:
    """Compare numbers from now on, in all threads, until `stop_checking`; None, and a line, if there is nothing to.

    Raises EnableError without the device or if the check runs already, and UsageError for another word than some and
    all.
    """
    global _running
    current = state()
    if current is None:
        raise EnableError("anymps: nothing to check yet; call anymps.enable() first")
    if which not in WHICH:
        raise UsageError(f"check_numbers: {which!r} must be {' or '.join(WHICH)}")
    if _running is not None:
        raise EnableError("anymps: this process's numbers are already being checked")
    if not can_differ(current):
        say(NOTHING_TO_COMPARE)
        return None
    in_host_memory = current.virtual and current.substrate == "host"
    by_kernels = count_real_calls if current.kernels == "real" else None
    _running = NumberCheck(by_mpsgraph(current), told, in_host_memory=in_host_memory, by_kernels=by_kernels)
    native().check_numbers(_running.begin, _running.end, which == "all")
    return _running


def stop_checking(note: Callable[[str, object], None] | None = None) -> None:
    """Compare no longer; a recording's `note` is given what was compared. Harmless if nothing is compared."""
    global _running
    if _running is not None:
        native().stop_checking_numbers()
        if note is not None:
            note("numbers", _running.facts())
        _running = None


def by_mpsgraph(current: State) -> Callable[[str], bool]:
    """Whether MPSGraph computes an operator, by its name without namespace and overload; on a real Mac alone."""
    release = installed_torch().version.release

    def is_graphs(name: str) -> bool:
        return not current.virtual and not has_metal_kernel(name, release)

    return is_graphs


def line_of_program() -> str:
    """`train.py:12`, the innermost frame that is neither torch's nor ours; empty where there is none.

    A recording knows its lines itself; this is for a run without one.
    """
    frame: FrameType | None = sys._getframe(1)
    core = native()
    while frame is not None:
        if not core.is_internal(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class CheckedNumbers:
    """What `anymps.check_numbers` returns: `found`, the wrong results in order, and how many calls were compared.

    When the block ends, each line of the program with wrong numbers is reported in one line on standard error.
    """

    def __init__(self, which: Which) -> None:
        self._which = which
        self._check: NumberCheck | None = None
        self._places: dict[tuple[str, str], list[Found]] = {}
        self.found: list[Found] = []

    def __enter__(self) -> CheckedNumbers:
        self._check = start_checking(self._which, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._check is not None:
            stop_checking()
            for (place, _), found in self._places.items():
                say(f"{place}: {told(found[0], len(found))}")

    @property
    def compared(self) -> int:
        """How many calls were compared so far."""
        return sum(self._check.compared.values()) if self._check is not None else 0

    @property
    def left_out(self) -> dict[str, int]:
        """How many calls were not compared so far, by the reason."""
        return dict(self._check.left_out) if self._check is not None else {}

    def _note(self, found: Found, site: int) -> None:
        self.found.append(found)
        self._places.setdefault((line_of_program(), found.operator), []).append(found)


def check_numbers(which: Which = "some") -> CheckedNumbers:
    """A context manager that compares the results of mps operators with the CPU's, computed in a wider type.

    For each signature (operator, dtypes, sizes, strides), the first three calls are compared, then calls at doubling
    intervals; with "all", every call. After the block, `.found` holds the results that differ by more than rounding
    can explain, and they are listed on standard error, by line. Inside `anymps.record()` they also become findings.
    Raises EnableError without a device, and UsageError for any other word.
    """
    return CheckedNumbers(which)


def told(found: Found, times: int = 1) -> str:
    """A wrong result in one sentence."""
    if found.kind == REFUSED:
        return f"{found.operator} of {found.dtype} ran, but the CPU rejects it: {found.expected}"
    share = f"{found.wrong:,} of {found.count:,} elements" if found.count > 1 else "its only element"
    worst = f"; worst at [{', '.join(map(str, found.index))}]" if found.index else ""
    often = f", {times} times" if times > 1 else ""
    allowed = "must be exact" if found.bound == "exact" else f"allowed: {found.bound}"
    return (
        f"{found.operator} of {found.dtype} got {share} wrong{often}{worst}: "
        f"{found.found}, but the CPU computes {found.expected} ({allowed})"
    )
