"""Integers of a kernel as sums: a multiple of the group's position, and a rest that all groups have in common.

The sum holds modulo the width of its type. Where the limits of the rest are known, it holds as it stands: nothing wraps
in any of the groups that are looked at together, a box of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anymps.metal.translation import SPACES

Steps = tuple[int, int, int]
NONE: Steps = (0, 0, 0)
_FLOATING_SIZES = {"half": 2, "bfloat": 2, "float": 4}
_MOST_MIXED = 8  # groups in which a condition holds for some threads, and not for others


@dataclass(frozen=True)
class Kind:
    """An integer type."""

    bits: int
    signed: bool

    @property
    def least(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        return (1 << (self.bits - self.signed)) - 1


BOOL = Kind(1, False)
INT, UINT = Kind(32, True), Kind(32, False)
LONG, ULONG = Kind(64, True), Kind(64, False)
KINDS: Mapping[str, Kind] = {
    "bool": BOOL,
    **dict.fromkeys(("char", "int8_t"), Kind(8, True)),
    **dict.fromkeys(("uchar", "uint8_t"), Kind(8, False)),
    **dict.fromkeys(("short", "int16_t"), Kind(16, True)),
    **dict.fromkeys(("ushort", "uint16_t"), Kind(16, False)),
    **dict.fromkeys(("int", "int32_t"), INT),
    **dict.fromkeys(("uint", "unsigned", "uint32_t"), UINT),
    **dict.fromkeys(("long", "int64_t", "ptrdiff_t"), LONG),
    **dict.fromkeys(("ulong", "uint64_t", "size_t"), ULONG),
}


class Unproven(Exception):
    """Something that may differ from group to group in another way than by a step."""


class Split(Exception):
    """A condition that differs from group to group along one axis, in the parts that begin at these places."""

    def __init__(self, axis: int, places: Sequence[int]) -> None:
        super().__init__(axis)
        self.axis, self.places = axis, tuple(places)


class Other:
    """What is no integer of this kind. Where it is `floating`, it is surely none at all."""

    def __init__(self, floating: bool) -> None:
        self.floating = floating


UNKNOWN = Other(False)
FLOATING = Other(True)
NAMED = Other(False)  # a constant that is not ours to know: the same in all groups


@dataclass(frozen=True, slots=True)
class Number:
    """An integer: `steps` times the group's position and a rest from `low` to `high`, None where that is not known."""

    kind: Kind
    steps: Steps = NONE
    low: int | None = None
    high: int | None = None

    @property
    def fixed(self) -> int | None:
        """The number that it is, if it is known."""
        return self.low if self.low == self.high and self.steps == NONE else None


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address: in a buffer, or where `label` is None in memory of the group. `steps` are bytes.

    `element`: what lies there. `offset`: how many bytes it is behind the buffer's start, if that is known. `start`:
    it is where the buffer and its storage begin.
    """

    label: int | None
    size: int
    element: Kind | Other
    steps: Steps = NONE
    offset: int | None = None
    start: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """Another name of what lies at an address."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class Array:
    """Memory of the group, or of a thread, that is declared: with so many indices."""

    shared: bool
    size: int
    element: Kind | Other
    depth: int


@dataclass(frozen=True, slots=True)
class Components:
    """A vector of integers."""

    parts: tuple[Number, ...]


class Type:
    """A type of a value: an integer's kind, or None; how many there are of them; whether they are floating."""

    def __init__(self, kind: Kind | None, size: int, count: int = 1) -> None:
        self.kind, self.count = kind, count
        self.size = size * (4 if count == 3 else count)
        self.element: Kind | Other = UNKNOWN if kind is not None and count > 1 else FLOATING if kind is None else kind


