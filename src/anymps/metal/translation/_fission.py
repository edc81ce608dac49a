"""Turns kernels whose threads synchronise only at the top of the body into loops over the threads of a group.

The body is cut where threads need each other. Each piece becomes a loop; a value that lives across a cut is kept in an
array, what follows from the thread's index alone is computed again, and what is the same for the whole group is
computed once: so is a store of it, as where 32 lanes read before one of them writes. What does not fit runs as fibers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from anymps.metal.translation._brackets import closing, closing_angle, split_commas
from anymps.metal.translation._fission_calls import Addresses, OwnCalls
from anymps.metal.translation._fission_text import (
    PLANE,
    CollectiveCall,
    GroupText,
    Item,
    LoopBegins,
    LoopEnds,
    Once,
    Piece,
    Step,
)
from anymps.metal.translation._fission_uniformity import Names, base, dereferences, is_vector
from anymps.metal.translation._parameters import Unsupported, buffer_places, parameter_name
from anymps.metal.translation._statements import (
    Loop,
    NeedsFibers,
    Statement,
    as_constants,
    changed_names,
    read_loop,
    read_statements,
)
from anymps.metal.translation._structure import Function, Parameter
from anymps.metal.translation._tokens import Token

Render = Callable[[int, int, dict[tuple[int, int], str]], str]  # tokens from, to, and what stands for parts of them

_BARRIERS = frozenset({"threadgroup_barrier", "simdgroup_barrier"})
_SIMD = ("simd_", "quad_")
_PLACES = frozenset(("thread_position_in_grid", "thread_position_in_threadgroup"))
_OF_THREAD = _PLACES | {
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_quadgroup",
    "simdgroup_index_in_threadgroup",
    "quadgroup_index_in_threadgroup",
}
_CONSTANTS = frozenset({"simdgroup_size"})
_OF_OPERATIONS = (["::", "identity"], ["::", "replace"])  # `MaxOp<float>::identity()`: what needs no other thread
_KNOWN = {  # collectives of c10/metal/reduction_utils.h: which arguments differ by thread, and which is its index
    "threadgroup_sum": ((1,), 2),
    "threadgroup_prod": ((1,), 2),
    "threadgroup_max": ((1,), 2),
    "threadgroup_min": ((1,), 2),
    "threadgroup_argmax": ((2, 3), 4),
    "threadgroup_argmin": ((2, 3), 4),
    "threadgroup_welford_reduce": ((), None),
    "threadgroup_welford_combine": ((), None),
}
_TOGETHER = frozenset({"threadgroup_welford_reduce", "threadgroup_welford_combine"})


@dataclass(frozen=True)
class GroupForm:
    """How a whole group runs: the C++ body of a function, and the axis along which its threads must lie.

    `together`: groups meet, and do what each would do element by element side by side.
    """

    text: str
    axis: int
    together: bool


def group_form(
    function: Function, code: list[Token], synced: Collection[str], own: OwnCalls, render: Render
) -> GroupForm | None:
    """The form of a kernel that needs no fibers, or None if it needs them; `synced` are the names that synchronise."""
    try:
        return _Reader(function, code, synced, own, render).read()
    except (NeedsFibers, Unsupported, RecursionError):
        return None


class _Reader:
    def __init__(
        self, function: Function, code: list[Token], synced: Collection[str], own: OwnCalls, render: Render
    ) -> None:
        self.function, self.code, self.synced, self.render = function, code, synced, render
        first, last = function.body
        self.body = code[first + 1 : last]
        self.returns = any(token.text == "return" for token in self.body)
        self.own = own
        self.names = Names(own.names, changed_names(self.body) | own.changed(self.body))
        self.steps: list[Step] = []
        self.open: list[Item] = []
        self.calls = self.depth = 0
        self.addresses = Addresses(own)
        vectors = [p for p in function.parameters if p.attribute in _PLACES and is_vector(p)]
        axis = 0
        if vectors:  # Inductor's groups are one thread wide, and its sources full of c10
            axis = 1 if any(token.text == "c10" for token in self.body) else PLANE
        self.axis = self.names.axis = axis

    def read(self) -> GroupForm:
        self._parameters()
        for statement in read_statements(self.code, *self.function.body):
            self._statement(statement)
        self._close()
        names = [parameter_name(parameter) for parameter in self.function.parameters]
        parameters = list(zip(names, buffer_places(self.function.parameters), strict=True))
        varying, unkept = self.names.varying, self.addresses.pointing
        text = GroupText(self.function, parameters, self.axis, self.steps, varying, unkept, self.returns)
        together = any(isinstance(step, CollectiveCall) and step.word in _TOGETHER for step in self.steps)
        return GroupForm("\n".join(text.lines()), self.axis, together)

    def _parameters(self) -> None:
        changed = changed_names(self.body, whole=True) | self.own.changed(self.body)
        for parameter in self.function.parameters:
            name = parameter_name(parameter)
            if name in changed:
                raise NeedsFibers
            self.names.declared.add(name)
            in_place = parameter.attribute in _PLACES
            if parameter.attribute not in _OF_THREAD or (in_place and self.axis == 1 and not is_vector(parameter)):
                self._uniform_parameter(name, parameter)
            else:
                self._index_parameter(name, parameter)

    def _uniform_parameter(self, name: str, parameter: Parameter) -> None:
        """The same for all threads of a group; a reference leads to memory, in which `constant` stays as it is."""
        self.names.uniform.add(name)
        words = [token.text for token in parameter.tokens]
        if "&" in words:
            self.names.memory.add(name)
            if "constant" in words:
                self.names.fixed.add(name)

    def _index_parameter(self, name: str, parameter: Parameter) -> None:
        """It says where the thread is: in `lanes` with what it begins at, if it counts threads along the axis."""
        self.names.varying.add(name)
        self.names.indices.add(name)
        if parameter.attribute in _PLACES and self.axis == PLANE:
            return
        if parameter.attribute in _PLACES and is_vector(parameter):
            self.names.positions.add(name)
            self.names.lanes[f"{name}.{'xyz'[self.axis]}"] = base(parameter, self.axis)
        elif parameter.attribute in _PLACES or parameter.attribute == "thread_index_in_threadgroup":
            self.names.lanes[name] = base(parameter, self.axis)

    def _statement(self, statement: Statement) -> None:
        if not any(self._is_sync(index) for index in range(statement.first, statement.last)):
            self._add(statement, {})
            return
        words = [token.text for token in statement.tokens]
        loop = read_loop(self.code, statement) if words[0] == "for" else None
        if loop is not None:
            self._loop(loop)
            return
        if statement.kind == "control" or {"?", "&&", "||"} & set(words):
            raise NeedsFibers
        call = next((i for i, word in enumerate(words) if word in _BARRIERS), None)
        if call is not None:
            if statement.kind != "expression" or any(word not in ("metal", "::") for word in words[:call]):
                raise NeedsFibers
            self._close()
            return
        replaced: dict[tuple[int, int], str] = {}
        end = statement.first - 1
        for index in range(statement.first, statement.last):
            if self._is_sync(index):
                if index <= end:  # a call in another's arguments
                    raise NeedsFibers
                end = self._call(index, replaced)
        self._add(statement, replaced)

    def _loop(self, loop: Loop) -> None:
        """A loop whose head is the same for all threads: its body is cut, too."""
        names = self.names
        head = loop.parts(self.code)
        steady = all(names.is_steady(tokens, loop.name, place == 2) for place, tokens in enumerate(head))
        changed = self.own.changed(self.code[loop.body[0] : loop.body[1]])
        if loop.name in names.declared | changed or not steady:
            raise NeedsFibers
        self._close()
        text = " ".join(
            self.render(first, last, {})
            for first, last in ((loop.start.first, loop.start.last), (loop.condition[0], loop.step[1]))
        )
        used = frozenset(token.text for tokens in head for token in tokens if token.kind == "name")
        self.steps.append(LoopBegins(text, loop.name, used - {loop.name}))
        before = names.within(loop.name)
        self.depth += 1
        for statement in read_statements(self.code, *loop.body):
            self._statement(statement)
        self._close()
        self.depth -= 1
        self.steps.append(LoopEnds())
        names.leave(before)

    def _is_sync(self, index: int) -> bool:
        """Whether a token names something that synchronises."""
        token = self.code[index]
        text = token.text
        if token.kind != "name" or text in _CONSTANTS or text in self.names.uniform | self.names.varying:
            return False
        if not (text in self.synced or text in _BARRIERS or text.startswith((*_SIMD, "simdgroup_"))):
            return False
        behind = closing_angle(self.code, index + 1) + 1 if self.code[index + 1].text == "<" else index + 1
        return [token.text for token in self.code[behind : behind + 2]] not in _OF_OPERATIONS

    def _call(self, index: int, replaced: dict[tuple[int, int], str]) -> int:
        """Cuts before a call, and has it made for all threads. Its end; `replaced` gets the name of its result."""
        bracket = index + 1
        if self.code[bracket].text == "<":
            bracket = closing_angle(self.code, bracket) + 1
        if self.code[bracket].text != "(":
            raise NeedsFibers
        close = closing(self.code, bracket)
        word = self.code[index].text
        start = index
        while self.code[start - 1].text == "::" or (
            self.code[start].text == "::" and self.code[start - 1].text in ("metal", "c10")
        ):
            start -= 1
        path = "".join(token.text for token in self.code[start:bracket])
        if word in self.names.own_functions or (word not in _KNOWN and not word.startswith(_SIMD)):
            raise NeedsFibers
        if self.depth and word in _TOGETHER:  # groups that meet there may be in different turns
            raise NeedsFibers
        number = self.calls
        self.calls += 1
        arguments = tuple(self._arguments(number, word, bracket, close))
        self._close()
        result = f"anymps_r{number}"
        uniform = word in _KNOWN
        _, lane = _KNOWN.get(word, ((), None))
        self.steps.append(CollectiveCall(result, word, path, arguments, lane, uniform))
        (self.names.uniform if uniform else self.names.varying).add(result)
        replaced[start, close] = result
        return close

    def _arguments(self, number: int, word: str, bracket: int, close: int) -> Iterator[str]:
        """Declares what the arguments of a call are, and gives the names of that."""
        differing, lane = _KNOWN.get(word, ((), None))
        for position, tokens in enumerate(split_commas(self.code[bracket + 1 : close])):
            if word in _KNOWN and position == lane:
                yield self._lane_of(tokens)
                continue
            first = next(i for i in range(bracket + 1, close) if self.code[i] is tokens[0])
            name = f"anymps_a{number}_{position}"
            last = first + len(tokens) - 1
            text = f"auto {name} = {self.render(first, last, {})};"
            used = frozenset(token.text for token in tokens if token.kind == "name")
            if word in _KNOWN and position not in differing:
                if not self.names.is_uniform(tokens, used):
                    raise NeedsFibers
                self.steps.append(Once(text, used))
                self.names.uniform.add(name)
            else:
                self.open.append(Item(text, used, (name,)))
                self.names.varying.add(name)
            yield name

    def _lane_of(self, tokens: list[Token]) -> str:
        """From where a thread counts its index, which an argument must be."""
        words = [token.text for token in tokens]
        if words[-2:] == ["*", "1"]:
            words = words[:-2]
        start = self.names.lanes.get("".join(words))
        if start is None:
            raise NeedsFibers
        return start

    def _add(self, statement: Statement, replaced: dict[tuple[int, int], str]) -> None:
        """A statement that needs no other thread."""
        names = self.names
        places = range(statement.first, statement.last + 1)
        read = [self.code[at] for at in places if not any(first <= at <= last for first, last in replaced)]
        used = frozenset(token.text for token in read if token.kind == "name") | set(replaced.values())
        text = self.render(statement.first, statement.last, replaced)
        if "#" in text and "#pragma" not in text:
            raise NeedsFibers
        declared = frozenset(statement.declared)
        if declared & (names.counters | names.declared) or (self.depth and statement.shared):
            raise NeedsFibers  # what is known of a name is known wherever it stands
        names.declared |= declared
        if statement.shared:
            self.steps.append(Once(text.replace(">::get().", ">::in(anymps_g.shared)."), frozenset()))
            names.uniform |= declared
            names.memory |= declared
            return
        # Whether it declares something that has its value from there on.
        fixed = (
            statement.kind == "declaration" and statement.plain and statement.valued and not declared & names.changed
        )
        if statement.kind == "declaration":
            self.addresses.declare(statement, read, used)
        loads = any(token.text in ("[", "->") for token in read) or dereferences(read) or bool(used & names.memory)
        uniform = names.is_uniform(read, used - declared) and (not self.returns or not loads)
        again = fixed and not uniform and not loads and not replaced and names.is_index(read, used - declared)
        if (fixed and uniform) or again:  # what would change it, in a way not seen here, does not compile
            constants = {
                (at, at): f"const {self.render(at, at, {})}"
                for at in (statement.first + place for place in as_constants(statement.tokens))
            }
            text = self.render(statement.first, statement.last, {**replaced, **constants})
        if fixed and uniform:
            self._declare_once(text, used - declared, declared, loads)
        elif statement.kind == "expression" and uniform and not self.returns and names.is_store(read):
            self._close()
            self.steps.append(Once(text, used))
        elif again:
            self._declare_again(text, used - declared, statement.declared, read)
        else:
            self._add_for_each(statement, text, used)

    def _declare_once(self, text: str, used: frozenset[str], declared: Collection[str], loads: bool) -> None:
        """The same for all threads: done once; but what it reads from memory, not ahead of stores before it."""
        if loads and any(item.stores for item in self.open):
            self._close()
        self.steps.append(Once(text, used))
        self.names.uniform |= set(declared)

    def _declare_again(self, text: str, used: frozenset[str], declared: Sequence[str], read: list[Token]) -> None:
        """Cheap, and of nothing in memory: each piece computes it again, which beats an array that keeps it."""
        names = self.names
        value = read[[token.text for token in read].index("=") + 1 : -1]
        lane = "".join(token.text for token in value)
        if lane in names.lanes:
            names.lanes[declared[0]] = names.lanes[lane]
        names.varying |= set(declared)
        names.indices |= set(declared)
        self.open.append(Item(text, used, tuple(declared), again=True))

    def _add_for_each(self, statement: Statement, text: str, used: frozenset[str]) -> None:
        """What each thread does for itself, and keeps if a later piece needs it."""
        names = self.names
        names.varying |= set(statement.declared)
        self.open.append(
            Item(
                text,
                used.difference(statement.declared),
                tuple(statement.declared),
                statement.kind != "declaration" or names.may_store(used),
                frozenset(used & names.changed),
                bound=self._bound(statement),
            )
        )

    def _close(self) -> None:
        if self.open:
            self.steps.append(Piece(self.open, self.open[0].bound if len(self.open) == 1 else ""))
        self.open = []

    def _bound(self, statement: Statement) -> str:
        """For `if (index < n) ...` the text of n, where that is the same for all threads."""
        bound = self.names.bound(list(statement.tokens))
        return self.render(statement.first + bound[0], statement.first + bound[1], {}) if bound else ""
