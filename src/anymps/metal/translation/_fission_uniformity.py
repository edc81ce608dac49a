"""What is known of a kernel's names, and what follows for its expressions: the same for a group, an index, a store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

from anymps.metal.translation._brackets import closing
from anymps.metal.translation._statements import ASSIGNMENTS
from anymps.metal.translation._structure import Parameter
from anymps.metal.translation._tokens import Token

_OPERATORS = "( ) , . + - * / % < > <= >= == != && || << >> ! :: ;"
_CHANGES = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "++", "--"})
_CALLS = frozenset({"int", "uint", "short", "ushort", "long", "ulong", "min", "max", "metal", "static_cast"})
_INDEX_CALLS = frozenset({"static_cast", "floor_divide", "int", "uint", "ushort", "long", "ulong"})


@dataclass
class Names:
    """What is known of the names of a body, whose threads lie along an axis."""

    own_functions: Collection[str]
    changed: set[str]
    axis: int = 0
    uniform: set[str] = field(default_factory=set)  # the same for all threads of a group
    varying: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)  # those of them that follow from the thread's index
    lanes: dict[str, str] = field(default_factory=dict)  # those that are it, counted from this
    positions: set[str] = field(default_factory=set)  # vectors, of which one component differs
    memory: set[str] = field(default_factory=set)  # those that are memory of the group or a buffer, without brackets
    fixed: set[str] = field(default_factory=set)  # those of them that no kernel can change
    declared: set[str] = field(default_factory=set)  # outside of the braces of a statement
    counters: set[str] = field(default_factory=set)  # of loops in which threads meet

    @property
    def same_components(self) -> str:
        """The components of a position along which the threads of a group do not differ."""
        return "xyz".replace("xyz"[self.axis], "")

    def within(self, counter: str) -> tuple[set[str], set[str], set[str], dict[str, str]]:
        """A loop of that counter begins. What was known before, for its end."""
        before = (set(self.uniform), set(self.varying), set(self.indices), dict(self.lanes))
        self.uniform.add(counter)
        self.counters.add(counter)
        return before

    def leave(self, before: tuple[set[str], set[str], set[str], dict[str, str]]) -> None:
        """The loop ends, and with it what was declared in it."""
        self.uniform, self.varying, self.indices, self.lanes = before

    def is_steady(self, tokens: Collection[Token], counter: str = "", changes: bool = False) -> bool:
        """Whether an expression is the same for all threads whenever it is computed, and reads no memory.

        `changes`: whether it may change a variable. Names that nothing declares are constants of the source.
        """
        known = self.uniform - (self.memory - self.fixed) | {counter}
        differing = (self.varying | self.memory - self.fixed | self.changed | self.declared) - known
        allowed = {*_OPERATORS.split(), *(_CHANGES if changes else ())}
        listed = [Token("punct", ";", 0, False), *tokens]
        for (before, token), after in zip(pairwise(listed), [*listed[2:], listed[0]], strict=True):
            if token.kind == "name" and before.text != ".":
                if (after.text == "(" and token.text not in _CALLS) or token.text in differing:
                    return False
            elif token.kind not in ("name", "number"):
                reads = token.text == "*" and before.kind == "punct" and before.text not in (")", "]")  # `*p`
                if reads or token.text not in allowed:
                    return False
        return True

    def may_store(self, used: Collection[str]) -> bool:
        """Whether what is called may write memory."""
        return any(name in self.own_functions or "atomic" in name.lower() for name in used)

    def is_uniform(self, tokens: Collection[Token], used: Collection[str]) -> bool:
        """Whether an expression is the same for all threads, and may be computed once for them."""
        listed = list(tokens)
        for index, token in enumerate(listed):
            after = listed[index + 1].text if index + 1 < len(listed) else ""
            if token.kind != "name":
                continue
            if token.text in self.positions and after == "." and listed[index + 2].text in self.same_components:
                continue
            if token.text in self.varying or (token.text in self.changed and token.text not in self.uniform):
                return False
            if after in ("(", "<") and not self._is_pure(listed, index):
                return False
        return not (set(used) & self.varying - self.positions)

    def _is_pure(self, tokens: list[Token], index: int) -> bool:
        text = tokens[index].text
        if text in self.own_functions or "atomic" in text.lower() or text.isupper():
            return False
        return (
            text in _INDEX_CALLS
            or text in ("float", "half", "bool", "decltype")
            or (index > 0 and tokens[index - 1].text == "::")
        )

    def is_index(self, tokens: list[Token], used: Collection[str]) -> bool:
        calls = (t.text for t, after in pairwise(tokens) if after.text == "(" and t.kind == "name")
        return (
            all(call in _INDEX_CALLS for call in calls)
            and not set(used) & self.varying - self.indices
            and bool(set(used) & self.indices)
        )

    def is_store(self, tokens: list[Token]) -> bool:
        """Whether an expression is `buffer[...] = ...`, of a buffer that all threads share."""
        if len(tokens) < 2 or tokens[0].kind != "name" or tokens[1].text != "[" or tokens[0].text not in self.uniform:
            return False
        close = closing(tokens, 1)
        return tokens[close + 1].text in ASSIGNMENTS and sum(t.text in (*ASSIGNMENTS, "++", "--") for t in tokens) == 1

    def bound(self, tokens: list[Token]) -> tuple[int, int] | None:
        """For `if (index < n) ...` the first and the last token of n, where that is the same for all threads."""
        words = [token.text for token in tokens]
        if words[:2] != ["if", "("] or "else" in words:
            return None
        end = closing(tokens, 1)
        place = words.index("<") if "<" in words[:end] else 0
        behind = tokens[place + 1 : end]
        if self.lanes.get("".join(words[2:place])) != "0" or not behind or not self.is_steady(behind):
            return None
        if {"<", ">", "<=", ">=", "==", "!=", "&&", "||", ","} & set(words[place + 1 : end]):
            return None
        return place + 1, end - 1


def is_vector(parameter: Parameter) -> bool:
    """Whether it has more than one component."""
    return any(
        token.kind == "name" and token.text[-1] in "23" and token.text[:-1] in ("uint", "ushort", "int")
        for token in parameter.tokens
    )


def base(parameter: Parameter, axis: int) -> str:
    """From where a thread's index is counted. Along y a launch has one group, or else runs as fibers."""
    return "anymps_line.start" if parameter.attribute == "thread_position_in_grid" and axis == 0 else "0"


def dereferences(tokens: list[Token]) -> bool:
    """Whether `*p` stands somewhere: a star behind no value."""
    for before, token in pairwise(tokens):
        if token.text == "*" and before.kind == "punct" and before.text not in (")", "]", ">"):
            return True
    return False