@functools.cache
def type_of(words: tuple[str, ...]) -> Type | None:
    """The type that these words name; None for `auto`. Raises Unproven."""
    names = [word for word in words if word not in ("const", "constexpr", "metal", "::", *SPACES)]
    if names == ["auto"]:
        return None
    name = names[0] if names else ""
    if len(names) == 2 and name == "unsigned":
        name = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}.get(names[1], "")
    elif len(names) != 1:
        name = ""
    name = name.removeprefix("atomic_")
    count = int(name[-1]) if name[-1:] in ("2", "3", "4") and name not in KINDS else 1
    base = name[:-1] if count > 1 else name
    if base in _FLOATING_SIZES:
        return Type(None, _FLOATING_SIZES[base], count)
    if base not in KINDS:
        raise Unproven("a type of another form")
    return Type(KINDS[base], max(KINDS[base].bits // 8, 1), count)


Value = Number | Pointer | Reference | Array | Components | Other


def constant(value: int, kind: Kind = INT) -> Number:
    return Number(kind, NONE, value, value)


TRUE, FALSE, PERHAPS = constant(1, BOOL), constant(0, BOOL), Number(BOOL, NONE, 0, 1)


class Box:
    """Groups that are looked at together: from `first` to `last` along each axis, both included."""

    def __init__(self, first: Sequence[int], last: Sequence[int]) -> None:
        self.first, self.last = tuple(first), tuple(last)

    def spread(self, steps: Steps) -> tuple[int, int]:
        """The least and the most that these steps come to."""
        low = high = 0
        for step, first, last in zip(steps, self.first, self.last, strict=True):
            low += step * (first if step > 0 else last)
            high += step * (last if step > 0 else first)
        return low, high

    def made(self, kind: Kind, steps: Steps, low: int | None, high: int | None) -> Number:
        """A number, whose limits are kept if it fits its type in all groups."""
        if low is None or high is None:
            return Number(kind, steps)
        least, most = self.spread(steps) if steps != NONE else (0, 0)
        if least + low < kind.least or most + high > kind.most:
            return Number(kind, steps)
        return Number(kind, steps, low, high)

    def converted(self, one: Value, kind: Kind) -> Value:
        """A value as one of an integer type."""
        if not isinstance(one, Number):
            return UNKNOWN
        if one.kind == kind:
            return one
        if kind == BOOL:
            return self.truth(one)
        if one.low is not None:
            found = self.made(kind, one.steps, one.low, one.high)
            if found.low is not None:
                return found
        if one.steps != NONE and kind.bits > one.kind.bits:
            return UNKNOWN  # where it wraps is not known
        return Number(kind, one.steps)

    def truth(self, one: Value) -> Number | Other:
        """Whether it is not zero: TRUE, FALSE, the same in all groups, or UNKNOWN."""
        if isinstance(one, Number) and one.kind != BOOL:
            return self.compared("!=", one, constant(0, one.kind))
        if not isinstance(one, Number):
            return UNKNOWN
        return one if one.fixed is None else TRUE if one.fixed else FALSE

    def promoted(self, a: Number, b: Number) -> tuple[Value, Value, Kind]:
        """Two operands in their common type."""
        kinds = [one.kind if one.kind.bits >= INT.bits else INT for one in (a, b)]
        bits = max(kind.bits for kind in kinds)
        kind = Kind(bits, all(one.signed for one in kinds if one.bits == bits))
        return self.converted(a, kind), self.converted(b, kind), kind

    def combined(self, operator: str, left: Value, right: Value) -> Value:
        """`left operator right` of two values that are no addresses."""
        if operator in ("==", "!=", "<", ">", "<=", ">="):
            return self.compared(operator, left, right)
        if FLOATING in (left, right):
            return FLOATING
        if not isinstance(left, Number) or not isinstance(right, Number):
            return UNKNOWN
        if operator in ("<<", ">>"):
            return self._shifted(operator, left, right)
        a, b, kind = self.promoted(left, right)
        if not isinstance(a, Number) or not isinstance(b, Number):
            return UNKNOWN
        if operator in ("+", "-"):
            return self._added(kind, a, b, 1 if operator == "+" else -1)
        if operator == "*":
            return self._multiplied(kind, a, b)
        if operator in ("/", "%"):
            return self._divided(operator, kind, a, b)
        # The low bits of a number are what is left of it behind the next power of two.
        if (
            operator == "&"
            and b.fixed is not None
            and b.fixed >= 0
            and b.fixed & (b.fixed + 1) == 0
            and a.low is not None
        ):
            return self._divided("%", kind, a, constant(b.fixed + 1, kind)) if b.fixed < kind.most else a
        return Number(kind) if a.steps == b.steps == NONE else UNKNOWN

    def _shifted(self, operator: str, left: Number, right: Number) -> Value:
        """A shift multiplies or divides by a power of two; but to the right it rounds down, a division toward zero."""
        count = right.fixed
        if count is None or not 0 <= count <= 30:
            return Number(self.promoted(left, left)[2]) if left.steps == right.steps == NONE else UNKNOWN
        power = constant(1 << count, left.kind)
        if operator == "<<":
            return self.combined("*", left, power)
        if left.steps == NONE and (left.low is None or left.low < 0):
            return Number(self.promoted(left, left)[2])
        return self.combined("/", left, power)

    def _added(self, kind: Kind, a: Number, b: Number, sign: int) -> Number:
        x, y = a.steps, b.steps
        steps = (x[0] + sign * y[0], x[1] + sign * y[1], x[2] + sign * y[2])
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Number(kind, steps)
        ends = (b.low, b.high) if sign == 1 else (-b.high, -b.low)
        return self.made(kind, steps, a.low + ends[0], a.high + ends[1])

    def _multiplied(self, kind: Kind, a: Number, b: Number) -> Value:
        if a.steps != NONE:
            a, b = b, a
        if b.steps == NONE:
            if a.low is None or a.high is None or b.low is None or b.high is None:
                return Number(kind)
            corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            return self.made(kind, NONE, min(corners), max(corners))
        factor = a.fixed
        if factor is None:
            return UNKNOWN
        x = b.steps
        steps = (x[0] * factor, x[1] * factor, x[2] * factor)
        if b.low is None or b.high is None:
            return Number(kind, steps)
        ends = sorted((b.low * factor, b.high * factor))
        return self.made(kind, steps, ends[0], ends[1])

    def _divided(self, operator: str, kind: Kind, a: Number, b: Number) -> Value:
        by = b.fixed
        if a.steps == b.steps == NONE and (by is None or by <= 0 or a.low is None or a.low < 0):
            return Number(kind)
        if by is None or by <= 0 or a.low is None or a.high is None:
            return UNKNOWN
        least, most = self.spread(a.steps)
        if least + a.low < 0:
            return UNKNOWN
        if most + a.high < by:  # smaller in all groups
            return constant(0, kind) if operator == "/" else a
        if any(step % by for step in a.steps):
            return UNKNOWN
        if operator == "/":
            x = a.steps
            return Number(kind, (x[0] // by, x[1] // by, x[2] // by), a.low // by, a.high // by)
        if a.low // by == a.high // by:
            return Number(kind, NONE, a.low % by, a.high % by)
        return Number(kind, NONE, 0, by - 1)

    def compared(self, operator: str, left: Value, right: Value) -> Number | Other:
        """TRUE, FALSE, the same in all groups, or UNKNOWN. Raises Split where groups along one axis differ."""
        if not isinstance(left, Number) or not isinstance(right, Number):
            return UNKNOWN
        a, b, _ = self.promoted(left, right)
        if not isinstance(a, Number) or not isinstance(b, Number):
            return UNKNOWN
        x, y = a.steps, b.steps
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return PERHAPS if x == y == NONE else UNKNOWN
        steps, low, high = (x[0] - y[0], x[1] - y[1], x[2] - y[2]), a.low - b.high, a.high - b.low
        if operator in (">", ">="):  # b < a, b <= a
            steps, low, high = (-steps[0], -steps[1], -steps[2]), -high, -low
        if operator in ("<=", ">="):  # at most zero: below one
            low, high = low - 1, high - 1
        least, most = self.spread(steps)
        in_all = _beside_zero(operator, least + low, most + high)
        if in_all is not None:
            return in_all
        return PERHAPS if steps == NONE else self._cut(steps, -high, -low + (operator in ("==", "!=")))

    def _cut(self, steps: Steps, mixed: int, rest: int) -> Other:
        """Splits where the steps come to `mixed`, and again where they come to `rest`: between them threads differ."""
        axes = [axis for axis in range(3) if steps[axis] and self.first[axis] != self.last[axis]]
        if len(axes) != 1:
            return UNKNOWN
        (axis,) = axes
        step = steps[axis]
        if step > 0:
            ends = -(-mixed // step), -(-rest // step)
        else:  # the other way round
            ends = (-rest) // (-step) + 1, (-mixed) // (-step) + 1
        first, last = max(ends[0], self.first[axis]), min(ends[1], self.last[axis] + 1)
        if last - first > _MOST_MIXED:
            return UNKNOWN
        raise Split(axis, range(first, last + 1))


def _beside_zero(operator: str, least: int, most: int) -> Number | None:
    """Whether `== 0`, `!= 0` or, for any other operator, `< 0` holds for all from `least` to `most`, or for none."""
    if operator in ("==", "!="):
        if least > 0 or most < 0:
            return TRUE if operator == "!=" else FALSE
        if least == most == 0:
            return FALSE if operator == "!=" else TRUE
        return None
    return TRUE if most < 0 else FALSE if least >= 0 else None


def joined(one: Value, other: Value) -> Value:
    """What has one of two values, by a choice that all groups make alike."""
    if one == other:
        return one
    if isinstance(one, Number) and isinstance(other, Number) and (one.kind, one.steps) == (other.kind, other.steps):
        if one.low is None or one.high is None or other.low is None or other.high is None:
            return Number(one.kind, one.steps)
        return Number(one.kind, one.steps, min(one.low, other.low), max(one.high, other.high))
    if isinstance(one, Pointer) and isinstance(other, Pointer):
        apart = replace(one, start=False, offset=None)
        return apart if apart == replace(other, start=False, offset=None) else UNKNOWN
    if isinstance(one, Components) and isinstance(other, Components) and len(one.parts) == len(other.parts):
        parts = [joined(a, b) for a, b in zip(one.parts, other.parts, strict=True)]
        numbers = tuple(part for part in parts if isinstance(part, Number))
        return Components(numbers) if len(numbers) == len(parts) else UNKNOWN
    return UNKNOWN
