"""Calls of a source's own functions that change a thread's variables, and names that may lead to one.

An address of a thread's variable is invalid after a cut: each piece of a kernel has its own variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anymps.metal.translation._brackets import closing, closing_angle, split_commas
from anymps.metal.translation._fission_uniformity import Names
from anymps.metal.translation._heads import parameters_at
from anymps.metal.translation._statements import TYPES, Statement
from anymps.metal.translation._structure import Function, Structure
from anymps.metal.translation._tokens import Token

_ELSEWHERE = frozenset({"device", "constant", "threadgroup"})  # memory that is no thread's own
_BY_METAL = {"sincos": {1}, "frexp": {1}, "modf": {1}}
_ALL = 64  # parameters: of a pack each argument may be changed


@dataclass(frozen=True)
class OwnCalls:
    """The functions of a source, and which of their parameters they may change."""

    names: frozenset[str]
    changes: Mapping[str, set[int]]
    values: frozenset[str]  # types whose values hold no address of a thread's variable

    @classmethod
    def of(cls, structure: Structure) -> OwnCalls:
        """Those of a source."""
        changes = {name: set(places) for name, places in _BY_METAL.items()}
        for function in structure.functions:
            parameters = [_words(part) for part in _parameters(function)]
            changes.setdefault(function.name, set()).update(*(_changed(i, words) for i, words in enumerate(parameters)))
        holders = {"thread"}  # and classes that name it, as one must that holds such an address
        while more := {name for name, inside in structure.classes.items() if name not in holders and inside & holders}:
            holders |= more
        names = frozenset(function.name for function in structure.functions)
        return cls(names, changes, TYPES | structure.classes.keys() - holders)

    def changed(self, tokens: Sequence[Token]) -> set[str]:
        """Names that calls among the tokens may change: as an argument, or as the object of a method."""
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
                    found.update(_outside_of_indices(part))
        return found


class Addresses:
    """Which names of a kernel may lead to a variable of the thread. Such a name cannot be kept for a later piece."""

    def __init__(self, own: OwnCalls, names: Names) -> None:
        self.own, self.names = own, names
        self.arrays: set[str] = set()  # the thread's own, and references
        self._pointing: set[str] = set()
        self._values: set[str] = set()  # what leads nowhere, by its type

    def kept_by(self, statement: Statement, read: Sequence[Token], used: frozenset[str]) -> frozenset[str]:
        """The names that a statement may make lead there; `read` are its tokens without the calls that are cut out."""
        words, declared = _words(statement.tokens), frozenset(statement.declared)
        leads = bool(used & (self.arrays | self._pointing | self.own.names)) or _takes_address(read, self.names.uniform)
        if statement.kind != "declaration":
            found = used & self.names.declared & self.names.changed if leads else frozenset[str]()
            found -= self.names.uniform | self._values
        elif not statement.plain:
            self.arrays |= declared
            found = declared
        elif self._holds_none(words, set(words[: words.index(statement.declared[0])])):
            self._values |= declared
            return frozenset()
        else:
            found = declared if leads or "auto" not in words else frozenset()
        self._pointing |= found
        return found

    def _holds_none(self, words: list[str], of_type: set[str]) -> bool:
        """Whether a declared value is no address of a thread's variable: a number, or an address elsewhere."""
        if "*" in words[: words.index("=") if "=" in words else len(words)]:
            return "thread" not in words and bool(of_type & _ELSEWHERE)
        return bool(of_type & self.own.values) and "<" not in of_type


def _takes_address(tokens: Sequence[Token], elsewhere: set[str]) -> bool:
    """Whether `&name` stands somewhere, of what is not `elsewhere`."""
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if token.text != "&" or (before is not None and before.text != "return" and _ends_value(before)):
            continue
        root = next((one for one in tokens[index + 1 :] if one.kind == "name"), None)
        if root is None or root.text not in elsewhere:
            return True
    return False


def _ends_value(token: Token) -> bool:
    return token.kind != "punct" or token.text in (")", "]")


def _object(tokens: list[Token], dot: int) -> Iterator[str]:
    """The names before `.method`, back to where the object begins."""
    index = dot - 1
    while index >= 0 and (tokens[index].kind == "name" or tokens[index].text in (".", "->", "[", "]", "(", ")", "*")):
        if tokens[index].kind == "name":
            yield tokens[index].text
        index -= 1


def _outside_of_indices(tokens: list[Token]) -> Iterator[str]:
    index = 0
    while index < len(tokens):
        if tokens[index].text == "[":
            index = closing(tokens, index)
        elif tokens[index].kind == "name":
            yield tokens[index].text
        index += 1


def _parameters(function: Function) -> list[list[Token]]:
    opening = parameters_at(function.head)
    return split_commas(function.head[opening + 1 : closing(function.head, opening)]) if opening else []


def _words(tokens: Sequence[Token]) -> list[str]:
    return [token.text for token in tokens]


def _changed(place: int, words: list[str]) -> set[int]:
    """The arguments that a parameter of these words may change, `place` being its own."""
    signs = [index for index, word in enumerate(words) if word in ("&", "&&", "*")]
    if not signs:
        return set()
    if "..." in words:
        return set(range(place, _ALL))
    fixed = {"const", "constant"} | _ELSEWHERE
    return set() if len(signs) == 1 and fixed & set(words[: signs[0]]) else {place}
