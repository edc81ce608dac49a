"""What one call leaves in a recording, and the lines of a test that it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import anymps
from anymps.record import Noted, Recording


def recorded(function: Callable[[], object]) -> Recording:
    """The recording of one call."""
    with anymps.record() as capture:
        function()
    return capture.recording


def noted(function: Callable[[], object], what: str) -> tuple[Noted, ...]:
    """What one call leaves about a habit."""
    return recorded(function).noted(what)


def line_of(function: Callable[..., object], text: str) -> int:
    """The number of the one source line of a function that ends with a remark."""
    lines, start = inspect.getsourcelines(function)
    numbers = [start + index for index, line in enumerate(lines) if line.rstrip().endswith("# " + text)]
    assert len(numbers) == 1
    return numbers[0]
