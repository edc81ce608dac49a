"""Where two runs diverge, and why: each pair of calls is judged by whether its inputs and its results agree."""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from anymps.compare._align import Pair
from anymps.compare._distance import allowed, closest, distance, is_reordered, is_same, relative, roundoff
from anymps.compare._trace import Bound, Sketch, Trace, TracedCall, Value


class Cause(enum.Enum):
    """Why two runs diverge at a call."""

    RANDOM = "random"
    AUTOCAST = "autocast"
    DTYPE = "dtype"
    NUMBER = "number"
    SIZES = "sizes"
    CHOICE = "choice"
    BRANCH = "branch"
    DATA = "data"
    GROWN = "grown"


@dataclass(frozen=True)
class Divergence:
    """Calls at which the runs diverge for a cause of their own, and how much their results differ.

    `left` and `right` are the first such calls; `times` counts those of this cause, operator and line.
    `one` and `other` are the results that differ most; of their difference rounding explains `allowed`.
    """

    cause: Cause
    left: tuple[TracedCall, ...]
    right: tuple[TracedCall, ...]
    one: Sketch | None = None
    other: Sketch | None = None
    allowed: float = 0.0
    times: int = 1

    @property
    def call(self) -> TracedCall:
        """The call to report: the last one of the second run, or of the first."""
        return (self.right or self.left)[-1]

    @property
    def difference(self) -> float:
        """By how much the results differ; 0 without any."""
        return distance(self.one, self.other) if self.one is not None and self.other is not None else 0.0

    @property
    def relative(self) -> float:
        """The difference relative to the largest value."""
        return relative(self.one, self.other) if self.one is not None and self.other is not None else 0.0


@dataclass(frozen=True)
class Rounding:
    """What rounding did where inputs were the same bytes: `first` are the calls whose results were not.

    `relative` is the first difference, relative to the largest value. `same` of `compared` results were the same bytes;
    `share` is the largest difference relative to what is allowed.
    """

    first: Pair | None = None
    relative: float = 0.0
    compared: int = 0
    same: int = 0
    share: float = 0.0


@dataclass(frozen=True)
class Shared:
    """How many of the compared calls PyTorch's own kernels computed: in `both` runs, in `one` alone."""

    both: int = 0
    one: int = 0


_UNMADE = (
    *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "arange", "scalar_tensor"),
    *("new_zeros", "new_ones"),
)
_BEYOND_ROUNDING = 2.0**-10
"""A relative difference that rounding does not make of data."""

_CASTS = ("_to_copy", "to", "copy", "clone", "contiguous")


