"""Expressions of a kernel, on values that are sums of steps: operators, casts and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from anymps.metal.analysis._symbolic_memory import Memory, meet, moved
from anymps.metal.analysis._symbolic_values import (
    FALSE,
    FLOATING,
    KINDS,
    NAMED,
    NONE,
    PERHAPS,
    TRUE,
    UNKNOWN,
    Array,
    Components,
    Number,
    Pointer,
    Reference,
    Type,
    Unproven,
    Value,
    constant,
    joined,
    type_of,
)
from anymps.metal.analysis._syntax_tree import Node
from anymps.metal.translation import FLOAT_CALLS, FLOATS, PURE, TYPES, VALUES_OF, WHOLE

_MOST_NODES = 20_000  # then it is given up
_MOST_CALLS = 8  # one within another
_COUNTS = frozenset({"popcount", "clz", "ctz"})


class Expressions(Memory):
    """The expressions of one run."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._left = _MOST_NODES
        self._evaluate: dict[str, Callable[..., Value]] = {
            "number": lambda value, kind: constant(value, KINDS[kind]),
            "floating": lambda: FLOATING,
            "name": self._name,
            "global": self._global,
            "binary": self._binary,
            "&&": lambda left, right: self._both("&&", left, right),
            "||": lambda left, right: self._both("||", left, right),
            "choose": self._choose,
            "unary": self._unary,
            "assign": self._assign,
            "after": self._after,
            "index": lambda base, index: self._load(*self._place(base, index, False)),
            "member": self._member,
            "arrow": self._arrow,
            "cast": self._cast,
            "make": lambda words, nodes: self._made_of(type_of(words), [self._value(one) for one in nodes]),
            "list": self._list,
            "call": self._call,
            "atomic": self._atomic,
        }

    def _value(self, node: Node) -> Value:
        self._left -= 1
        if self._left < 0:
            raise Unproven("too much of it")
        return self._evaluate[node[0]](*node[1:])

    def _assign(self, target: Node, operator: str, right: Node) -> Value:
        value = self._value(right)
        if operator:
            _needs_calm(target)
            value = self._combined(operator, self._value(target), value)
        self._store(target, value, bool(operator))
        return value

    def _after(self, target: Node, operator: str) -> Value:
        _needs_calm(target)
        before = self._value(target)
        self._store(target, self._combined(operator, before, constant(1)), True)
        return before

    def _binary(self, operator: str, left: Node, right: Node) -> Value:
        return self._combined(operator, self._value(left), self._value(right))

    def _combined(self, operator: str, left: Value, right: Value) -> Value:
        if isinstance(left, Array):
            left = self._decayed(left)
        if isinstance(right, Pointer) and operator == "+":
            left, right = right, left
        if isinstance(left, Pointer):
            return self._moved_pointer(left, operator, right)
        if isinstance(right, (Pointer, Array)):
            raise Unproven("addresses that are compared")
        if operator in ("/", "%", "<<", ">>") and FLOATING not in (left, right):
            self._judge(operator, right)
        if isinstance(left, Components) or isinstance(right, Components):
            return UNKNOWN
        if left is NAMED and right is NAMED:
            return NAMED
        return self.box.combined(operator, left, right)

    def _moved_pointer(self, pointer: Pointer, operator: str, by: Value) -> Pointer:
        if operator not in ("+", "-") or not isinstance(by, Number):
            raise Unproven("an address that data decides on")
        if by.steps != NONE and by.low is None:
            raise Unproven("an index that may wrap")
        sign = 1 if operator == "+" else -1
        offset = None
        if pointer.offset is not None and by.fixed is not None:
            offset = pointer.offset + sign * by.fixed * pointer.size
        steps = moved(pointer.steps, by.steps, sign * pointer.size)
        return replace(pointer, steps=steps, offset=offset, start=pointer.start and offset == 0)

    def _judge(self, operator: str, right: Value) -> None:
        """An integer may be divided by zero, or shifted too far: in all groups alike."""
        if right is NAMED and not self._unsure:
            return
        if not isinstance(right, Number) or right.steps != NONE:
            raise Unproven("a divisor that data decides on")
        if self._unsure and not right.fixed and operator in ("/", "%"):
            raise Unproven("a division that data decides on")
        if self._unsure and operator in ("<<", ">>") and not (right.fixed is not None and 0 <= right.fixed < 32):
            raise Unproven("a shift that data decides on")

    def _unary(self, operator: str, node: Node) -> Value:
        value = self._value(node)
        if isinstance(value, (Pointer, Array)):
            raise Unproven("an address in the place of a value")
        if operator == "!":
            truth = self.box.truth(value)
            return FALSE if truth is TRUE else TRUE if truth is FALSE else truth
        if isinstance(value, Components):
            return UNKNOWN
        if not isinstance(value, Number):
            return FLOATING if value is FLOATING else UNKNOWN
        if operator == "~":
            return self.box.combined("-", constant(-1), value)
        return self.box.combined("-", constant(0), value) if operator == "-" else value

    @contextmanager
    def _decided_by(self, truth: Value) -> Iterator[None]:
        """Around what only some threads do: those for which `truth` holds, or those for which it does not."""
        by_data = not isinstance(truth, Number)
        self._unsure += by_data
        yield
        self._unsure -= by_data

    def _both(self, operator: str, left: Node, right: Node) -> Value:
        ends = FALSE if operator == "&&" else TRUE
        one = self.box.truth(self._value(left))
        if one is ends:
            return ends
        if one is TRUE or one is FALSE:
            return self.box.truth(self._value(right))
        before = dict(self._variables)
        with self._decided_by(one):
            other = self.box.truth(self._value(right))
        self._variables = meet(before, self._variables)
        return PERHAPS if isinstance(one, Number) and isinstance(other, Number) else UNKNOWN

    def _choose(self, condition: Node, one: Node, other: Node) -> Value:
        truth = self.box.truth(self._value(condition))
        if truth is TRUE or truth is FALSE:
            return self._value(one if truth is TRUE else other)
        before = dict(self._variables)
        with self._decided_by(truth):
            first = self._value(one)
            after, self._variables = self._variables, before
            second = self._value(other)
        self._variables = meet(after, self._variables)
        return self._one_of(first, second, isinstance(truth, Number))

    def _one_of(self, first: Value, second: Value, sure: bool) -> Value:
        """What has one of two values, by a choice that all groups make alike if it is `sure`."""
        if isinstance(first, Number) and isinstance(second, Number) and sure:
            a, b, _ = self.box.promoted(first, second)
            return joined(a, b)
        if first is FLOATING or second is FLOATING:
            return FLOATING
        if isinstance(first, (Pointer, Array)) or isinstance(second, (Pointer, Array)):
            raise Unproven("one of several addresses")
        return joined(first, second) if sure else UNKNOWN

    def _member(self, base: Node, name: str) -> Value:
        value = self._value(base)
        if isinstance(value, Components):
            at = "xyzw".find(name) if len(name) == 1 else -1
            return value.parts[at] if 0 <= at < len(value.parts) else UNKNOWN
        if isinstance(value, (Pointer, Array)):
            raise Unproven("an address in the place of a value")
        return FLOATING if value is FLOATING else UNKNOWN

    def _arrow(self, base: Node, name: str) -> Value:
        raise Unproven("a member behind an address")

    def _cast(self, words: tuple[str, ...], pointer: bool, node: Node) -> Value:
        if pointer:
            raise Unproven("a cast of an address")
        return self._made_of(type_of(words), [self._value(node)])

    def _list(self, nodes: Sequence[Node]) -> Value:
        values = [self._value(one) for one in nodes]
        return values[0] if len(values) == 1 else UNKNOWN

    def _made_of(self, kind: Type | None, values: Sequence[Value]) -> Value:
        if kind is None or any(isinstance(one, (Pointer, Array)) for one in values):
            raise Unproven("an address in the place of a value")
        if kind.kind is None:
            return FLOATING
        if kind.count == 1:
            return self.box.converted(values[0], kind.kind) if len(values) == 1 else UNKNOWN
        if len(values) == 1 and isinstance(values[0], Components) and len(values[0].parts) == kind.count:
            values = values[0].parts
        parts = [self.box.converted(one, kind.kind) for one in values]
        numbers = tuple(one for one in parts if isinstance(one, Number))
        return Components(numbers) if len(numbers) == len(parts) == kind.count else UNKNOWN

    # Calls

    def _call(self, name: str, nodes: Sequence[Node], given: tuple[str, ...]) -> Value:
        values = [self._value(one) for one in nodes]
        if name in self._own:
            return self._call_own(name, values)
        if name in VALUES_OF:
            return self._together(name, values)
        if any(isinstance(one, (Pointer, Array)) for one in values):
            raise Unproven("an address in the place of a value")
        if name == "static_cast":
            return self._made_of(type_of(given), values)
        if name in WHOLE:
            return self._whole(name, values)
        if name not in PURE and name not in TYPES:
            raise Unproven(name)
        if name in ("min", "max") and len(values) == 2:
            return self._least(name, values[0], values[1])
        if name == "clamp" and len(values) == 3:
            return self._least("min", self._least("max", values[0], values[1]), values[2])
        if name in _COUNTS and isinstance(values[0], Number) and values[0].steps == NONE:
            return Number(values[0].kind)
        floating = FLOATING in values or name in FLOAT_CALLS or name in FLOATS
        if any(word in FLOATS for word in given) and name != "as_type":
            floating = True
        return FLOATING if floating and name != "as_type" else UNKNOWN

    def _least(self, name: str, one: Value, other: Value) -> Value:
        if not isinstance(one, Number) or not isinstance(other, Number):
            return FLOATING if FLOATING in (one, other) else UNKNOWN
        a, b, _ = self.box.promoted(one, other)
        first = self.box.compared("<" if name == "min" else ">", one, other)
        if first is TRUE or first is FALSE:
            return a if first is TRUE else b
        return joined(a, b) if isinstance(first, Number) else UNKNOWN

    def _whole(self, name: str, values: Sequence[Value]) -> Value:
        """With integers they divide."""
        if FLOATING in values or name == "fmod":
            return FLOATING
        if len(values) != 2 or name == "pow" or not all(isinstance(one, Number) for one in values):
            raise Unproven(name)
        operator = "/" if name == "floor_divide" else "%"
        self._judge(operator, values[1])
        return self.box.combined(operator, values[0], values[1])

    def _together(self, name: str, values: list[Value]) -> Value:
        """What threads do together."""
        if self._unsure:
            raise Unproven("threads that meet where data decides")
        free = VALUES_OF[name]
        for place, one in enumerate(values):
            if isinstance(one, Array):
                one = values[place] = self._decayed(one)
            if isinstance(one, Pointer) and (one.label is not None or one.steps != NONE):
                raise Unproven("an address in the place of a value")
            if place < free or isinstance(one, Pointer) or one is NAMED:
                continue
            if not isinstance(one, Number) or one.steps != NONE:
                raise Unproven("what threads do together differs")
        first = values[0] if values else UNKNOWN
        floating = first is FLOATING or (isinstance(first, Pointer) and first.element is FLOATING)
        return FLOATING if floating and not name.startswith("threadgroup_arg") else UNKNOWN

    def _atomic(self, name: str, target: Node, nodes: Sequence[Node]) -> Value:
        for one in nodes:
            self._value(one)
        match target:
            case ("index", base, index):
                self._place(base, index, name != "atomic_load_explicit")
            case ("name", _):
                found = self._variables.get(target[1])
                if not isinstance(found, Reference):
                    raise Unproven("an atomic of a thread's own")
                self._accessed(found.pointer, constant(0), name != "atomic_load_explicit")
            case _:
                raise Unproven("an atomic of another form")
        return UNKNOWN

    def _call_own(self, name: str, values: Sequence[Value]) -> Value:
        if len(self._frames) > _MOST_CALLS:
            raise Unproven("calls within calls")
        names, types, statements = self._functions(name, len(values))
        unsure, self._unsure = self._unsure, 0
        variables = {one: self._kept(value, held) for one, value, held in zip(names, values, types, strict=True)}
        self._types.update(zip(names, types, strict=True))
        self._unsure = unsure
        frame = self._body(variables, statements)
        found = frame.returned or [UNKNOWN]
        if any(isinstance(one, (Pointer, Array, Components)) for one in found):
            raise Unproven("an address that a function gives")
        if frame.torn:
            return FLOATING if all(one is FLOATING for one in found) else UNKNOWN
        value = found[0]
        for one in found[1:]:
            value = joined(value, one)
        return value


def changes(node: Any) -> bool:
    """Whether an expression changes a variable."""
    if isinstance(node, (tuple, list)):
        return (len(node) > 0 and node[0] in ("assign", "after", "call", "atomic")) or any(map(changes, node))
    return False


def _needs_calm(target: Node) -> None:
    """What is read and written again is evaluated twice here."""
    if changes(target):
        raise Unproven("an index that changes something")
