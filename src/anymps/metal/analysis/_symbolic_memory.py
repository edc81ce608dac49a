"""Variables and memory of a kernel whose groups are to be shown alike: what a thread keeps, reads and writes.

What a thread does depends on its place in the group, on the numbers of the launch, and on values that are the same in
all groups; then all groups do the same. Whatever else could decide, the contents of memory above all, is `Unproven`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anymps.metal.analysis._symbolic_values import (
    FLOATING,
    NAMED,
    NONE,
    UNKNOWN,
    Array,
    Box,
    Components,
    Kind,
    Number,
    Other,
    Pointer,
    Reference,
    Steps,
    Type,
    Unproven,
    Value,
    constant,
    joined,
)
from anymps.metal.analysis._syntax_tree import Node

_FLOATING_NAMES = frozenset({"INFINITY", "NAN", "HUGE_VALF", "MAXFLOAT", "M_PI_F", "FLT_MAX", "FLT_MIN", "FLT_EPSILON"})

Variables = dict[str, Value]
Held = tuple[Type | None, bool]
"""What a variable holds: values of a type, or an address; neither of them where that is not known."""
Body = tuple[list[str], list[Held], list[Node]]
"""A function's own: the names of its parameters, what they hold, and its statements."""


class Frame:
    """One call: what it returns. `torn`: data decides where it ends."""

    def __init__(self, unsure: int, loops: int) -> None:
        self.unsure, self.loops = unsure, loops
        self.returned: list[Value] = []
        self.torn = False


