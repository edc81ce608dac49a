"""Calls of a source's own functions that change a thread's variables, and names that may lead to one.

An address of a thread's variable is invalid after a cut: each piece of a kernel has its own variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anymps.metal.translation._brackets import closing, closing_angle, split_commas
from anymps.metal.translation._heads import parameters_at
from anymps.metal.translation._statements import TYPES, Statement
from anymps.metal.translation._structure import Function, Structure
from anymps.metal.translation._tokens import Token

_ELSEWHERE = frozenset({"device", "constant", "threadgroup"})  # memory that is no thread's own
_BY_METAL = {"sincos": {1}, "frexp": {1}, "modf": {1}}
_ALL = 64  # parameters: of a pack each argument may be changed


class OwnCalls:
    """The functions of a source, and which of their arguments they may change."""

    def __init__(self, structure: Structure) -> None:
        self.names = frozenset(function.name for function in structure.functions)
        self.changes = {name: set(places) for name, places in _BY_METAL.items()}
        for function in structure.functions:
            changes = (_changes(place, part) for place, part in enumerate(_parameters(function)))
            self.changes.setdefault(function.name, set()).update(*changes)
        holders = {"thread"}  # and classes that name it, as one must that holds an address of a thread's variable
        while more := {name for name, inside in structure.classes.items() if name not in holders and inside & holders}:
            holders |= more
        self.holders = holders
        self.values = TYPES | structure.classes.keys() - holders

    def changed(self, tokens: Sequence[Token]) -> set[str]:
        """Names that calls among the tokens may change: in an argument, or as the object of a method."""
        listed, found = list(tokens), set[str]()
        for index, token in enumerate(listed):
            if token.text not in self.changes:
                continue
            if index > 1 and listed[index - 1].text in (".", "->"):
                found.update(_object(listed, index - 1))
            bracket = index + 1
            if bracket < len(listed) and listed[bracket].text == "<":
                bracket = closing_angle(listed, bracket) + 1
            if bracket < len(listed) and listed[bracket].kind == "name":  # `Type name(argument)`
                bracket += 1
            if bracket >= len(listed) or listed[bracket].text not in ("(", "{"):
                continue
            for place, part in enumerate(split_commas(listed[bracket + 1 : closing(listed, bracket)])):
                if place in self.changes[token.text]:
                    found.update(one.text for one in part if one.kind == "name")
        return found


class Addresses:
    """Which names of a kernel may lead to a variable of the thread. Such a name cannot be kept for a later piece."""

    def __init__(self, own: OwnCalls) -> None:
        self.own = own
        self.pointing: set[str] = set()

    def declare(self, statement: Statement, read: Sequence[Token], used: frozenset[str]) -> None:
        """Takes what a statement declares; `read` are its tokens without the calls that are cut out."""
        words = [token.text for token in statement.tokens]
        of_type = set(words[: words.index(statement.declared[0])])
        if "*" in words[: words.index("=") if "=" in words else len(words)]:
            holds_none = "thread" not in words and bool(of_type & _ELSEWHERE)
        elif "auto" in words:
            holds_none = not used & (self.pointing | self.own.names | self.own.holders) and not _takes_address(read)
        else:
            holds_none = bool(of_type & self.own.values) and "<" not in of_type
        if not (statement.plain and holds_none):
            self.pointing.update(statement.declared)


def _takes_address(tokens: Sequence[Token]) -> bool:
    """Whether `&name` stands somewhere: the sign behind no value."""
    return any(
        token.text == "&" and before.text not in (")", "]") and (before.kind == "punct" or before.text == "return")
        for before, token in pairwise(tokens)
    )


def _object(tokens: list[Token], dot: int) -> Iterator[str]:
    """The names before `.method`, back to where the object begins."""
    index = dot - 1
    while index >= 0 and (tokens[index].kind == "name" or tokens[index].text in (".", "->", "[", "]", "(", ")", "*")):
        if tokens[index].kind == "name":
            yield tokens[index].text
        index -= 1


def _parameters(function: Function) -> list[list[Token]]:
    opening = parameters_at(function.head)
    return split_commas(function.head[opening + 1 : closing(function.head, opening)]) if opening else []


def _changes(place: int, parameter: Sequence[Token]) -> set[int]:
    """The arguments that a function may change by its parameter of that place."""
    words = [token.text for token in parameter]
    signs = [index for index, word in enumerate(words) if word in ("&", "&&", "*")]
    fixed = {"const", "constant"} | _ELSEWHERE
    if not signs or ("..." not in words and len(signs) == 1 and fixed & set(words[: signs[0]])):
        return set()
    return set(range(place, _ALL)) if "..." in words else {place}
