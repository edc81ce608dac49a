"""Large launches by a look at few of their groups: one of all that do the same, each at its own place in the buffers.

Which those are is shown from the source (`analysis/_similar_groups.py`). Then what the others touch is what this one
touches, moved by a step. It must not leave the buffers on the way; and where a buffer is written, all accesses move
alike, so that no two threads meet that did not in the group that was looked at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from anymps.metal._arguments import PADDING, Constant
from anymps.metal._launch import Launch
from anymps.metal.analysis import GridPlaces, SimilarGroups, SimilarPart
from anymps.metal.checking._launch import CheckedLaunch

_FEWEST_GROUPS = 4
_MOST_PARTS = 16
_LARGEST = 1 << 31  # bytes: below it no index wraps within a buffer


def clean_by_parts(similar: SimilarGroups, deciding: Collection[int], check: CheckedLaunch, launch: Launch) -> bool:
    """Whether nothing is found in the groups that are looked at, and the others do as they do.

    `deciding` are the buffers whose contents decide what the kernel touches; no launch writes them.
    """
    counts = [(threads + size - 1) // size for threads, size in zip(launch.grid, launch.group, strict=True)]
    total = counts[0] * counts[1] * counts[2]
    if total < _FEWEST_GROUPS or launch.missing > 0 or not similar.knows(launch.kernel):
        return False
    buffers = _buffers_of(launch, deciding)
    if max(buffers.sizes.values(), default=0) >= _LARGEST:
        return False
    settled = frozenset(index for index in buffers.contents if not launch.entry.written >> index & 1)
    places = GridPlaces(launch.grid, launch.group, buffers.contents, settled, frozenset(buffers.starts))
    parts = similar.parts(launch.kernel, places, min(_MOST_PARTS, total // 2))
    if parts is None:
        return False
    # A group that stands for no other moves nowhere, so all of these share one look; each other part has its own.
    single = [part for part in parts if part.first == part.last]
    many = [part for part in parts if part.first != part.last]
    for looked in [[part] for part in many] + ([single] if single else []):
        chosen = [_number(part.first, counts) for part in looked]
        touched = check.look(launch, chosen, deciding)
        if touched is None or not all(_moves_well(part, touched, buffers) for part in looked):
            return False
    return True


@dataclass
class _Buffers:
    """What a launch gives its kernel, by index: sizes in bytes, what lies in some, and which begin where memory does.

    `numbers` are those that are no tensors.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    starts: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)


def _buffers_of(launch: Launch, deciding: Collection[int]) -> _Buffers:
    """The buffers of a launch, with the contents of numbers and of those that are `deciding`."""
    found = _Buffers()
    tensors = iter(launch.tensors)
    for index, slot in enumerate(launch.bound.slots):
        if isinstance(slot, Constant):
            found.contents[index], found.sizes[index] = slot.data[:-PADDING], len(slot.data) - PADDING
            found.starts.add(index)
            found.numbers.add(index)
            continue
        tensor = next(tensors)
        storage = tensor.untyped_storage()
        found.sizes[index] = storage.nbytes()
        before = tensor.data_ptr() - storage.data_ptr()
        if not before:
            found.starts.add(index)
        if index in deciding:
            left = found.sizes[index] - before
            found.contents[index] = ctypes.string_at(tensor.data_ptr(), left) if left else b""
    return found


def _number(position: Sequence[int], counts: Sequence[int]) -> int:
    """Which group it is: x before y before z."""
    return position[0] + counts[0] * (position[1] + counts[1] * position[2])


def _moves_well(part: SimilarPart, touched: Mapping[int, tuple[int, int, int]], buffers: _Buffers) -> bool:
    """Whether what one group touched may move through the part."""
    if part.first == part.last:
        return True
    far = [last - first for first, last in zip(part.first, part.last, strict=True)]
    written = {touched[index][0] for index in part.written}
    steps_of: dict[int, set[tuple[int, int, int]]] = {}
    for index, steps in part.steps.items():
        area, low, high = touched[index]
        steps_of.setdefault(area, set()).update(steps)
        for step in steps_of[area]:
            back = sum(min(0, one * count) for one, count in zip(step, far, strict=True))
            forth = sum(max(0, one * count) for one, count in zip(step, far, strict=True))
            if low < high and (low + back < 0 or high + forth > buffers.sizes[index]):
                return False
    for index, (area, low, high) in touched.items():
        if low < high and area not in steps_of and index not in buffers.numbers:
            return False  # the source was read wrongly
    return all(len(steps) == 1 for area, steps in steps_of.items() if area in written)
