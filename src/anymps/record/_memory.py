"""The memory of a run: what every buffer was, what held the memory at its peak, and how it went from step to step.

What a buffer was follows from its life. A parameter is seen in a module. A gradient is born in a backward and outlives
it; an optimizer's state is born in its step and outlives that; an activation is born before a backward and dies in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from operator import attrgetter
from typing import NamedTuple

from anymps._vocabulary import Phase, Role
from anymps.record._facts import MemorySample, Site
from anymps.record._rows import Rows

_NOWHERE = Site("", 0)


class Category(str, Enum):
    """What memory is used for; in the order in which reports stack them."""

    PARAMETERS = "parameters"
    """Of modules, their buffers included."""
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    BATCHES = "batches"
    """Moved to the device, and gone again with the next step. A whole data set stays, and so does a model."""
    ACTIVATIONS = "activations"
    """Kept by the forward for the backward, and results that live as long as a step."""
    HELD = "held by the script"
    """Alive for more than a step, and none of the above: a cache, a data set, or something kept by accident."""
    TEMPORARIES = "temporaries"
    BEFORE = "before the recording"


class Allocation(NamedTuple):
    """One buffer. A tuple, because a run has some 100,000.

    `born` and `died` count the allocator's events (0: before the recording, None: not before its end). Just after it
    was allocated, the device had `allocated` bytes in buffers and `reserved` in heaps.
    """

    id: int
    born: int
    died: int | None
    born_ns: int
    bytes: int
    requested: int
    category: Category
    operator: str
    module: str
    site: Site
    step: int
    phase: Phase
    died_step: int | None = None
    """None if it was there at the end."""
    allocated: int = 0
    reserved: int = 0

    def alive_at(self, event: int) -> bool:
        """Whether the buffer existed just after an event."""
        return self.born <= event and (self.died is None or self.died > event)


@dataclass(frozen=True)
class Holding:
    """Memory of one category, module or line, in `count` buffers, whose tensors asked for `requested` bytes."""

    bytes: int
    count: int
    category: Category
    module: str = ""
    site: Site = _NOWHERE
    operator: str = ""
    requested: int = 0

    @classmethod
    def of(cls, group: Sequence[Allocation], *, module: str = "", site: Site = _NOWHERE, operator: str = "") -> Holding:
        """What buffers of one category hold together."""
        size, requested = (sum(getattr(one, name) for one in group) for name in ("bytes", "requested"))
        return cls(size, len(group), group[0].category, module, site, operator, requested)


@dataclass(frozen=True)
class Moment:
    """The memory just after one event: `allocated` bytes in buffers, `reserved` bytes in heaps."""

    event: int
    at_ns: int
    step: int
    phase: Phase
    site: Site
    allocated: int
    reserved: int
    by_category: dict[Category, int]
    alive: tuple[Allocation, ...]

    @property
    def cached(self) -> int:
        """Bytes of heaps that no buffer uses: cache and fragmentation."""
        return max(0, self.reserved - self.allocated)

    @property
    def rounding(self) -> int:
        """Bytes charged beyond the requested ones."""
        return sum(one.bytes - one.requested for one in self.alive)

    def by_module(self, category: Category = Category.ACTIVATIONS) -> tuple[Holding, ...]:
        """The modules that hold most of a category, largest first."""
        groups: dict[str, list[Allocation]] = defaultdict(list)
        for one in self.alive:
            if one.category is category:
                groups[one.module].append(one)
        rows = (Holding.of(group, module=module) for module, group in groups.items())
        return tuple(sorted(rows, key=lambda row: (-row.bytes, row.module)))

    def by_site(self) -> tuple[Holding, ...]:
        """The lines that hold most, largest first; a line counts once for each category and operator."""
        groups: dict[tuple[Category, Site, str], list[Allocation]] = defaultdict(list)
        for one in self.alive:
            groups[one.category, one.site, one.operator].append(one)
        rows = (Holding.of(group, site=site, operator=operator) for (_, site, operator), group in groups.items())
        return tuple(sorted(rows, key=lambda row: (-row.bytes, *row.site.file_line, row.operator)))


@dataclass(frozen=True)
class StepMemory:
    """One step: its highest `peak`, and what was left `after` its end (bytes).

    A step ends when the optimizer's `step` returns; what is freed later, before the next forward, counts as left.
    """

    step: int
    peak: int
    reserved: int
    after: int


@dataclass(frozen=True)
class Sample:
    """One point of the curve over time."""

    at_ns: int
    reserved: int
    by_category: tuple[int, ...]
    """In the order of `Category`."""
    step: int = 0


@dataclass(frozen=True)
class MemoryStory:
    """The memory of a whole run. Without allocations `peak` is None."""

    allocations: tuple[Allocation, ...]
    peak: Moment | None
    peak_reserved: int
    dropped: bool
    """Whether the run went on after the last allocation that was kept one by one."""

    def at(self, event: int) -> Moment:
        """The memory just after an event."""
        return _moment(self.allocations, event)

    def steps(self) -> tuple[StepMemory, ...]:
        """Step by step."""
        return self._steps

    @cached_property
    def _steps(self) -> tuple[StepMemory, ...]:
        return _steps(self.allocations)

    def samples(self, points: int = 400) -> tuple[Sample, ...]:
        """The curve of memory over time, in at most `points` points, each with the highest moment of its interval."""
        return _samples(self.allocations, points)


def read_samples(rows: Rows, resolution: int) -> tuple[MemorySample, ...]:
    """The highest sample of each of `resolution` equal spans of time, by the births of buffers."""
    spans = rows(
        "SELECT born_ns, MAX(allocated), reserved FROM allocations, "
        "(SELECT MIN(born_ns) AS since, MAX(born_ns) + 1 AS until FROM allocations WHERE born > 0) "
        f"WHERE born > 0 GROUP BY (born_ns - since) * {resolution} / (until - since) ORDER BY born_ns"
    )
    return tuple(MemorySample(*row) for row in spans)


Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]


def tell(
    rows: Iterable[Row],
    last_step: int,
    operators: dict[int, str],
    modules: dict[int, str],
    sites: dict[int, Site],
    dropped: bool = False,
    cut_short: bool = False,
) -> MemoryStory:
    """The story of `rows` of the table `allocations`; in `last_step` the last buffer was born.

    `cut_short`: the run did not come to its end, so what is alive in its last step may be that step's.
    """
    if cut_short:
        rows = list(rows)
        cut_short = any(row[-1] != Role.NONE for row in rows)  # else it was the model that was being moved
    # A long run has some 100,000 buffers: enumeration members are looked up once, not once a buffer, and a buffer is
    # made a tuple without the `__new__` of its class, which is Python.
    phases = list(Phase)
    made = partial(tuple.__new__, Allocation)
    allocations: list[Allocation] = []
    for (
        identity, born, died, born_ns, _, size, requested, in_use, reserved, signature, module, site, step, died_step,
        phase, died_phase, role,
    ) in rows:  # fmt: skip
        category = _category(born, died, step, died_step, phase, died_phase, role, module, last_step, cut_short)
        operator, path, place = operators.get(signature, ""), modules.get(module, ""), sites.get(site, _NOWHERE)
        columns = (
            identity, born, died or None, born_ns, size, requested, category, operator, path, place, step,
            phases[phase], died_step if died else None, in_use, reserved,
        )  # fmt: skip
        allocations.append(made(columns))
    allocations.sort(key=attrgetter("born"))
    births = [one for one in allocations if one.born]
    highest = max(births, key=lambda one: (one.allocated, -one.born), default=None)
    return MemoryStory(
        allocations=tuple(allocations),
        peak=_moment(allocations, highest.born) if highest is not None else None,
        peak_reserved=max((one.reserved for one in births), default=0),
        dropped=dropped,
    )


def _category(
    born: int,
    died: int,
    step: int,
    died_step: int,
    phase: int,
    died_phase: int,
    role: int,
    module: int,
    last_step: int,
    cut_short: bool,
) -> Category:
    """What a buffer was, from its life; see the module."""
    if role != Role.NONE:
        return Category.PARAMETERS
    if not born:
        return Category.BEFORE
    outlives = (died_step if died else last_step + 1) > step
    if phase == Phase.BACKWARD:
        return Category.GRADIENTS if outlives or died_phase == Phase.OPTIMIZER else Category.TEMPORARIES
    if phase == Phase.OPTIMIZER:
        return Category.OPTIMIZER if outlives and not (died and died_step == step + 1) else Category.TEMPORARIES
    long_lived = died_step > step + 1 if died else last_step > step or not module
    if phase in (Phase.MOVE, Phase.BATCH):
        # Without steps, what never dies is a whole data set or a model, unless the run was cut short in its first step.
        stays = died_step > step + 1 if died else last_step > step + 1 or (not last_step and not cut_short)
        return Category.HELD if stays else Category.BATCHES
    if long_lived:
        return Category.HELD
    if died_phase == Phase.BACKWARD or outlives:
        return Category.ACTIVATIONS
    return Category.TEMPORARIES


def _moment(allocations: Sequence[Allocation], event: int) -> Moment:
    alive = tuple(one for one in allocations if one.alive_at(event))
    by_category = dict.fromkeys(Category, 0)
    for one in alive:
        by_category[one.category] += one.bytes
    cause = next((one for one in alive if one.born == event), None)
    known = sum(by_category.values())
    at = cause if event else None  # a birth that the recording saw
    allocated = at.allocated if at is not None else known
    by_category[Category.BEFORE] += max(0, allocated - known)
    return Moment(
        event=event,
        at_ns=cause.born_ns if cause is not None else 0,
        step=cause.step if cause is not None else 0,
        phase=cause.phase if cause is not None else Phase.OTHER,
        site=cause.site if cause is not None else _NOWHERE,
        allocated=allocated,
        reserved=at.reserved if at is not None else 0,
        by_category=by_category,
        alive=alive,
    )


def _events(allocations: Sequence[Allocation]) -> Iterator[tuple[int, Allocation]]:
    """Births (+1) and deaths (-1) in their order."""
    deaths = sorted((one for one in allocations if one.died is not None), key=attrgetter("died"))
    place, last = 0, len(deaths)
    for one in allocations:
        while place < last and deaths[place].died < one.born:  # type: ignore[operator]
            yield -1, deaths[place]
            place += 1
        yield 1, one
    for one in deaths[place:]:
        yield -1, one


def _steps(allocations: Sequence[Allocation]) -> tuple[StepMemory, ...]:
    peaks: dict[int, list[int]] = {}
    for one in allocations:
        if one.born:
            highest = peaks.setdefault(one.step, [0, 0])
            highest[0] = max(highest[0], one.allocated)
            highest[1] = max(highest[1], one.reserved)
    changes: Counter[int] = Counter()  # by step: what it leaves less what it frees of others
    for one in allocations:
        if one.died_step != one.step:
            changes[one.step] += one.bytes
            if one.died_step is not None:
                changes[one.died_step] -= one.bytes
    steps = []
    left = 0
    for step in sorted({*peaks, *changes}):
        left += changes[step]
        if step in peaks:
            peak, reserved = peaks[step]
            steps.append(StepMemory(step, peak, reserved, left))
    return tuple(steps)


def _samples(allocations: Sequence[Allocation], points: int) -> tuple[Sample, ...]:
    order = {category: place for place, category in enumerate(Category)}
    current = [0] * len(order)
    births = sum(one.born > 0 for one in allocations)
    stretch = -(-max(1, births) // points)
    samples: list[Sample] = []
    best: Sample | None = None
    most = total = seen = 0
    for sign, one in _events(allocations):
        size = sign * one.bytes
        current[order[one.category]] += size
        total += size
        if sign < 0 or not one.born:
            continue
        if best is None or total > most:
            best, most = Sample(one.born_ns, one.reserved, tuple(current), one.step), total
        seen += 1
        if seen % stretch == 0:
            samples.append(best)
            best = None
    if best is not None:
        samples.append(best)
    return tuple(samples)
