"""Which groups of a launch do the same, each at its own place: by the source, the numbers of the launch and its grid.

A kernel that adds two vectors touches in each group what it touches in the first one, so many bytes further on. So it
is enough to look at one group, and at those that differ: at the edge of the grid, or where a condition changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anymps.metal.translation._alike_memory import Body, Held, Variables
from anymps.metal.translation._alike_run import Run
from anymps.metal.translation._alike_tree import Tree, type_of
from anymps.metal.translation._alike_values import (
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
)
from anymps.metal.translation._brackets import SPACES, closing, is_attribute, split_commas
from anymps.metal.translation._fission_names import parameter_name
from anymps.metal.translation._parameters import Unsupported, buffer_places
from anymps.metal.translation._structure import Function, Parameter, read_structure
from anymps.metal.translation._tokens import Token, tokenize
from anymps.metal.translation._value_reader import Unclear

_LANES = 32


@dataclass(frozen=True)
class Places:
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
class Alike:
    """Groups that do the same, from `first` to `last` along each axis. By buffer, the bytes from one to the next."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    steps: Mapping[int, frozenset[Steps]]
    written: frozenset[int]


class AlikeGroups:
    """Of the kernels of a source, which groups do the same. `text` has no macros left."""

    def __init__(self, text: str) -> None:
        tokens = tokenize(text)
        self._code = [token for token in tokens if not token.directive]
        self._functions: dict[str, list[Function]] = {}
        structure = read_structure(self._code)
        known = all(after.text == "pragma" for one, after in pairwise(tokens) if one.directive and one.text == "#")
        if known and structure.balanced:
            for function in structure.functions:
                self._functions.setdefault(function.name, []).append(function)
        self._kernels = {
            function.host_name or function.name: function
            for functions in self._functions.values()
            for function in functions
            if function.kernel and function.template is None
        }
        self._names = _named_numbers(self._code)
        self._trees: dict[str, Tree | None] = {}
        self._bodies: dict[tuple[str, int], Body] = {}

    def knows(self, kernel: str) -> bool:
        """Whether the kernel is understood at all."""
        return self._tree(kernel) is not None

    def parts(self, kernel: str, places: Places, most: int) -> list[Alike] | None:
        """The grid in boxes of groups that do the same, at most so many; None if that cannot be shown."""
        tree = self._tree(kernel)
        if tree is None:
            return None
        function = self._kernels[kernel]
        waiting = [*_boxes(places)]
        found: list[Alike] = []
        while waiting:
            if len(waiting) + len(found) > most:
                return None
            first, last = waiting.pop()
            if first == last:
                found.append(Alike(first, last, {}, frozenset()))
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
        self, function: Function, tree: Tree, places: Places, first: tuple[int, ...], last: tuple[int, ...]
    ) -> Alike:
        box = Box(first, last)
        run = Run(box, self._body, self._functions, self._names, places.contents, places.settled)
        variables: Variables = {}
        buffers = buffer_places(function.parameters)
        for name, parameter, place in zip(tree.names, function.parameters, buffers, strict=True):
            variables[name] = (
                _position(parameter, places, box)
                if place is None
                else _buffer(parameter, place, place in places.starts)
            )
        run.kernel(variables, tree.statements)
        return Alike(
            first, last, {label: frozenset(steps) for label, steps in run.touched.items()}, frozenset(run.written)
        )

    def _tree(self, kernel: str) -> Tree | None:
        if kernel not in self._trees:
            self._trees[kernel] = None
            function = self._kernels.get(kernel)
            if function is not None:
                with contextlib.suppress(Unclear, Unsupported, ValueError):
                    buffer_places(function.parameters)
                    names = [parameter_name(parameter) for parameter in function.parameters]
                    self._trees[kernel] = Tree(self._functions, self._code, function.body, names)
        return self._trees[kernel]

    def _body(self, name: str, count: int) -> Body:
        """A function of the program's own that takes so many arguments."""
        if (name, count) not in self._bodies:
            functions = self._functions[name]
            if len(functions) != 1 or functions[0].kernel or functions[0].template is not None:
                raise Unproven("one of several functions")
            parameters = _values_of(functions[0])
            if len(parameters) != count:
                raise Unproven("a function of another form")
            tree = Tree(self._functions, self._code, functions[0].body, [one for one, _ in parameters])
            self._bodies[name, count] = (tree.names, [held for _, held in parameters], tree.statements)
        return self._bodies[name, count]


def _boxes(places: Places) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
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