class Judge:
    """Takes pairs in order and keeps where they diverge."""

    def __init__(self, left: Trace, right: Trace) -> None:
        self._divergences: dict[tuple[Cause, str, str, int], Divergence] = {}
        self.rounding = Rounding()
        self._made = _made(left), _made(right)
        self._narrowed: set[str] = set()
        self._before: Pair | None = None
        self._read_apart = _first_read_apart(left, right)
        self._unread = min(_gap(left.traced_steps), _gap(right.traced_steps))
        self.compared = 0
        self.by_kernels = Shared()

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """In the order of the first run."""
        return tuple(self._divergences.values())

    def take(self, pair: Pair, after: Pair | None) -> None:
        """Judge one pair; `after` is the next one."""
        if not pair.left or not pair.right or not (pair.is_single or _lines(pair.left) & _lines(pair.right)):
            self._take_alone(pair, after)
        else:
            self._take_both(pair)
        self._before = pair

    def _take_alone(self, pair: Pair, after: Pair | None) -> None:
        """Calls that only one run has, or whose lines differ: different paths through the program."""
        beside = {key for other in (self._before, after) if other for key in _lines((*other.left, *other.right))}
        # Backward follows from forward; its order through the graph and its operators are the device's own.
        sides = (pair.left, pair.right)
        calls = [[call for call in side if _computes(call) and not call.in_backward] for side in sides]
        alone = [_lines(side) - _lines(other) for side, other in (calls, calls[::-1])]
        if any(lines - beside for lines in alone):
            self._add(Divergence(Cause.BRANCH, tuple(calls[0]), tuple(calls[1])))

    def _take_both(self, pair: Pair) -> None:
        """One operator in both, whole or in pieces."""
        inputs = _Inputs(pair, self._made, self._before is None or pair.left[0].step <= self._unread)
        results = _results(pair)
        if not results:
            return
        self.compared += 1
        self._count(pair)
        # Of a single operator the first result counts: what it saves for its backward may have another dtype.
        counted = results[:1] if pair.is_single else results
        other_dtypes = any(_differ_in_dtype(*both) for both in (*inputs.pairs, *counted))
        if not other_dtypes:
            self._note_narrowed(results)
            results = [both for both in results if not _differ_in_dtype(*both)]
        if inputs.apart is not None and self._is_from_outside(pair, inputs.share):
            self._add(Divergence(Cause.DATA, pair.left, pair.right, *inputs.apart))
            return
        one, other = max(results, key=lambda it: relative(*it))
        limit = _allowed(pair, inputs.sketches, one, other)
        found = Divergence(Cause.NUMBER, pair.left, pair.right, one, other, limit)
        if any(call.is_random for call in (*pair.left, *pair.right)):
            # What it draws does not depend on what was in its memory before.
            if not all(is_same(*both) for both in results) and (inputs.are_same or not (_reads(pair) or inputs.apart)):
                self._add(replace(found, cause=Cause.RANDOM))
        elif other_dtypes:
            # In backward, the dtype is that of the forward call.
            if not pair.left[0].in_backward and not self._is_narrowed(inputs):
                is_cast = any(call.autocast for call in (*pair.left, *pair.right))
                self._add(replace(found, cause=Cause.AUTOCAST if is_cast else Cause.DTYPE))
            self._note_narrowed(results)
        elif pair.is_single and any(one.shape != other.shape for one, other in results):
            self._add(replace(found, cause=Cause.SIZES))
        elif inputs.are_same:
            self._take_own(pair, results, inputs)
        elif inputs.unmade is not None and self._nothing_differs(pair):
            self._add(Divergence(Cause.DATA, pair.left, pair.right, *inputs.unmade))
        elif inputs.share <= _limit(pair) and found.difference > _most(pair, one, other):
            chosen = not one.is_floating or not other.is_floating
            self._add(replace(found, cause=Cause.CHOICE if chosen else Cause.GROWN))

    def _note_narrowed(self, results: Sequence[tuple[Sketch, Sketch]]) -> None:
        """Keeps which results have different dtypes: those that take them follow."""
        self._narrowed.update(sketch.digest for both in results if _differ_in_dtype(*both) for sketch in both)

    def _count(self, pair: Pair) -> None:
        by = [any(call.by_kernel for call in calls) for calls in (pair.left, pair.right)]
        kept = self.by_kernels
        self.by_kernels = Shared(kept.both + all(by), kept.one + (any(by) and not all(by)))

    def _take_own(self, pair: Pair, results: Sequence[tuple[Sketch, Sketch]], inputs: _Inputs) -> None:
        """From the same bytes: any difference is the operator's own."""
        for one, other in results:
            difference, limit = distance(one, other), _allowed(pair, inputs.sketches, one, other)
            same = is_same(one, other)
            kept = self.rounding
            share = 0.0 if same or not difference else difference / limit if limit else math.inf
            self.rounding = replace(
                kept, compared=kept.compared + 1, same=kept.same + same, share=max(kept.share, min(share, 1.0))
            )
            if difference > limit:
                self._add(Divergence(Cause.NUMBER, pair.left, pair.right, one, other, limit))
                return
            if difference and kept.first is None:
                self.rounding = replace(self.rounding, first=pair, relative=relative(one, other))

    def _nothing_differs(self, pair: Pair) -> bool:
        """Whether all until this forward call was bit-identical: some operators write more than their schema says."""
        kept = self.rounding
        return kept.same == kept.compared and not self._divergences and not pair.left[0].in_backward

    def _is_from_outside(self, pair: Pair, share: float) -> bool:
        """Whether a number of Python that differs so much follows from no tensor that differed before.

        That is certain if nothing differed; and likely if the program has read the same numbers in both runs, and
        rounding is too little for the difference.
        """
        has_read_same = self._read_apart is None or pair.left[0].number < self._read_apart
        return self._nothing_differs(pair) or (has_read_same and share > _BEYOND_ROUNDING)

    def _is_narrowed(self, inputs: _Inputs) -> bool:
        """Whether an input has a different dtype because of an earlier call."""
        pairs = (both for both in inputs.pairs if _differ_in_dtype(*both))
        return any(sketch.digest in self._narrowed for both in pairs for sketch in both)

    def _add(self, divergence: Divergence) -> None:
        call = divergence.call
        key = (divergence.cause, call.name, call.site.file, call.site.line)
        known = self._divergences.get(key)
        self._divergences[key] = divergence if known is None else replace(known, times=known.times + 1)


