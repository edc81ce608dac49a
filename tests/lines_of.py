"""The number of a line in a function of a test, found by its words."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def line_of(function: Callable[..., object], text: str) -> int:
    """The number of the one source line of a function that ends with a remark."""
    lines, start = inspect.getsourcelines(function)
    numbers = [start + index for index, line in enumerate(lines) if line.rstrip().endswith("# " + text)]
    assert len(numbers) == 1
    return numbers[0]
