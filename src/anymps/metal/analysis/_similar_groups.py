"""Which groups of a launch do the same, each at its own place: by the source, the numbers of the launch and its grid.

A kernel that adds two vectors touches in each group what it touches in the first one, so many bytes further on. So it
is enough to look at one group, and at those that differ: at the edge of the grid, or where a condition changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anymps.metal.analysis._program import Program, parameters_of
from anymps.metal.analysis._symbolic_memory import Body, Held, Variables
from anymps.metal.analysis._symbolic_run import Run
from anymps.metal.analysis._symbolic_values import (
    NONE,
    UINT,
    UNKNOWN,
    Box,
    Components,
    Number,
    Pointer,
    Reference,
    Split,
    Steps,
    Unproven,
    Value,
    constant,
    type_of,
)
from anymps.metal.analysis._syntax_reader import Unclear
from anymps.metal.analysis._syntax_tree import Tree
from anymps.metal.translation import Function, Token, Unsupported, buffer_places

_LANES = 32


@dataclass(frozen=True)
class GridPlaces:
    """What a launch is, but for its buffers: its grid and the size of its groups, in threads.

    `contents`: bytes that lie in buffers; `settled`: buffers that no thread writes, and whose contents are known to be
    the same whenever this is asked; `starts`: buffers that begin where their storage does.
    """

    grid: Sequence[int]
    group: Sequence[int]
    contents: Mapping[int, bytes]
    settled: frozenset[int]
    starts: frozenset[int]


@dataclass(frozen=True)
class SimilarPart:
    """Groups that do the same, from `first` to `last` along each axis. By buffer, the bytes from one to the next."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    steps: Mapping[int, frozenset[Steps]]
    written: frozenset[int]


class SimilarGroups:
    """Of the kernels of a program, which groups do the same."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kernels = {
            function.host_name or function.name: function
            for functions in program.functions.values()
            for function in functions
            if function.kernel and function.template is None
        }
        self._names = _named_numbers(program.code)
        self._bodies: dict[tuple[str, int], Body] = {}

    def knows(self, kernel: str) -> bool:
        """Whether the kernel is understood at all."""
        return self._tree(kernel) is not None

    def parts(self, kernel: str, places: GridPlaces, most: int) -> list[SimilarPart] | None:
        """The grid in boxes of groups that do the same, at most so many; None if that cannot be shown."""
        tree = self._tree(kernel)
        if tree is None:
            return None
        function = self._kernels[kernel]
        waiting = [*_boxes(places)]
        found: list[SimilarPart] = []
        while waiting:
            if len(waiting) + len(found) > most:
                return None
            first, last = waiting.pop()
            if first == last:
                found.append(SimilarPart(first, last, {}, frozenset()))
                continue
            try:
                found.append(self._run(function, tree, places, first, last))
            except (Unproven, Unclear):
                return None
            except Split as split:
                parts = list(_cut(first, last, split.axis, split.places))
                if len(parts) == 1:
                    return None
                waiting += parts
        return found

    def _run(
        self, function: Function, tree: Tree, places: GridPlaces, first: tuple[int, ...], last: tuple[int, ...]
    ) -> SimilarPart:
        box = Box(first, last)
        run = Run(box, self._body, self._program.functions, self._names, places.contents, places.settled)
        variables: Variables = {}
        buffers = buffer_places(function.parameters)
        attributes = [parameter.attribute for parameter in function.parameters]
        for name, words, attribute, place in zip(tree.names, parameters_of(function), attributes, buffers, strict=True):
            if place is None:
                variables[name] = _position(attribute, words, places, box)
            else:
                variables[name] = _buffer(words, place, place in places.starts)
        run.kernel(variables, tree.statements)
        return SimilarPart(
            first, last, {label: frozenset(steps) for label, steps in run.touched.items()}, frozenset(run.written)
        )

    def _tree(self, kernel: str) -> Tree | None:
        function = self._kernels.get(kernel)
        if function is None:
            return None
        try:
            buffer_places(function.parameters)
            return self._program.tree(function)
        except (Unclear, Unsupported):
            return None

    def _body(self, name: str, count: int) -> Body:
        """A function of the program's own that takes so many arguments."""
        if (name, count) not in self._bodies:
            functions = self._program.functions[name]
            if len(functions) != 1 or functions[0].kernel or functions[0].template is not None:
                raise Unproven("one of several functions")
            held = [_held(words) for words in parameters_of(functions[0])]
            if len(held) != count:
                raise Unproven("a function of another form")
            tree = self._program.tree(functions[0])
            self._bodies[name, count] = (tree.names, held, tree.statements)
        return self._bodies[name, count]


def _boxes(places: GridPlaces) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The grid's groups as boxes in which all are of one size."""
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for grid, group in zip(places.grid, places.group, strict=True):
        whole, rest = divmod(grid, group)
        ends = [(0, whole - 1)] if whole else []
        ends += [(whole, whole)] if rest else []
        found = [((*first, a), (*last, b)) for first, last in found for a, b in ends]
    return found


