"""Which launches of a kernel are checked, and which of their groups: a sample, or all (`--check-shaders all`)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch

from anymps._settings import asked_for
from anymps.metal._arguments import Arguments, Constant
from anymps.metal._launch import Sizes3

_FIRST = 8  # launches that are checked, each of them
_THEN = 64  # of the launches behind them, each of that number
_MORE = 32  # groups that are drawn
_MOST_ENDS = 32  # groups in which a number of the call ends
_MOST_KEPT = 4096  # launches that are counted
_ALL = "all"


def checks_shaders() -> bool:
    """Whether `ANYMPS_CHECK_SHADERS` asks for it. Raises EnableError for what is no number and not `all`."""
    return asked_for("check_shaders") is not None


def sample_seed() -> int | None:
    """The seed of the groups that are checked; None: all groups are."""
    which = asked_for("check_shaders")
    return None if which == _ALL else int(which)


@dataclass(frozen=True)
class Sample:
    """The groups that are checked of `total`, by their numbers, x before y before z; those drawn come from `seed`."""

    groups: Sequence[int]
    total: int
    seed: int

    @property
    def whole(self) -> bool:
        """Whether it has all of them."""
        return len(self.groups) == self.total

    def parts(self) -> Iterator[tuple[int, int, bool]]:
        """The launch cut into runs of groups: the first one, how many, and whether they are checked."""
        if self.whole:
            yield 0, self.total, True
            return
        end = 0
        for group in self.groups:
            if group > end:
                yield end, group - end, False
            yield group, 1, True
            end = group + 1
        if end < self.total:
            yield end, self.total - end, False


class Samples:
    """The samples of one source's launches. `seed` of None: all groups of all launches.

    Launches of a kernel over the same grid, with arguments of the same types and sizes, are counted together.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._counts: dict[Hashable, int] = {}

    def next(self, kernel: str, bound: Arguments, grid: Sizes3, group: Sizes3) -> Sample | None:
        """What is checked of this launch; None: nothing."""
        groups = [math.ceil(threads / size) for threads, size in zip(grid, group, strict=True)]
        total = math.prod(groups)
        if self._seed is None:
            return Sample(range(total), total, 0)
        number = self._count((kernel, grid, group, *map(_layout, bound.slots)))
        if number > _FIRST and number % _THEN:
            return None
        chosen = {_number(at, groups) for at in itertools.product(*map(_ends, groups))}
        chosen.update(itertools.islice(_where_numbers_end(bound, groups, group), _MOST_ENDS))
        if total <= len(chosen) + _MORE:
            return Sample(range(total), total, self._seed)
        drawn = random.Random(f"{self._seed} {kernel} {number}")
        wanted = len(chosen) + _MORE
        while len(chosen) < wanted:
            chosen.add(drawn.randrange(total))
        return Sample(sorted(chosen), total, self._seed)

    def _count(self, key: Hashable) -> int:
        number = self._counts.pop(key, 0) + 1
        if len(self._counts) >= _MOST_KEPT:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = number
        return number


def _layout(slot: object) -> Hashable:
    if isinstance(slot, torch.Tensor):
        return slot.dtype, slot.shape, slot.stride()
    return (slot.letter, len(slot.data)) if isinstance(slot, Constant) else None


def _ends(count: int) -> list[int]:
    """The first two groups along an axis and the last two."""
    return sorted({at for at in (0, 1, count - 2, count - 1) if 0 <= at < count})


def _number(at: Sequence[int], groups: Sequence[int]) -> int:
    return at[0] + groups[0] * (at[1] + groups[1] * at[2])


def _where_numbers_end(bound: Arguments, groups: Sequence[int], group: Sizes3) -> Iterator[int]:
    """Groups along each axis in which a number of the call, or a tensor, ends: `if (i < n)` changes there."""
    sizes = {slot.numel() for slot in bound.slots if isinstance(slot, torch.Tensor)}
    for number in sorted(sizes | bound.integers()):
        for axis in range(3):
            for thread in (number - 1, number):
                at = [0, 0, 0]
                at[axis] = thread // group[axis]
                if 0 < at[axis] < groups[axis]:
                    yield _number(at, groups)