class _Inputs:
    """The inputs of a pair: which correspond to each other, and how much they differ.

    `share` is the largest relative difference, `unmade` two that differ although no call of either run made them,
    `apart` the numbers of Python that differ most.
    """

    def __init__(self, pair: Pair, made: tuple[set[str], set[str]], complete: bool) -> None:
        left, right = _first(pair.left), _first(pair.right)
        if pair.is_single and len(left) == len(right):
            self.pairs = [(one.sketch, other.sketch) for one, other in zip(left, right, strict=True)]
        else:
            # A piece may take a tensor transposed: attention takes its keys so.
            self.pairs = [both for both in closest(left, right) if not is_reordered(*both)]
        self.sketches = [sketch for both in self.pairs for sketch in both]
        self.share = max((_as_rounded(one, other) for one, other in self.pairs), default=0.0)
        self.apart = _numbers_apart(pair)
        if self.apart is not None:
            self.share = max(self.share, relative(*self.apart))
        self.are_same = self.share == 0
        self.unmade: tuple[Sketch, Sketch] | None = None
        if complete:
            for one, other in self.pairs:
                is_made = one.digest in made[0] or other.digest in made[1]
                if not is_made and relative(one, other) > _BEYOND_ROUNDING:
                    self.unmade = one, other
                    break


def _as_rounded(one: Sketch, other: Sketch) -> float:
    """The relative difference; 0 if the narrower of two dtypes cannot represent it."""
    difference = relative(one, other)
    as_cast = one.dtype != other.dtype and difference <= 2 * max(map(roundoff, (one.dtype, other.dtype)))
    return 0.0 if as_cast else difference


def _numbers_apart(pair: Pair) -> tuple[Sketch, Sketch] | None:
    """The numbers of Python that differ most between two calls of one operator; None if none does."""
    if not pair.is_single or pair.left[0].operator != pair.right[0].operator:
        return None
    numbers = zip(pair.left[0].numbers, pair.right[0].numbers, strict=False)
    both = [(_of_python(one), _of_python(other)) for one, other in numbers if _differ(one, other)]
    return max(both, key=lambda it: relative(*it), default=None)


def _of_python(number: float) -> Sketch:
    value = float(number)
    if not math.isfinite(value):
        nan = math.isnan(value)
        return Sketch("Python float", (), str(value), int(nan), int(not nan), elements=(value,))
    return Sketch("Python float", (), str(value), 0, 0, value, value, value, abs(value), (value,))


def _differ(one: float, other: float) -> bool:
    return one != other and not (math.isnan(one) and math.isnan(other))


