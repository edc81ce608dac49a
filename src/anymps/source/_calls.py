"""Sets and drops arguments of a call, in the form that the call has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from anymps.source._code import Code, Splice
from anymps.source._edits import CallEdit, Rewritten
from anymps.source._nodes import argument, last_name, unpacks


def rewritten(edit: CallEdit, code: Code) -> tuple[ast.Call, Rewritten] | None:
    """The first call of a code that an edit changes; None if it changes none."""
    for node in code.nodes:
        if isinstance(node, ast.Call) and (not edit.callee or last_name(node) in edit.callee):
            splices = _splices(edit, code, node)
            if splices:
                return node, Rewritten(tuple(splices))
    return None


def _splices(edit: CallEdit, code: Code, call: ast.Call) -> list[Splice]:
    for name, value in edit.given:
        given = argument(call, name, edit.order)
        if given is None or (value and ast.unparse(given) != value):
            return []
    splices: list[Splice] = []
    new: list[str] = []
    spans = _spans(code, call)
    for name, value in edit.set:
        given = argument(call, name, edit.order)
        if given is not None:
            if ast.unparse(given) != value:
                splices.append(Splice(*code.span(given), value))
        elif unpacks(call):
            return []
        else:
            new.append(f"{name}={value}")
    for name in edit.drop:
        given = argument(call, name, edit.order)
        if given is not None and new and given is list(spans)[-1]:
            splices.append(Splice(*spans[given], ", ".join(new)))
            new = []
        elif given is not None:
            splices.append(_dropped(code, call, list(spans.values()), list(spans).index(given)))
    return [*splices, *_added(code, call, list(spans.values()), new)]


def _spans(code: Code, call: ast.Call) -> dict[ast.expr, tuple[int, int]]:
    """Where the arguments stand, with their names, in the order of the text; by their values."""
    found = [(value, code.span(value)) for value in call.args]
    found += [(keyword.value, code.span(keyword)) for keyword in call.keywords]
    return dict(sorted(found, key=lambda argument: argument[1]))


def _added(code: Code, call: ast.Call, spans: list[tuple[int, int]], arguments: list[str]) -> Iterator[Splice]:
    """Arguments put after the last one, in a line of their own where these have one."""
    if not arguments:
        return
    end = code.span(call)[1] - 1  # the closing parenthesis
    if not spans:
        yield Splice(end, end, ", ".join(arguments))
        return
    last, after = spans[-1]
    rest = code.text[after:end]
    comma = _comma(rest)
    text = ", ".join(arguments)
    ending = re.search(r"\r\n|\r|\n", rest)
    if ending is None:
        place = after if comma is None else after + comma + 1  # `f(a, )` stays so
        yield Splice(place, place, f", {text}" if comma is None else f" {text},")
        return
    line = code.text[:last]
    margin = re.search(r"[ \t]*$", line)
    indent = margin[0] if margin and (not line[: margin.start()] or line[: margin.start()][-1] in "\r\n") else "    "
    if comma is None:
        yield Splice(after, after, ",")
    place = after + ending.start()
    yield Splice(place, place, f"{ending[0]}{indent}{text}" + ("," if comma is not None else ""))


def _comma(rest: str) -> int | None:
    """Where a comma stands in what follows the last argument, outside of comments."""
    found = re.match(r"(?:[^#,]|#[^\r\n]*)*?,", rest)
    return found.end() - 1 if found else None


def _dropped(code: Code, call: ast.Call, spans: list[tuple[int, int]], at: int) -> Splice:
    """An argument taken out, with the comma that then is one too many; a line of its own goes with it."""
    start, end = spans[at]
    if at + 1 < len(spans):
        return Splice(start, spans[at + 1][0], "")
    comma = _comma(code.text[end : code.span(call)[1] - 1])
    after = end if comma is None else end + comma + 1
    margin = re.search(r"(?:\r\n|\r|\n)[ \t]*$", code.text[:start])
    if at > 0 and margin is not None:
        return Splice(margin.start(), after, "")
    return Splice(spans[at - 1][1], end, "") if at > 0 else Splice(start, after, "")
