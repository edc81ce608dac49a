"""Edits as data: what to change in code; and the gate that the new code passes before it is accepted.

It parses, its names are bound there or come with it, and `**options` does not hold what it gives by name.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anymps.source._code import Code, Splice, spliced
from anymps.source._files import tree_of
from anymps.source._lines import line_end, line_starts, rows_within_texts
from anymps.source._names import BUILTINS
from anymps.source._nodes import argument, last_name, names_in, unpacks
from anymps.source._place import Place
from anymps.source._statements import FUNCTIONS, is_main_guard

_DEVICE_NAME = re.compile(r'"(mps|cuda|cpu)"')
_HEAD = 'if __name__ == "__main__":'
_MARGIN = "    "
_KEPT_ABOVE = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Insert:
    """A line of code below the imports of a file; it binds `name`, which the changed line needs."""

    name: str
    code: str


@dataclass(frozen=True)
class Rewritten:
    """What becomes of a code: its splices, and what they need elsewhere in the file.

    `shown` is the part of it that a sentence shows, with the change; all of it if None.
    """

    splices: tuple[Splice, ...]
    inserts: tuple[Insert, ...] = ()
    shown: tuple[int, int] | None = None


@dataclass(frozen=True)
class LineEdit:
    """A rewritten statement. `rewrite` returns None if there is nothing to change."""

    rewrite: Callable[[Place], Rewritten | None]


@dataclass(frozen=True)
class CallEdit:
    """Arguments of a call: those to `set`, each with its value as code, and those to `drop`.

    `callee` are the last names of functions that it is for. `order` names the first positional parameters.
    """

    callee: tuple[str, ...]
    set: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def rewrite(self, place: Place) -> Rewritten | None:
        """What becomes of the first call of a statement that it changes; None if it changes none."""
        for call in place.code.calls:
            if last_name(call) in self.callee:
                splices = _splices(self, place.code, call)
                if splices:
                    return Rewritten(tuple(splices), shown=place.code.span(call))
        return None


@dataclass(frozen=True)
class Guard:
    """`if __name__ == "__main__":` around the end of the script: a change of a whole file."""


Edit = LineEdit | CallEdit | Guard


@dataclass(frozen=True)
class Built:
    """An edit at a place: what becomes of its code, of which `old` becomes `new`, `start` characters from its start."""

    code: str
    start: int
    old: str
    new: str
    inserts: tuple[Insert, ...]


def build(edit: Edit, place: Place) -> Built | None:
    """What an edit makes of a place; None where it has nothing to change, or not without breaking something."""
    if isinstance(edit, Guard):
        return None
    changed = edit.rewrite(place)
    return None if changed is None else _checked(place, changed, changed.shown or (0, len(place.code.text)))


def fits(new: str, place: Place) -> bool:
    """Whether a line of code may be shown beside a place: it parses, and its names are known there."""
    code = Code.of(new)
    return code is not None and code.names <= place.code.names | BUILTINS | place.names.bound


def _checked(place: Place, changed: Rewritten, region: tuple[int, int]) -> Built | None:
    splices = [_in_quotes_of(place.code.text, splice) for splice in changed.splices]
    text = place.code.spliced(splices)
    new = Code.of(text)
    if new is None or text == place.code.text or new.is_head != place.code.is_head:
        return None
    inserted = {insert.name for insert in changed.inserts}
    needed = {name for insert in changed.inserts for name in names_in(ast.parse(insert.code))} - inserted
    bound = place.names.bound | place.code.names | BUILTINS
    if not new.names <= bound | inserted or not needed <= bound | ({place.names.torch} - {""}):
        return None
    start, end = region
    own = [Splice(splice.start - start, splice.end - start, splice.text) for splice in splices]
    part = place.code.text[start:end]
    return Built(text, start, part, spliced(part, own), changed.inserts)


def _in_quotes_of(code: str, splice: Splice) -> Splice:
    """A splice with the names of devices in single quotes where the code has no others."""
    if "'" not in code or '"' in code:
        return splice
    return splice._replace(text=_DEVICE_NAME.sub(r"'\1'", splice.text))


def _splices(edit: CallEdit, code: Code, call: ast.Call) -> list[Splice]:
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


def guarded_line(text: str) -> int | None:
    """The line from which a script's end would be guarded: what comes after its last import, function and class.

    Functions of the script still find their globals, and workers the functions and classes that they are sent by name.
    None where there is a guard already, or nothing to guard.
    """
    body = tree_of(text).body
    start = _start(body)
    return None if start == len(body) or any(map(is_main_guard, body)) else body[start].lineno


def with_guard(text: str) -> str | None:
    """The text with its end under the guard; None where `guarded_line` is."""
    line = guarded_line(text)
    if line is None:
        return None
    body = tree_of(text).body
    start = _start(body)
    starts = [*line_starts(text), len(text)]
    lines = [text[first:end] for first, end in itertools.pairwise(starts)]
    above = line - 1
    while above > 0 and lines[above - 1].lstrip().startswith("#"):
        above -= 1  # a comment goes with what it is about
    if start:  # a text over several lines may end with one that looks like a comment
        above = max(above, _end(body[start - 1]))
    last = _end(body[-1])
    kept = rows_within_texts(text)
    end = line_end(text[: starts[line - 1]], text)
    gap = end if above > 0 and lines[above - 1].strip() else ""
    inner = [
        row if number in kept or not row.strip() else f"{_MARGIN}{row}"
        for number, row in enumerate(lines[above:last], above + 1)
    ]
    return "".join([*lines[:above], gap, f"{_HEAD}{end}", *inner, *lines[last:]])


def _start(body: Sequence[ast.stmt]) -> int:
    last = [at for at, statement in enumerate(body) if isinstance(statement, _KEPT_ABOVE)]
    return last[-1] + 1 if last else 0


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
