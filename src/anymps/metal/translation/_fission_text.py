"""The C++ text of a kernel that runs a whole group: loops over its threads, and between them what they do together.

The body of a kernel is cut into steps where its threads need each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from anymps.metal.translation._parameters import buffer_kind
from anymps.metal.translation._statements import NeedsFibers
from anymps.metal.translation._structure import Function

PLANE = 2  # in place of an axis: the threads of a group lie along x and y
_RETURN = re.compile(r"\breturn\s*;")
_DIE = (
    "{ if constexpr (decltype(anymps_keep)::probe) __builtin_trap(); "
    "else { anymps_all[anymps_i] = 0; anymps_alive = anymps_all; return; } }"
)
# A short loop of one thread, which stands in the way of vectors of threads as long as it is one.
_SHORT = re.compile(r"\bfor\s*\(\s*\w+ (\w+) = 0;\s*\1 < [2-8];\s*(?:\+\+\1|\1\+\+)\s*\)")
_PER_THREAD = {
    "thread_index_in_threadgroup": "unsigned(anymps_i)",
    "thread_index_in_simdgroup": "unsigned(anymps_i) % 32",
    "thread_index_in_quadgroup": "unsigned(anymps_i) % 4",
    "simdgroup_index_in_threadgroup": "unsigned(anymps_i) / 32",
    "quadgroup_index_in_threadgroup": "unsigned(anymps_i) / 4",
}
_ALONG = {0: ("anymps_i", "0", "0"), 1: ("0", "anymps_i", "0"), PLANE: ("anymps_x", "anymps_y", "0")}


@dataclass(frozen=True)
class Item:
    """A statement of one thread."""

    text: str
    used: frozenset[str]
    declared: tuple[str, ...] = ()
    stores: bool = False
    changed: frozenset[str] = frozenset()
    again: bool = False  # what it declares is computed again wherever it is needed
    bound: str = ""  # an expression: threads from that one on have nothing to do


@dataclass(frozen=True)
class Piece:
    """What threads do on their own; `bound` is the first one that has nothing to do."""

    items: Sequence[Item]
    bound: str = ""

    @property
    def used(self) -> frozenset[str]:
        """All names in it."""
        return frozenset().union(*(item.used for item in self.items))


@dataclass(frozen=True)
class Once:
    """A statement that is done once for the group."""

    text: str
    used: frozenset[str]


@dataclass(frozen=True)
class CollectiveCall:
    """A function that all threads call together."""

    result: str
    word: str
    path: str
    arguments: tuple[str, ...]
    lane: int | None  # which argument is the thread's index; its text is from where that counts
    uniform: bool  # one result for the group

    @property
    def used(self) -> frozenset[str]:
        """The names of its arguments."""
        return frozenset(self.arguments)


@dataclass(frozen=True)
class LoopBegins:
    """The head of a loop that is run once for the group; up to its end the steps are its body."""

    text: str  # what stands between `for` and the body
    counter: str
    used: frozenset[str]


@dataclass(frozen=True)
class LoopEnds:
    """Where the body of the innermost loop ends."""

    used: frozenset[str] = frozenset()


Step = Piece | Once | CollectiveCall | LoopBegins | LoopEnds


class GroupText:
    """The body of a function that runs a group; it knows `anymps_n` threads. `parameters` are names and buffers.

    Of `unkept` names no array can keep what they lead to.
    """

    def __init__(
        self,
        function: Function,
        parameters: Sequence[tuple[str, int | None]],
        axis: int,
        steps: Sequence[Step],
        varying: Collection[str],
        unkept: Set[str],
        returns: bool,
    ) -> None:
        self.function, self.parameters, self.axis, self.steps = function, parameters, axis, steps
        self.varying, self.unkept, self.returns, self.plane = varying, unkept, returns, axis == PLANE
        items = [item for step in steps if isinstance(step, Piece) for item in step.items]
        self.again = {name: item for item in items if item.again for name in item.declared}
        self.later: list[set[str]] = []  # by step, the names used behind it
        names: set[str] = set()
        for step in reversed(steps):
            self.later.append(set(names))
            names |= self._with_again(step.used)
        self.later.reverse()
        self.inside: dict[str, int] = {}  # the innermost loop, by its first step, in whose body a name is declared
        self.open: list[int] = []  # loops that the step being written is in
        for first, last in _loops(steps):
            self._keep_over_turns(first, last)
        self.arrays: dict[str, str] = {}  # by name, the text of the array that keeps it

    def _keep_over_turns(self, first: int, last: int) -> None:
        """What a turn of a loop leaves in variables from before it, the next turn finds there."""
        body = self.steps[first : last + 1]
        own: set[str] = set()
        for step in body:
            if isinstance(step, Piece):
                own.update(name for item in step.items for name in item.declared)
            elif isinstance(step, CollectiveCall):
                own.add(step.result)
        for name in own:
            self.inside.setdefault(name, first)
        again = self._with_again(frozenset().union(*(step.used for step in body))) - own
        for number in range(first, last + 1):
            self.later[number] |= again

    def lines(self) -> list[str]:
        """All of it, in braces. Raises NeedsFibers where a value lives across a cut that no array can keep."""
        lines = ["{", *self._beginning(), *self._same_for_all()]
        for number, step in enumerate(self.steps):
            if isinstance(step, Piece):
                lines += self._piece(number, step)
            elif isinstance(step, Once):
                lines.append(step.text)
            elif isinstance(step, CollectiveCall):
                lines += self._call(step)
            elif isinstance(step, LoopBegins):
                self.open.append(number)
                # The counter is a constant in the body: what would change it, through a reference, does not compile.
                lines.append(f"for ({step.text}) {{ const auto& anymps_k{number} = {step.counter};")
                lines.append(f"{{ [[maybe_unused]] const auto {step.counter} = anymps_k{number};")
            elif isinstance(step, LoopEnds):
                lines.append("} }")
                gone = self.open.pop()
                self.arrays = {name: array for name, array in self.arrays.items() if self.inside.get(name) != gone}
        return [*lines, "}"]

    def _beginning(self) -> list[str]:
        """The launch, the size of the group, and which of its threads are there still."""
        lines = [
            "const anymps_rt::Launch& anymps_l = *anymps_g.launch;",
            f"const anymps_fission::Line anymps_line(anymps_g, {0 if self.plane else self.axis});",
            "if (anymps_n < 0 || anymps_n > 1024) __builtin_unreachable();",
        ]
        if self.plane:
            lines.append("const int anymps_w = int(anymps_g.size[0]), anymps_h = int(anymps_g.size[1]);")
            lines.append("if (anymps_w < 1 || anymps_w > 1024 || anymps_h < 1) __builtin_unreachable();")
        if self.returns:
            lines.append("unsigned char anymps_all[1024]; __builtin_memset(anymps_all, 1, sizeof(anymps_all));")
            lines.append("const unsigned char* anymps_alive = nullptr;  // until a thread returns")
        else:
            lines.append("constexpr const unsigned char* anymps_alive = nullptr;")
        return lines

    def _same_for_all(self) -> Iterator[str]:
        """Declarations of the parameters that all threads of the group find alike."""
        for index, (name, place) in enumerate(self.parameters):
            if place is not None:
                held = f"anymps_launch::{buffer_kind(self.function.parameters[index])}<anymps_types::at<{index}>>"
                yield f"const typename {held}::held {name} = {held}::bind(anymps_l.buffers[{place}]);"
            elif self.function.parameters[index].attribute not in _PER_THREAD:
                yield self._position(index, of_thread=False)

    def _position(self, index: int, of_thread: bool) -> str:
        """A declaration of the parameter, for a thread of the group or for all that it is the same for."""
        name, attribute = self.parameters[index][0], self.function.parameters[index].attribute
        kind = f"anymps_types::at<{index}>"
        if attribute in _PER_THREAD:
            value = f"anymps_launch::grid_position<{kind}>::from({_PER_THREAD[attribute]}, 0, 0)"
        elif attribute in ("thread_position_in_grid", "thread_position_in_threadgroup"):
            places = []
            for axis, own in enumerate(_ALONG[self.axis] if of_thread else "000"):
                in_grid = attribute == "thread_position_in_grid" and not axis == self.axis == 1  # along y is one group
                places.append(f"unsigned(anymps_line.{'grid' if in_grid else 'group'}[{axis}] + {own})")
            value = f"anymps_launch::grid_position<{kind}>::from({', '.join(places)})"
        else:
            value = f"anymps_launch::attribute<{kind}>::from(anymps_launch::{attribute}(anymps_line.member))"
        return f"[[maybe_unused]] const auto {name} = {value};"

    def _with_again(self, names: Collection[str]) -> set[str]:
        """Names, and those from which they are computed again."""
        found = set(names)
        todo = list(names)
        while todo:
            item = self.again.get(todo.pop())
            more = set(item.used) - found if item else set()
            found |= more
            todo += more
        return found

    def _piece(self, number: int, piece: Piece) -> list[str]:
        """A function that does the piece for one thread, and the loop that calls it for each."""
        own = {name for item in piece.items for name in item.declared}
        needed = self._with_again(piece.used) - own
        changed = set().union(*(item.changed for item in piece.items)) - own
        known = {name: array for name, array in self.arrays.items() if name in needed}
        kept = [name for item in piece.items if not item.again for name in item.declared if name in self.later[number]]
        if self.unkept & set(kept):
            raise NeedsFibers
        who = "int anymps_i, [[maybe_unused]] int anymps_x, [[maybe_unused]] int anymps_y"
        lines = [
            f"auto anymps_p{number} = [&]({who if self.plane else 'int anymps_i'}, auto anymps_keep) "
            "__attribute__((always_inline)) {",
            *self._computed_again(needed),
            *(
                f"[[maybe_unused]] {'' if name in changed else 'const '}auto {name} = {array}[anymps_i];"
                for name, array in known.items()
            ),
            *map(_item_text, piece.items),
            *self._kept_by_one(kept, sorted(changed & self.later[number])),
            "};",
            *self._kept_by_all(number, kept),
        ]
        who = "anymps_i, anymps_x, anymps_y" if self.plane else "anymps_i"
        keep = f"anymps_fission::into(anymps_s{number})" if kept else "anymps_fission::Nowhere()"
        call = f"{'if (anymps_all[anymps_i]) ' if self.returns else ''}anymps_p{number}({who}, {keep});"
        return [*lines, *self._for_threads(number, piece, call)]

    def _computed_again(self, needed: Collection[str]) -> list[str]:
        """Declarations of what each thread computes from its index alone."""
        there = (None, *self.open)
        return [
            self._position(index, of_thread=True)
            for index, (name, place) in enumerate(self.parameters)
            if place is None and name in self.varying and name in needed
        ] + [item.text for name, item in self.again.items() if name in needed and self.inside.get(name) in there]

    def _kept_by_one(self, kept: Sequence[str], changed: Sequence[str]) -> list[str]:
        """What a thread leaves for later pieces: new values, and those of earlier pieces that it `changed`."""
        types = ", ".join(f"decltype({name})" for name in kept)
        return [
            # With a probe, which is never run, the piece returns the types of what it keeps, for their arrays.
            f"if constexpr (decltype(anymps_keep)::probe) return anymps_fission::Kept<{types}>(); else {{",
            *(f"anymps_keep.template put<{place}>(anymps_i, {name});" for place, name in enumerate(kept)),
            *(f"{self.arrays[name]}[anymps_i] = {name};" for name in changed if name in self.arrays),
            "}",
        ]

    def _kept_by_all(self, number: int, kept: Sequence[str]) -> list[str]:
        """Declares the arrays of what the threads keep; from here on `arrays` has them."""
        for place, name in enumerate(kept):
            self.arrays[name] = f"anymps_s{number}.template get<{place}>()"
        none = "0, 0, 0" if self.plane else "0"
        probed = f"decltype(anymps_p{number}({none}, anymps_fission::Probe()))"
        return [f"{probed}::Stores anymps_s{number};"] if kept else []

    def _for_threads(self, number: int, piece: Piece, call: str) -> list[str]:
        """Calls a piece for those threads that have something to do."""
        if self.plane:
            return [
                "for (int anymps_y = 0; anymps_y < anymps_h; ++anymps_y) {",
                "const int anymps_o = anymps_y * anymps_w;",
                "ANYMPS_ANY_ORDER",
                "for (int anymps_x = 0; anymps_x < anymps_w; ++anymps_x) {",
                f"const int anymps_i = anymps_o + anymps_x; {call} }} }}",
            ]
        if piece.bound:
            end = f"anymps_m{number}"
            lines = [f"const int {end} = anymps_fission::at_most(anymps_n, {piece.bound});"]
        else:
            end, lines = "anymps_n", []
        return [*lines, "ANYMPS_ANY_ORDER", f"for (int anymps_i = 0; anymps_i < {end}; ++anymps_i) {call}"]

    def _call(self, call: CollectiveCall) -> list[str]:
        number = call.result.removeprefix("anymps_r")
        given = [
            f"unsigned({argument} + anymps_i)"
            if place == call.lane
            else f"{self.arrays[argument]}[anymps_i]"
            if argument in self.arrays
            else argument
            for place, argument in enumerate(call.arguments)
        ]
        one = f"auto anymps_f{number} = [&](int anymps_i) {{ return {call.path}({', '.join(given)}); }};"
        function = f"anymps_fission::{call.word}"
        whole = [
            "int(" + argument + ") == 0" if place == call.lane else self.arrays.get(argument, argument)
            for place, argument in enumerate(call.arguments)
        ]
        if call.uniform:
            return [
                one,
                f"[[maybe_unused]] const auto {call.result} = "
                f"{function}({', '.join(['anymps_n', 'anymps_alive', f'anymps_f{number}', *whole])});",
            ]
        self.arrays[call.result] = f"anymps_c{number}"
        name = (
            call.word
            if call.word in ("simd_sum", "simd_product", "simd_min", "simd_max") and "c10" not in call.path
            else "each"
        )
        values = f", {whole[0]}" if name != "each" else ""
        return [
            one,
            f"decltype(anymps_f{number}(0)) anymps_c{number}[1024];",
            f"anymps_fission::{name}(anymps_n, anymps_alive, anymps_f{number}, anymps_c{number}{values});",
        ]


def _item_text(item: Item) -> str:
    text = _RETURN.sub(_DIE, item.text) if item.stores else item.text
    return _SHORT.sub(r"ANYMPS_UNROLLED \g<0>", text)


def _loops(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The first and the last step of each loop, inner ones first."""
    found, begun = [], []
    for number, step in enumerate(steps):
        if isinstance(step, LoopBegins):
            begun.append(number)
        elif isinstance(step, LoopEnds):
            found.append((begun.pop(), number))
    return found
