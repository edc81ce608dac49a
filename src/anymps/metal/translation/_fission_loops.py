"""Loops in which threads meet, and that all threads of a group run as often: what their heads and bodies must be.

Only `for (uint k = 0; k < n; k += 8)` is taken, where the start, the condition and the step follow from constants,
parameters and what else is the same for the whole group, and the body changes none of them. So the head can be run once
for all threads, and the body is cut as a kernel's is. Whatever else a loop is, its threads are fibers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from anymps.metal.translation._brackets import closing
from anymps.metal.translation._statements import Statement, changed_names, read_statements
from anymps.metal.translation._tokens import Token

_LEAVES = frozenset({"return", "goto", "asm"})
_LOOPS = frozenset({"for", "while", "do"})


@dataclass(frozen=True)
class Loop:
    """A loop's counter, the statement that declares it, and the tokens of its parts as (first, last)."""

    name: str
    start: Statement
    condition: tuple[int, int]
    step: tuple[int, int]
    body: tuple[int, int]  # the braces, or what stands around the one statement

    def parts(self, code: list[Token]) -> list[list[Token]]:
        """The tokens behind the start's equals sign, of the condition, and of the step."""
        tokens = list(self.start.tokens)
        behind = next(i for i, token in enumerate(tokens) if token.text == "=") + 1
        return [tokens[behind:], *(code[first : last + 1] for first, last in (self.condition, self.step))]


def read_loop(code: list[Token], statement: Statement) -> Loop | None:
    """The parts of a `for` with one counter that its step alone changes, and that nothing leaves early; else None."""
    first = statement.first
    if code[first].text != "for" or code[first + 1].text != "(":
        return None
    end = closing(code, first + 1)
    stops = [i for i in range(first + 2, end) if code[i].text == ";"]
    if len(stops) != 2 or stops[0] + 1 == stops[1] or stops[1] + 1 == end:
        return None
    starts = read_statements(code, first + 1, stops[0] + 1)
    if len(starts) != 1 or starts[0].kind != "declaration" or len(starts[0].declared) != 1:
        return None
    start, name = starts[0], starts[0].declared[0]
    step = code[stops[1] + 1 : end]
    body = (end + 1, statement.last) if code[end + 1].text == "{" else (end, statement.last + 1)
    inner = code[body[0] + 1 : body[1]]
    if not (start.plain and start.valued and not start.shared and any(token.text == "=" for token in start.tokens)):
        return None
    if changed_names(step) != {name} or name in changed_names(inner) or _LEAVES & {token.text for token in inner}:
        return None
    if _can_be_left(read_statements(code, *body)):
        return None
    return Loop(name, start, (stops[0] + 1, stops[1] - 1), (stops[1] + 1, end - 1), body)


def _can_be_left(statements: Collection[Statement]) -> bool:
    """Whether a `break` or a `continue` may be the loop's own."""
    for statement in statements:
        words = {token.text for token in statement.tokens}
        own = statement.tokens[0].text
        if own not in _LOOPS and words & {"break", "continue"}:
            return True
    return False
