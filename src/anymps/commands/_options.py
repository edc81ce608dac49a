"""The options of a command, made from the rows of its settings; the command is given one object of them."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from anymps._command_settings import FACES, rows_of
from anymps._errors import CostError, UsageError
from anymps._numbers import whole
from anymps._setting_row import Row

_F = TypeVar("_F", bound=Callable[..., Any])


def takes(command: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add the options of a command; its function gets their values as its first argument, one object of `FACES`."""
    rows = rows_of(command)

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def called(**given: Any) -> int:
            values = {row.name: given.pop(row.name) for row in rows}
            return function(FACES[command](**values), **given)

        for row in reversed(rows):
            called = _option(row, command)(called)
        return called

    return decorate


def _option(row: Row, command: str) -> Callable[[_F], _F]:
    """One option."""
    names = [row.name, *([row.short] if row.short else [])]
    words: dict[str, Any] = {"default": row.default, "show_default": row.shows_default}
    words["help"] = row.helps.get(command, row.help) or None
    words["callback"] = _READ.get(row.name)
    if row.kind == "flag":
        words |= {"is_flag": True, "flag_value": row.default is not True}
    elif row.kind == "texts":
        words |= {"multiple": True, "metavar": row.metavar}
    elif row.kind == "word":
        words["type"] = _WordOrOther(row) if row.other else click.Choice(row.words)
    elif row.kind == "file":
        words |= {"type": click.Path(path_type=Path), "metavar": row.metavar or "FILE"}
    elif row.kind in ("steps", "range"):
        words["type"] = _Steps(row, command)
    elif row.kind == "integer":
        words |= {"type": click.IntRange(_whole(row.least), _whole(row.most)), "metavar": "N"}
    elif row.kind == "number":
        words |= {"type": Finite(row.least, row.most), "metavar": "SECONDS"}
    elif row.kind == "text":
        words["metavar"] = row.metavar
    flag = f"{row.flag}/{row.flag.replace('--', '--no-', 1)}" if row.kind == "switch" else row.flag
    return click.option(flag, *names, **words)


class _WordOrOther(click.Choice[str]):
    """One of the words of a setting, or what may stand beside them, such as a release of torch."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.words)
        self._row = row

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word. Fails for another text, which is neither."""
        if not self._row.takes(value):
            self.fail(f"{value!r} is not {self._row.choices}.", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """`[cpu|real|RELEASE]`."""
        return f"[{self._row.placeholder}]"


class Finite(click.FloatRange):
    """A number within the limits of a setting: neither NaN, which compares with none of them, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Fails for another text."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return number


class _Steps(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Steps of a run: `8`, the first eight, also as `:8` and `0:8`; for a range `10:30` too."""

    name = "steps"

    def __init__(self, row: Row, command: str) -> None:
        self._row, self._command = row, command

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """How many steps, or the first and the last where a range may be given. Fails for another text."""
        text = str(value)
        first, _, last = text.rpartition(":")
        is_range = self._row.kind == "range"
        begin, end = whole(first or "0"), whole(last)
        if begin is None or end is None or begin >= end:
            more = ", or a range of them, such as 10:30" if is_range else ""
            self.fail(f"{text!r} is not a number of steps, such as 8{more}", param, ctx)
        if is_range:
            return begin, end
        if begin:
            why = f"{self._command} looks at a run from its first step on"
            self.fail(f"{text!r} leaves out steps, and {why}: write a number of steps, such as {last}", param, ctx)
        if self._row.most is not None and end > self._row.most:
            self.fail(f"{text!r} is more than {self._row.most:,.0f} steps", param, ctx)
        return end

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """`N|FIRST:LAST`."""
        return self._row.metavar


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _release(_: click.Context, __: click.Parameter, text: str) -> str:
    """The release, empty for none. Raises UsageError, in one line, for a text that is none."""
    from anymps.cost import check_release

    try:
        return check_release(text) if text else ""
    except CostError as error:
        raise UsageError(f"--torch: {error.reason}") from None


def _root(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    return None if text is None else os.path.realpath(text)


_READ: Final = {"torch": _release, "root": _root}
"""What reads the text of a setting."""