class Memory(ABC):
    """What a run knows. `touched`: by buffer, how many bytes its accesses move from group to group."""

    def __init__(
        self,
        box: Box,
        functions: Callable[[str, int], Body],
        own: Mapping[str, Any],
        names: Mapping[str, Number],
        contents: Mapping[int, bytes],
        settled: frozenset[int],
    ) -> None:
        self.box = box
        self.touched: dict[int, set[Steps]] = {}
        self.written: set[int] = set()
        self._functions, self._own, self._names = functions, own, names
        self._contents, self._settled = contents, settled
        self._variables: Variables = {}
        self._types: dict[str, Held] = {}
        self._unsure = 0  # above zero: data decides whether a thread comes here
        self._loops: list[tuple[list[Variables], list[Variables]]] = []  # where threads break off, and go on
        self._frames: list[Frame] = []

    @abstractmethod
    def _value(self, node: Node) -> Value:
        """What an expression gives."""

    @abstractmethod
    def _made_of(self, kind: Type | None, values: Sequence[Value]) -> Value:
        """A value of a type, from these."""

    @abstractmethod
    def _body(self, variables: Variables, statements: Sequence[Node]) -> Frame:
        """Runs a function's statements, which find its parameters in `variables`."""

    def _name(self, name: str) -> Value:
        found = self._variables.get(name, UNKNOWN)
        if not isinstance(found, Reference):
            if self._types.get(name) == (None, True) and not isinstance(found, Pointer):
                raise Unproven("one of several addresses")
            return found
        pointer = found.pointer
        if pointer.label in self._settled and len(self._contents.get(pointer.label or 0, b"")) >= pointer.size:
            return self._load(pointer, constant(0))  # a number of the launch, which is all there
        return self._load(*self._accessed(pointer, constant(0), False))

    def _global(self, name: str) -> Value:
        return FLOATING if name in _FLOATING_NAMES else self._names.get(name, NAMED)

    def _kept(self, value: Value, held: Held) -> Value:
        """A value as a variable holds it."""
        kind, pointer = held
        if isinstance(value, Array):
            value = self._decayed(value)
        if isinstance(value, Pointer) != pointer:
            raise Unproven("an address in the place of a value")
        if kind is not None and kind.kind is None:
            return FLOATING
        if self._unsure or (kind is None and not pointer):
            return UNKNOWN
        if kind is None or kind.kind is None:
            return value
        return self._made_of(kind, [value]) if kind.count == 1 or isinstance(value, Components) else UNKNOWN

    def _decayed(self, array: Array) -> Pointer:
        if not array.shared or array.depth != 1:
            raise Unproven("the address of an array")
        return Pointer(None, array.size, array.element)

    def _place(self, base: Node, index: Node, writes: bool) -> tuple[Value, Number | None]:
        """What is accessed, and at which index."""
        found, at = self._value(base), self._value(index)
        return self._accessed(found, at, writes)

    def _accessed(self, found: Value, at: Value, writes: bool) -> tuple[Value, Number | None]:
        if not isinstance(at, Number) or (self._unsure and not (isinstance(found, Other) and at.fixed is not None)):
            raise Unproven("an access that data decides on")
        if isinstance(found, Pointer) and found.label is not None:
            if at.steps != NONE and at.low is None and not (found.start and at.kind.bits >= 32):
                raise Unproven("an index that may wrap")
            self.touched.setdefault(found.label, set()).add(moved(found.steps, at.steps, found.size))
            if writes:
                self.written.add(found.label)
            return found, at
        if at.steps != NONE:
            raise Unproven("an index that differs from group to group")
        if isinstance(found, (Reference, Components, Number)):
            raise Unproven("an index of another form")
        return found, at

    def _load(self, found: Value, at: Number | None) -> Value:
        """What lies there."""
        if isinstance(found, Array):
            if found.depth > 1:
                return replace(found, depth=found.depth - 1)
            return FLOATING if found.element is FLOATING else UNKNOWN
        if not isinstance(found, Pointer) or not isinstance(found.element, Kind):
            return (
                FLOATING if found is FLOATING or (isinstance(found, Pointer) and found.element is FLOATING) else UNKNOWN
            )
        if found.label not in self._settled or at is None or found.steps != NONE or at.steps != NONE:
            return UNKNOWN
        content = self._contents.get(found.label)
        if content is not None and found.offset is not None and at.fixed is not None:
            offset = found.offset + at.fixed * found.size
            if 0 <= offset and offset + found.size <= len(content):
                part = content[offset : offset + found.size]
                number = int.from_bytes(part, "little", signed=found.element.signed)
                return constant(number, found.element) if number in (0, 1) or found.element.bits > 1 else UNKNOWN
        return Number(found.element)

    def _store(self, target: Node, value: Value, old: bool) -> None:
        """Stores a value; `old`: what was there is read first."""
        match target:
            case ("name", name):
                before = self._variables.get(name, UNKNOWN)
                if isinstance(before, Reference):
                    self._accessed(before.pointer, constant(0), True)
                    return
                if isinstance(before, Array):
                    raise Unproven("an array as a whole")
                self._variables[name] = self._kept(value, self._types.get(name, (None, False)))
            case ("index", base, index):
                found, _ = self._place(base, index, True)
                if isinstance(found, Array) and found.depth > 1:
                    raise Unproven("an array as a whole")
            case ("member", base, _):
                if base[0] != "name":
                    self._store(base, UNKNOWN, old)
                elif isinstance(self._variables.get(base[1]), Components):
                    self._variables[base[1]] = UNKNOWN
                elif isinstance(self._variables.get(base[1]), Reference):
                    self._store(base, UNKNOWN, old)
            case _:
                raise Unproven("an assignment to nothing")


def held_by(value: Value) -> Held:
    """What a variable holds that is declared with this value alone."""
    if isinstance(value, Number):
        return Type(value.kind, 4), False
    return (Type(None, 4), False) if value is FLOATING else (None, isinstance(value, Pointer))


def moved(steps: Steps, by: Steps, size: int) -> Steps:
    return (steps[0] + by[0] * size, steps[1] + by[1] * size, steps[2] + by[2] * size)


def meet(one: Variables, other: Variables, all_of_one: bool = False) -> Variables:
    """What is known where two ways meet; a variable of only one of them is gone, or kept as it is in the first."""
    found = {}
    for name, value in one.items():
        if name in other:
            found[name] = joined(value, other[name])
        elif all_of_one:
            found[name] = value
    return found


def all_meet(ways: Sequence[Variables]) -> Variables:
    found = ways[0]
    for way in ways[1:]:
        found = meet(found, way)
    return found
