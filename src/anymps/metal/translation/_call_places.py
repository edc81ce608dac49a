"""Calls of the program's own functions that come to a barrier or a SIMD call: each tells the runtime where it stands.

A SIMD call is one call for the lanes that came to it the same way. Two calls of one function in two branches are two
ways, as on a Mac, where a kernel's functions are inlined.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from anymps.metal.translation._brackets import closing, closing_angle
from anymps.metal.translation._structure import Function
from anymps.metal.translation._tokens import Edit, Token

_CALLS = "::anymps_sync::calls()"
CALLED: Final = " ::anymps_sync::Called anymps_called;"
_BEFORE_EXPRESSIONS = frozenset({"return", "else", "do", "case"})


def call_edits(
    code: list[Token], functions: Sequence[Function], classes: Container[str], synced: Container[str]
) -> Iterator[Edit]:
    """The edits to the bodies of `functions`: see `Called` of shim/msl/sync.h. `synced` are names that reach a call."""
    unfit = {function.name for function in functions if any(token.text == "constexpr" for token in function.head)}
    told = {
        function.name
        for function in functions
        if not function.kernel
        and function.name in synced
        and function.name not in classes
        and function.name not in unfit
        and function.name != "operator"
    }
    for function in functions:
        first, last = function.body
        if function.name in told:
            yield Edit(code[first].end, code[first].end, CALLED)
        for index in range(first + 1, last):
            if code[index].kind == "name" and code[index].text in told:
                yield from _call(code, index)


def _call(code: list[Token], index: int) -> Iterator[Edit]:
    opening = index + 1
    if code[opening].text == "<":
        close = closing_angle(code, opening)
        if close == opening:
            return
        opening = close + 1
    if code[opening].text != "(":
        return
    close = closing(code, opening)
    if close > opening + 1:
        if code[opening + 1].text != "{":
            yield Edit(code[opening].end, code[opening].end, f"({_CALLS}, ")
            end = code[_end_of_argument(code, opening + 1, close)].start
            yield Edit(end, end, ")")
        return
    start = index
    while code[start - 1].text == "::":
        start -= 2 if code[start - 2].kind == "name" else 1
    before = code[start - 1]
    if before.text in (".", "->", ">") or (before.kind == "name" and before.text not in _BEFORE_EXPRESSIONS):
        return  # of an object, or no call
    yield Edit(code[start].start, code[start].start, f"({_CALLS}, ")
    yield Edit(code[close].end, code[close].end, ")")


def _end_of_argument(code: list[Token], index: int, last: int) -> int:
    """The comma behind the argument that begins at `index`, or `last`."""
    while index < last and code[index].text != ",":
        text = code[index].text
        if text in ("(", "[", "{"):
            index = closing(code, index)
        elif text == "<" and code[index - 1].kind == "name":
            close = closing_angle(code, index)
            if code[close + 1].text in ("(", "::", "{"):
                index = close
        index += 1
    return index
