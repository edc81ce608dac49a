"""What the tokens of a kernel say of its names: parameters, changes, and indices that count from zero."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from anymps.metal.translation._statements import ASSIGNMENTS, ends_type
from anymps.metal.translation._structure import Parameter
from anymps.metal.translation._tokens import Token

_SMALL = 1 << 20  # times the highest index in a group, 1023, it is an `int`


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


def signed_indices(code: list[Token], first: int, last: int, indices: Collection[str]) -> dict[tuple[int, int], str]:
    """In each `int name = ...;` of sums and products of small numbers and names, the indices as `int`.

    The value is the same. Compilers make plain vector loads and stores of an address that is computed in `int`, and
    not of one in `uint`, as that may wrap. `indices` are unsigned, and below 1024.
    """
    again = {code[place].text for place in range(first, last + 1) if _may_be_declared(code[place - 1])}
    found: dict[tuple[int, int], str] = {}
    for index in range(first, last - 3):
        if code[index].text != "int" or code[index + 1].kind != "name" or code[index + 2].text != "=":
            continue
        end = index + 3
        while end <= last and _is_simple(code[end]):
            end += 1
        if end > last or code[end].text != ";":
            continue
        for place in range(index + 3, end):
            name = code[place].text
            if name in indices and name not in again:
                found[place, place] = f"int({name})"
    return found


def _may_be_declared(before: Token) -> bool:
    """Whether the name behind this token may be another one that has the same letters."""
    return before.text in (".", "->", "&", ">", "::") or (before.kind == "name" and before.text != "return")


def _is_simple(token: Token) -> bool:
    if token.text.isdigit():
        return int(token.text) < _SMALL
    return token.kind == "name" or token.text in ("+", "*")