def _first_read_apart(left: Trace, right: Trace) -> int | None:
    """The number of calls in the first run before the first value that the programs read differently."""
    for one, other in zip(left.reads, right.reads, strict=False):
        if (one.site.file, one.site.line) != (other.site.file, other.site.line) or _differ(one.value, other.value):
            return one.calls
    return None


def _results(pair: Pair) -> list[tuple[Sketch, Sketch]]:
    """The results of two sides that correspond to each other."""
    left, right = pair.left[0].results, pair.right[0].results
    if pair.is_single and len(left) == len(right):
        return [(one.sketch, other.sketch) for one, other in zip(left, right, strict=True)]
    return list(closest(_last(pair.left), _last(pair.right)))


def _first(calls: Sequence[TracedCall]) -> list[Value]:
    """What calls read that none of them made."""
    made: set[str] = set()
    memories: set[int] = set()
    found: list[Value] = []
    for call in calls:
        for value in call.inputs:
            if value.sketch.digest not in made and value.memory not in memories and value not in found:
                found.append(value)
        made.update(value.sketch.digest for value in call.results)
        memories.update(value.memory for value in call.results if value.memory)
    return found


def _last(calls: Sequence[TracedCall]) -> list[Value]:
    """What calls leave behind: of what was written more than once, the last."""
    found: dict[object, Value] = {}
    read: set[object] = set()
    for number, call in enumerate(calls):
        read.update(value.memory for value in call.inputs if value.memory)
        for place, value in enumerate(call.results):
            found[value.memory or (number, place)] = value
            read.discard(value.memory)  # what was read there before was freed, or is written anew
    # Without intermediate results, which a later call reads.
    kept = {key: value for key, value in found.items() if key not in read} if len(calls) > 1 else found
    return list((kept or found).values())


def _reads(pair: Pair) -> bool:
    return any(call.inputs for call in (*pair.left, *pair.right))


def _lines(calls: Iterable[TracedCall]) -> set[tuple[str, int, bool]]:
    return {(call.site.file, call.site.line, call.in_backward) for call in calls}


def _computes(call: TracedCall) -> bool:
    return call.name not in _CASTS and call.name not in _UNMADE


def _differ_in_dtype(one: Sketch, other: Sketch) -> bool:
    return one.is_floating and other.is_floating and one.dtype != other.dtype


def _made(trace: Trace) -> set[str]:
    """The digests of everything that the calls of a run made."""
    return {value.sketch.digest for call in trace.calls for value in call.results}


def _limit(pair: Pair) -> float:
    """The relative difference up to which inputs differ by rounding alone."""
    return max((call.bound.limit for call in (*pair.left, *pair.right)), default=0.0)


def _most(pair: Pair, one: Sketch, other: Sketch) -> float:
    """The difference beyond which results have diverged, whatever the cause; 0 for what is not rounded."""
    if not one.is_floating:
        return 0.0
    bounds = [call.bound for call in (*pair.left, *pair.right)]
    return max((2 * (bound.limit * max(one.size, other.size) + bound.least) for bound in bounds), default=0.0)


def _allowed(pair: Pair, inputs: Sequence[Sketch], one: Sketch, other: Sketch) -> float:
    """What rounding explains for a pair; for an operator in pieces, as much as the tests of mps allow."""
    bounds = [(call.name, call.bound) for call in (*pair.left, *pair.right)]
    if not pair.is_single:
        if all(bound.kind == "exact" for _, bound in bounds):
            return 0.0
        widest = max((bound for _, bound in bounds), key=lambda bound: bound.limit)
        bounds = [("", Bound(limit=widest.limit, least=widest.least))]
    return max(allowed(name, bound, inputs, one, other) for name, bound in bounds)


def _gap(steps: Collection[int]) -> int:
    """The last step up to which all are traced."""
    known = set(steps)
    last = 0
    while last + 1 in known:
        last += 1
    return last