def _position(parameter: Parameter, places: Places, box: Box) -> Value:
    """What a parameter says of where a thread is."""
    kind = type_of(_words(parameter)[:-1])
    if kind is None or kind.kind is None:
        raise Unproven("a position of another type")
    sizes = [min(s, g - at * s) for g, s, at in zip(places.grid, places.group, box.first, strict=True)]
    threads = sizes[0] * sizes[1] * sizes[2]
    parts: list[Number]
    match parameter.attribute:
        case "thread_position_in_grid":
            parts = [_along(box, axis, places.group[axis], sizes[axis] - 1) for axis in range(3)]
        case "threadgroup_position_in_grid":
            parts = [_along(box, axis, 1, 0) for axis in range(3)]
        case "thread_position_in_threadgroup":
            parts = [Number(UINT, NONE, 0, size - 1) for size in sizes]
        case "threads_per_threadgroup":
            parts = [constant(a, UINT) if a == b else Number(UINT) for a, b in zip(sizes, places.group, strict=True)]
        case "dispatch_threads_per_threadgroup":
            parts = [constant(size, UINT) for size in places.group]
        case "threads_per_grid":
            parts = [constant(size, UINT) for size in places.grid]
        case "thread_index_in_threadgroup":
            parts = [Number(UINT, NONE, 0, threads - 1)]
        case "thread_index_in_simdgroup":
            parts = [Number(UINT, NONE, 0, _LANES - 1)]
        case "simdgroup_index_in_threadgroup":
            parts = [Number(UINT, NONE, 0, (threads - 1) // _LANES)]
        case "threads_per_simdgroup" | "thread_execution_width":
            parts = [constant(_LANES, UINT)]
        case _:
            parts = [Number(UINT)] * 3  # one for all groups of a box
    if len(parts) < kind.count:
        raise Unproven("a position of another type")
    converted = tuple(box.converted(part, kind.kind) for part in parts[: kind.count])
    numbers = tuple(one for one in converted if isinstance(one, Number))
    if len(numbers) != kind.count:
        return UNKNOWN
    return numbers[0] if kind.count == 1 else Components(numbers)


def _along(box: Box, axis: int, step: int, most: int) -> Number:
    """A position that grows by `step` from group to group, and by `most` within one."""
    if box.first[axis] == box.last[axis]:
        start = box.first[axis] * step
        return box.made(UINT, NONE, start, start + most)
    steps = (step * (axis == 0), step * (axis == 1), step * (axis == 2))
    return box.made(UINT, steps, 0, most)


def _buffer(parameter: Parameter, place: int, starts: bool) -> Value:
    words = _words(parameter)
    mark = words[-2] if len(words) > 2 else ""
    if mark not in ("*", "&"):
        raise Unproven("a parameter of another form")
    held = type_of([word for word in words[:-2] if word not in SPACES])
    if held is None:
        raise Unproven("a parameter of another form")
    pointer = Pointer(place, held.size, held.element, NONE, 0, starts)
    return pointer if mark == "*" else Reference(pointer)


def _values_of(function: Function) -> list[tuple[str, Held]]:
    """The parameters of a function of the program's own: values, and addresses of the memory of others."""
    head = function.head
    opening = next(
        (i for i, (one, after) in enumerate(pairwise(head)) if (one.text, after.text) == (function.name, "(")), -1
    )
    if opening < 0 or any(token.text in ("*", "&", "operator") for token in head[:opening]):
        raise Unproven("a function of another form")
    found: list[tuple[str, Held]] = []
    for part in split_commas(head[opening + 2 : closing(head, opening + 1)]):
        words = [token.text for token in part]
        if words == ["void"]:
            continue
        if len(words) < 2 or "&" in words or "[" in words or "=" in words or (words[-2] == "*") != ("*" in words):
            raise Unproven("a parameter of another form")
        pointer = words[-2] == "*"
        if pointer and not {"device", "constant", "threadgroup"} & set(words):
            raise Unproven("the address of a thread's own")
        found.append((words[-1], (None, True) if pointer else (type_of(words[:-1]), False)))
    return found


def _words(parameter: Parameter) -> list[str]:
    """A kernel's parameter without its attribute."""
    tokens, found, index = list(parameter.tokens), [], 0
    while index < len(tokens):
        if is_attribute(tokens, index):
            index = closing(tokens, index)
        else:
            found.append(tokens[index].text)
        index += 1
    return found


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
        with contextlib.suppress(Unclear):
            kind = type_of([before.text])
            if kind is not None and kind.kind is not None and kind.count == 1:
                found[name.text] = constant(int(number.text), kind.kind)
    return {name: one for name, one in found.items() if name not in twice}
