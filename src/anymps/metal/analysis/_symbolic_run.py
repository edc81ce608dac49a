"""Runs the statements of a kernel on values that are sums of steps: branches, loops, and what is known behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anymps.metal.analysis._symbolic_expressions import Expressions, changes
from anymps.metal.analysis._symbolic_memory import Frame, Variables, all_meet, held_by, meet
from anymps.metal.analysis._symbolic_values import (
    FALSE,
    TRUE,
    UNKNOWN,
    Array,
    Number,
    Pointer,
    Reference,
    Type,
    Unproven,
    type_of,
)
from anymps.metal.analysis._syntax_tree import Node

Counter = tuple[str, Node, str, Node]
"""Of a loop: its name, what it is compared with and how, and by how much it grows."""

_MOST_TURNS = 6  # of a loop, until what is known of its variables stays


class Run(Expressions):
    """One run of a kernel's body, for all groups of a box."""

    def kernel(self, variables: Variables, statements: Sequence[Node]) -> None:
        """Runs the body of a kernel, which finds its parameters in `variables`."""
        for name, value in variables.items():
            self._types[name] = held_by(value)
        self._body(variables, statements)

    def _body(self, variables: Variables, statements: Sequence[Node]) -> Frame:
        before, self._variables = self._variables, variables
        frame = Frame(self._unsure, len(self._loops))
        self._frames.append(frame)
        self._all(statements)
        self._frames.pop()
        self._variables, self._unsure = before, frame.unsure
        return frame

    # Statements: each says whether some thread goes on behind it

    def _all(self, statements: Sequence[Node]) -> bool:
        return all(self._statement(one) for one in statements)

    def _statement(self, node: Node) -> bool:
        match node:
            case ("block", parts):
                return self._all(parts)
            case ("do", expression):
                self._value(expression)
            case ("declare", name, words, space, pointer, sizes, given):
                self._declare(name, type_of(words), space == "threadgroup", pointer, len(sizes), given)
            case ("if", condition, one, other):
                return self._if(condition, one, other)
            case ("loop", condition, steps, body, first):
                return self._loop(condition, steps, body, first)
            case ("return", value):
                frame = self._frames[-1]
                frame.returned.append(UNKNOWN if value is None else self._value(value))
                if self._unsure > frame.unsure:
                    if len(self._loops) > frame.loops:
                        raise Unproven("a loop that data ends")
                    frame.torn = True
                return False
            case ("break",) | ("continue",):
                if self._unsure or not self._loops:
                    raise Unproven("a loop that data ends")
                self._loops[-1][0 if node[0] == "break" else 1].append(dict(self._variables))
                return False
            case _:
                raise Unproven(node[0])
        return True

    def _declare(
        self, name: str, kind: Type | None, shared: bool, pointer: bool, depth: int, given: Node | None
    ) -> None:
        if pointer and kind is None:
            raise Unproven("a pointer of another form")
        value = UNKNOWN if given is None else self._value(given)
        if kind is not None and not pointer and (shared or depth):
            memory = Pointer(None, kind.size, kind.element)
            self._variables[name] = Array(shared, kind.size, kind.element, depth) if depth else Reference(memory)
            return
        value = self._decayed(value) if isinstance(value, Array) else value
        held = held_by(value) if kind is None or pointer else (kind, False)
        if pointer and held != (None, True):
            raise Unproven("a pointer to what is not known")
        self._types[name] = held
        lost = held == (None, False) and not self._unsure  # it stays as it is until something is assigned
        self._variables[name] = value if lost else self._kept(value, held)

    def _if(self, condition: Node, one: Node, other: Node) -> bool:
        truth = self.box.truth(self._value(condition))
        if truth is TRUE or truth is FALSE:
            return self._statement(one if truth is TRUE else other)
        before = dict(self._variables)
        ends = []
        with self._decided_by(truth):
            for way in (one, other):
                self._variables = dict(before)
                if self._statement(way):
                    ends.append(self._variables)
        frame = self._frames[-1]
        if frame.torn:
            self._unsure = max(self._unsure, frame.unsure + 1)
        if not ends:
            self._variables = before
            return False
        self._variables = ends[0] if len(ends) == 1 else meet(ends[0], ends[1])
        return True

    def _loop(self, condition: Node | None, steps: Sequence[Node], body: Node, first: bool) -> bool:
        if self._unsure:
            raise Unproven("a loop that data decides on")
        head = dict(self._variables)
        counter = _counter(condition, steps) if first else None
        if counter is not None:
            self._guess(head, *counter)
        for turn in range(_MOST_TURNS):
            self._variables = dict(head)
            comes_back, ends = self._turn(condition, steps, body, first, counter)
            known = meet(head, self._variables, True) if comes_back else head
            if known != head:
                head = known if turn < 2 else _vague(head, known)
                continue
            self._variables = all_meet(ends) if ends else head
            return bool(ends)
        raise Unproven("a loop whose variables change without end")

    def _turn(
        self, condition: Node | None, steps: Sequence[Node], body: Node, first: bool, counter: Counter | None
    ) -> tuple[bool, list[Variables]]:
        """Whether a thread comes back to the head behind one turn, and what is known wherever one leaves the loop."""
        ends: list[Variables] = []
        self._loops.append(([], []))
        enters = not first or self._goes_on(condition, ends)
        if enters and counter is not None:
            self._limit(self._variables, *counter[:3])
        to_the_end = enters and self._statement(body)
        breaks, continues = self._loops.pop()
        back = [self._variables, *continues] if to_the_end else continues
        comes_back = bool(back)
        if back:
            self._variables = all_meet(back)
            for step in steps:
                self._value(step)
            comes_back = first or self._goes_on(condition, ends)
        return comes_back, ends + breaks

    def _goes_on(self, condition: Node | None, ends: list[Variables]) -> bool:
        """Whether a thread may go on with a loop; where one may leave it, `ends` gets what is known then."""
        truth = TRUE if condition is None else self.box.truth(self._value(condition))
        if not isinstance(truth, Number):
            raise Unproven("a loop that data decides on")
        if truth is not TRUE:
            ends.append(dict(self._variables))
        return truth is not FALSE

    def _bound(self, variables: Variables, name: str, bound: Node, operator: str) -> tuple[Number, int] | None:
        """A counter, and the most that its rest may be within the loop."""
        mine = variables.get(name)
        other = self._value(bound)
        if not isinstance(mine, Number) or not isinstance(other, Number):
            return None
        a, b, _ = self.box.promoted(mine, other)
        if not isinstance(a, Number) or not isinstance(b, Number) or a.steps != b.steps:
            return None
        if a.low is None or b.high is None or a.low != mine.low:
            return None
        return mine, b.high - (operator == "<")

    def _guess(self, head: Variables, name: str, bound: Node, operator: str, step: Node) -> None:
        """A counter's limits, if it does nothing but grow; the run of the loop shows whether they hold."""
        found, by = self._bound(head, name, bound, operator), self._value(step)
        if found is None or not isinstance(by, Number) or by.fixed is None or by.fixed <= 0:
            return
        mine, most = found
        assert mine.high is not None
        guess = self.box.made(mine.kind, mine.steps, mine.low, max(mine.high, most + by.fixed))
        if guess.low is not None:
            head[name] = guess

    def _limit(self, variables: Variables, name: str, bound: Node, operator: str) -> None:
        """Within the loop a counter is below its bound."""
        found = self._bound(variables, name, bound, operator)
        if found is not None:
            mine, most = found
            assert mine.low is not None and mine.high is not None
            variables[name] = replace(mine, high=max(mine.low, min(mine.high, most)))


def _vague(before: Variables, after: Variables) -> Variables:
    """The limits of a number that still grow are given up."""
    return {
        name: Number(value.kind, value.steps) if isinstance(value, Number) and value != before.get(name) else value
        for name, value in after.items()
    }


def _counter(condition: Node | None, steps: Sequence[Node]) -> Counter | None:
    match condition:
        case ("binary", ("<" | "<=") as operator, ("name", name), bound) if not changes(bound):
            for step in steps:
                match step:
                    case ("assign", ("name", grown), "+", by) if grown == name and not changes(by):
                        return name, bound, operator, by
                    case ("after", ("name", grown), "+") if grown == name:
                        return name, bound, operator, ("number", 1, "int")
    return None
