"""Calls of a source's own functions that change a thread's variables, or keep an address of one.

An address of a thread's variable is invalid after a cut: each piece of a kernel has its own variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anymps.metal.translation._brackets import CLASSES, closing, closing_angle, split_commas, without_attributes
from anymps.metal.translation._fission_uniformity import Names
from anymps.metal.translation._heads import parameters_at
from anymps.metal.translation._statements import TYPES, Statement
from anymps.metal.translation._structure import Function, Structure
from anymps.metal.translation._tokens import Token

_ELSEWHERE = frozenset({"device", "constant", "threadgroup"})  # memory that is no thread's own
_BY_METAL = {"sincos": {1}, "frexp": {1}, "modf": {1}}
_ALL = 64  # parameters: of a pack each argument may be changed
_BESIDE_TYPES = frozenset({"static", "inline", "constexpr", "const", "void", "metal", "::"})


@dataclass(frozen=True)
class OwnCalls:
    """The functions of a source, which of their parameters they may change, and which of them may keep an address."""

    names: frozenset[str]
    changes: Mapping[str, set[int]]
    keep: frozenset[str]
    holders: frozenset[str]  # types whose values may be or hold an address of a thread's variable
    values: frozenset[str]  # types whose values do not

    @classmethod
    def of(cls, code: Sequence[Token], structure: Structure) -> OwnCalls:
        """Those of a source."""
        changes = {name: set(places) for name, places in _BY_METAL.items()}
        holders = _holders(list(code))
        values = TYPES | structure.classes.keys() - holders
        keep = set()
        for function in structure.functions:
            parameters = [_words(part) for part in _parameters(function)]
            changes.setdefault(function.name, set()).update(*(_changed(i, words) for i, words in enumerate(parameters)))
            if function.names & holders or (
                (function.scope or any({"&", "&&", "*"} & set(words) for words in parameters))
                and not _gives_a_value(function, values)
            ):
                keep.add(function.name)
        names = frozenset(function.name for function in structure.functions)
        return cls(names, changes, frozenset(keep), frozenset(holders), values)

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
        names, words, declared = self.names, _words(statement.tokens), frozenset(statement.declared)
        leads = (
            bool(used & (self.arrays | self._pointing | self.own.holders))
            or any(word in self.own.keep and after in ("(", "<", "{") for word, after in pairwise(words))
            or _takes_address(read, names.uniform)
        )
        if statement.kind != "declaration":
            found = (used & names.declared & names.changed) - names.uniform - self._values if leads else frozenset()
        elif not statement.plain:
            self.arrays |= declared
            found = declared
        else:
            of_type = set(words[: words.index(statement.declared[0])])
            pointer = "*" in words[: words.index("=") if "=" in words else len(words)]
            elsewhere = pointer and "thread" not in words and of_type & _ELSEWHERE
            if elsewhere or (not pointer and of_type & self.own.values and "<" not in of_type):
                self._values |= declared
                return frozenset()
            own = "thread" in of_type or bool(used & names.varying - names.indices)
            found = declared if leads or (own and pointer) else frozenset()
        self._pointing |= found
        return found


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


def _gives_a_value(function: Function, values: frozenset[str]) -> bool:
    """Whether a function gives nothing, or a value that holds no address."""
    before = without_attributes(function.head[: max(parameters_at(function.head) - 1, 0)])
    for index, token in enumerate(before):
        if token.text == "__attribute__":
            del before[index : closing(before, index + 1) + 1]
            break
    return all(word in values | _BESIDE_TYPES for word in _words(before))


def _holders(code: list[Token]) -> set[str]:
    """Classes with a member that leads to a thread's memory, and other names of such types."""
    bodies: dict[str, set[str]] = {}
    found: set[str] = set()
    for index, token in enumerate(code[:-2]):
        if token.text in ("using", "typedef"):
            end = next((i for i in range(index, len(code)) if code[i].text == ";"), len(code))
            name = code[index + 1].text if token.text == "using" else code[end - 1].text
            bodies.setdefault(name, set()).update(_words(code[index:end]))
            if {"thread", "*"} <= bodies[name] or {"thread", "&"} <= bodies[name]:
                found.add(name)
        elif token.text in CLASSES and code[index + 1].kind == "name":
            brace = next((i for i in range(index, len(code)) if code[i].text in ("{", ";", "(", ">", ",")), index)
            if code[brace].text != "{":
                continue
            members = list(_members(code[brace + 1 : closing(code, brace)]))
            bodies.setdefault(code[index + 1].text, set()).update(word for words in members for word in words)
            if any("thread" in words and {"&", "*"} & set(words) for words in members):
                found.add(code[index + 1].text)
    while more := {name for name, words in bodies.items() if name not in found and words & found}:
        found |= more
    return found


def _members(tokens: list[Token]) -> Iterator[list[str]]:
    """The words of each member that is no function."""
    words: list[str] = []
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "{", "["):
            index = closing(tokens, index)
        if text == ";" or text == "{":
            if "(" not in words:
                yield words
            words = []
        else:
            words.append(text)
        index += 1