def _cut(
    first: tuple[int, ...], last: tuple[int, ...], axis: int, places: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A box in parts along an axis, which begin at these places."""
    begins = [first[axis], *(place for place in places if first[axis] < place <= last[axis])]
    ends = [*(place - 1 for place in begins[1:]), last[axis]]
    return [
        ((*first[:axis], begin, *first[axis + 1 :]), (*last[:axis], end, *last[axis + 1 :]))
        for begin, end in zip(begins, ends, strict=True)
    ]


def _position(attribute: str, words: list[str], places: GridPlaces, box: Box) -> Value:
    """What a parameter says of where a thread is."""
    kind = type_of(tuple(words[:-1]))
    if kind is None or kind.kind is None:
        raise Unproven("a position of another type")
    parts = _components(attribute, places, box)
    if len(parts) < kind.count:
        raise Unproven("a position of another type")
    converted = tuple(box.converted(part, kind.kind) for part in parts[: kind.count])
    numbers = tuple(one for one in converted if isinstance(one, Number))
    if len(numbers) != kind.count:
        return UNKNOWN
    return numbers[0] if kind.count == 1 else Components(numbers)


def _components(attribute: str, places: GridPlaces, box: Box) -> list[Number]:
    """What Metal gives a parameter with this attribute: one number for each axis, or one alone."""
    sizes = [min(s, g - at * s) for g, s, at in zip(places.grid, places.group, box.first, strict=True)]
    threads = sizes[0] * sizes[1] * sizes[2]
    match attribute:
        case "thread_position_in_grid":
            return [_along(box, axis, places.group[axis], sizes[axis] - 1) for axis in range(3)]
        case "threadgroup_position_in_grid":
            return [_along(box, axis, 1, 0) for axis in range(3)]
        case "thread_position_in_threadgroup":
            return [Number(UINT, NONE, 0, size - 1) for size in sizes]
        case "threads_per_threadgroup":
            return [constant(a, UINT) if a == b else Number(UINT) for a, b in zip(sizes, places.group, strict=True)]
        case "dispatch_threads_per_threadgroup":
            return [constant(size, UINT) for size in places.group]
        case "threads_per_grid":
            return [constant(size, UINT) for size in places.grid]
        case "thread_index_in_threadgroup":
            return [Number(UINT, NONE, 0, threads - 1)]
        case "thread_index_in_simdgroup":
            return [Number(UINT, NONE, 0, _LANES - 1)]
        case "simdgroup_index_in_threadgroup":
            return [Number(UINT, NONE, 0, (threads - 1) // _LANES)]
        case "threads_per_simdgroup" | "thread_execution_width":
            return [constant(_LANES, UINT)]
    return [Number(UINT)] * 3  # one for all groups of a box


def _along(box: Box, axis: int, step: int, most: int) -> Number:
    """A position that grows by `step` from group to group, and by `most` within one."""
    if box.first[axis] == box.last[axis]:
        start = box.first[axis] * step
        return box.made(UINT, NONE, start, start + most)
    steps = (step * (axis == 0), step * (axis == 1), step * (axis == 2))
    return box.made(UINT, steps, 0, most)


def _buffer(words: list[str], place: int, starts: bool) -> Value:
    mark = words[-2] if len(words) > 2 else ""
    if mark not in ("*", "&"):
        raise Unproven("a parameter of another form")
    held = type_of(tuple(words[:-2]))
    if held is None:
        raise Unproven("a parameter of another form")
    pointer = Pointer(place, held.size, held.element, NONE, 0, starts)
    return pointer if mark == "*" else Reference(pointer)


def _held(words: list[str]) -> Held:
    """What a parameter of a function of the program's own holds: a value, or an address of the memory of others."""
    if len(words) < 2 or "&" in words or "[" in words or "=" in words or (words[-2] == "*") != ("*" in words):
        raise Unproven("a parameter of another form")
    if words[-2] != "*":
        return type_of(tuple(words[:-1])), False
    if not {"device", "constant", "threadgroup"} & set(words):
        raise Unproven("the address of a thread's own")
    return None, True


def _named_numbers(code: list[Token]) -> dict[str, Number]:
    """`constant int NAME = 7;`: those that are declared once."""
    found: dict[str, Number] = {}
    twice: set[str] = set()
    for index in range(1, len(code) - 4):
        before, name, sign, number, end = code[index : index + 5]
        if (sign.text, number.kind, end.text) != ("=", "number", ";") or not number.text.isdecimal():
            continue
        start = index
        while start > 0 and code[start - 1].text in ("constant", "constexpr", "const", "static"):
            start -= 1
        if start == index or "constant" not in [token.text for token in code[start:index]]:
            continue
        if name.text in found:
            twice.add(name.text)
        with contextlib.suppress(Unproven):
            kind = type_of((before.text,))
            if kind is not None and kind.kind is not None and kind.count == 1:
                found[name.text] = constant(int(number.text), kind.kind)
    return {name: one for name, one in found.items() if name not in twice}
