"""What the tokens of a kernel say of its names: parameters, and what changes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from anymps.metal.translation._statements import ASSIGNMENTS, ends_type
from anymps.metal.translation._structure import Parameter
from anymps.metal.translation._tokens import Token


def is_vector(parameter: Parameter) -> bool:
    """Whether it has more than one component."""
    return any(
        token.kind == "name" and token.text[-1] in "23" and token.text[:-1] in ("uint", "ushort", "int")
        for token in parameter.tokens
    )


def base(parameter: Parameter, axis: int) -> str:
    """From where a thread's index is counted. Along y a launch has one group, or else runs as fibers."""
    return "anymps_line.start" if parameter.attribute == "thread_position_in_grid" and axis == 0 else "0"


def others(axis: int) -> Iterator[str]:
    """The components along which the threads of a group do not differ."""
    return iter("xyz".replace("xyz"[axis], ""))


def directly_changed(tokens: list[Token]) -> set[str]:
    """Names that are assigned to, or counted up or down, as a whole."""
    found = set()
    for index, token in enumerate(tokens):
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        before = tokens[index - 1].text if index else ""
        declared = index and ends_type(tokens[index - 1])
        if token.kind == "name" and not declared and (after in (*ASSIGNMENTS, "++", "--") or before in ("++", "--")):
            found.add(token.text)
    return found


def dereferences(tokens: list[Token]) -> bool:
    """Whether `*p` stands somewhere: a star behind no value."""
    for before, token in pairwise(tokens):
        if token.text == "*" and before.kind == "punct" and before.text not in (")", "]", ">"):
            return True
    return False
