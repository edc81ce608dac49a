"""Where a program says which devices it takes, `choices=["cuda", "cpu"]`: mps put beside CUDA there, or no edit at all.

The new device must be one that the rest of the program accepts: an option's choices, a `Literal`, an `assert device in
(...)`, a table by device, a chain of tests that ends with an exception.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from anymps.source import Code, Splice, argument, choices_of, elements, name_of, parameter_with, text_in

# Types of which a text with any device is a value.
_ANY_TEXT: Final = frozenset(
    {"Any", "AnyStr", "ClassVar", "Final", "None", "Optional", "Text", "Union", "device", "str"}
)


def widened(code: Code, node: ast.AST, limited: Iterable[str]) -> list[Splice] | None:
    """What lets mps pass where a statement chooses a device by the expression `node`; None where that takes more.

    `limited` are names of which the program elsewhere takes CUDA and no mps, as `limited_names` tells them.
    """
    place = _place_of(code, node)
    if place.names & set(limited):
        return None
    listed = list(place.listed)
    for kind in place.types:
        literals = [
            part.slice
            for part in ast.walk(kind)
            if isinstance(part, ast.Subscript) and name_of(part.value) == "Literal"
        ]
        if not literals and not _words(kind) <= _ANY_TEXT:
            return None  # an enumeration, or another name of a Literal
        listed += literals
    splices = [_beside_cuda(code, one) for one in listed]
    return None if None in splices else [splice for each in splices for splice in each or ()]


@dataclass
class _Chosen:
    """What a chosen device is given to: the names of it, their types, and the lists of what may be chosen."""

    names: set[str] = field(default_factory=set)
    types: list[ast.expr] = field(default_factory=list)
    listed: list[ast.expr] = field(default_factory=list)


def _place_of(code: Code, node: ast.AST) -> _Chosen:
    place = _Chosen()
    # Of `"cuda" if gpu else "cpu"` the place of the whole says what may stand there.
    child, parent = node, code.parents.get(node)
    while isinstance(parent, (ast.IfExp, ast.BoolOp)):
        child, parent = parent, code.parents.get(parent)
    if isinstance(parent, ast.keyword) and isinstance(call := code.parents.get(parent), ast.Call):
        place.names |= set(_options(call))
        place.listed += [listed] if (listed := choices_of(call)) is not None else []
        child, parent = call, code.parents.get(call)  # `device: Literal["cuda", "cpu"] = field(default="cuda")`
    if isinstance(parent, ast.AnnAssign):
        place.names.add(name_of(parent.target))
        place.types.append(parent.annotation)
    elif isinstance(parent, ast.Assign):
        place.names |= {name_of(part) for target in parent.targets for part in (target, *getattr(target, "elts", ()))}
    elif isinstance(parent, ast.arguments) and (parameter := parameter_with(parent, child)) is not None:
        place.names.add(parameter.arg)
        place.types += [parameter.annotation] if parameter.annotation is not None else []
    return place


def limited_names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The names whose value must be one of several devices, CUDA and no mps among them."""
    every = tuple(nodes)
    tables = {
        name_of(target)
        for node in every
        if isinstance(node, ast.Assign) and _is_closed(node.value)
        for target in node.targets
    }
    return frozenset(name for node in every for name in _limited_by(node, tables) if name)


def _limited_by(node: ast.AST, tables: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        if _is_closed(node.comparators[0]) or name_of(node.comparators[0]) in tables:
            yield name_of(node.left)
    elif isinstance(node, ast.Subscript):
        if _is_closed(node.value) or name_of(node.value) in tables:
            yield name_of(node.slice)
    elif isinstance(node, ast.If):
        tests = [node.test]
        while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            node = node.orelse[0]
            tests.append(node.test)
        # An `else` that raises refuses each device that no test before it names.
        if any(isinstance(statement, ast.Raise) for statement in node.orelse):
            yield from _compared(tests)
    elif isinstance(node, ast.Match):
        values = [
            pattern.value
            for case in node.cases
            for pattern in ast.walk(case.pattern)
            if isinstance(pattern, ast.MatchValue)
        ]
        if _names_no_mps(values):
            yield name_of(node.subject)


def _compared(tests: Iterable[ast.expr]) -> Iterator[str]:
    """The name that all of some tests compare with texts, CUDA and no mps among them."""
    values: dict[str, list[ast.expr]] = {}
    for test in tests:
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
            values.setdefault(name_of(test.left), []).append(test.comparators[0])
    yield from (name for name, given in values.items() if _names_no_mps(given))


def _is_closed(node: ast.AST) -> bool:
    """Whether a list, a set or the keys of a dictionary name CUDA and no mps."""
    if isinstance(node, ast.Dict):
        return all(key is not None for key in node.keys) and _names_no_mps(key for key in node.keys if key is not None)
    return _names_no_mps(elements(node))


def _names_no_mps(values: Iterable[ast.expr]) -> bool:
    texts = list(map(text_in, values))
    return any(text.startswith("cuda") for text in texts) and not any(text.startswith("mps") for text in texts)


def _beside_cuda(code: Code, listed: ast.expr) -> list[Splice] | None:
    """mps before CUDA in a list of texts; nothing where it is there; None where the list stands elsewhere."""
    values = elements(listed) or [listed]
    if not all(isinstance(value, ast.Constant) for value in values):
        return None
    if not _names_no_mps(values):
        return []
    first = next(value for value in values if text_in(value).startswith("cuda"))
    start, _ = code.span(first)
    quote = "'" if code.source(first).endswith("'") else '"'
    return [Splice(start, start, f"{quote}mps{quote}, ")]


def _options(call: ast.Call) -> Iterator[str]:
    """The names under which a parser keeps an option: `device` of `--device`."""
    yield from (word.lstrip("-").replace("-", "_") for word in map(text_in, call.args) if word)
    yield text_in(argument(call, "dest"))


def _words(annotation: ast.expr) -> set[str]:
    """`Optional` and `str` of `t.Optional[str]`."""
    inner = {node.value for node in ast.walk(annotation) if isinstance(node, ast.Attribute)}
    found: set[str] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node not in inner):
            found.add(name_of(node))
        elif isinstance(node, ast.Constant):
            found.add(str(node.value))
    return found
