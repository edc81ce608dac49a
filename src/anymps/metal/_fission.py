"""Kernels whose threads meet at the top of the body alone, as loops over the threads of a group instead of fibers.

The body is cut where threads need each other. Each piece becomes a loop; a value that lives across a cut is kept in an
array, what follows from the thread's index alone is computed again, and what is the same for the whole group is
computed once: so is a store of it, as where 32 lanes read before one of them writes. What does not fit runs as fibers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise

from anymps.metal._fission_names import (
    base,
    dereferences,
    directly_changed,
    is_vector,
    others,
    parameter_name,
    signed_indices,
)
from anymps.metal._fission_text import Call, Cut, Item, NoText, Once, Piece, Step, group_function
from anymps.metal._parameters import Unsupported, buffer_places
from anymps.metal._statements import ASSIGNMENTS, Statement, Unread, changed_names, read_statements
from anymps.metal._structure import Function, closing, closing_angle, split_commas
from anymps.metal._tokens import Token

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
_INDEX_CALLS = frozenset({"static_cast", "floor_divide", "int", "uint", "ushort", "long", "ulong"})
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


class _Refused(Exception):
    """Not a kernel for this form."""


@dataclass
class _Names:
    """What is known of the names of a body."""

    own_functions: Collection[str]
    changed: set[str]
    uniform: set[str] = field(default_factory=set)  # the same for all threads of a group
    varying: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)  # those of them that follow from the thread's index
    lanes: dict[str, str] = field(default_factory=dict)  # those that are it, counted from this
    positions: set[str] = field(default_factory=set)  # vectors, of which one component differs
    memory: set[str] = field(default_factory=set)  # those that are memory of the group or a buffer, without brackets


@dataclass(frozen=True)
class GroupForm:
    """How a whole group runs: the C++ body of a function, and the axis along which its threads must lie.

    `together`: groups meet, and do what each would do element by element side by side.
    """

    text: str
    axis: int
    together: bool


def group_form(
    function: Function, code: list[Token], synced: Collection[str], own: Collection[str], render: Render
) -> GroupForm | None:
    """The form of a kernel that needs no fibers, or None if it needs them.

    `synced` are the names that synchronise, `own` the functions of the source.
    """
    try:
        return _Reader(function, code, synced, own, render).read()
    except (_Refused, Unread, NoText, Unsupported):
        return None


class _Reader:
    def __init__(
        self, function: Function, code: list[Token], synced: Collection[str], own: Collection[str], render: Render
    ) -> None:
        self.function, self.code, self.synced, self.render = function, code, synced, render
        first, last = function.body
        self.body = code[first + 1 : last]
        self.returns = any(token.text == "return" for token in self.body)
        self.names = _Names(own, changed_names(self.body))
        self.steps: list[Step] = []
        self.open: list[Item] = []
        self.calls = 0
        self.arrays: set[str] = set()  # a thread's own arrays and references
        vectors = [p for p in function.parameters if p.attribute in _PLACES and is_vector(p)]
        self.axis = 1 if vectors else 0

    def read(self) -> GroupForm:
        self._parameters()
        for statement in read_statements(self.code, *self.function.body):
            self._statement(statement)
        self._close()
        places = buffer_places(self.function.parameters)
        names = [parameter_name(parameter) for parameter in self.function.parameters]
        parameters = list(zip(names, places, strict=True))
        text = group_function(self.function, parameters, self.axis, self.steps, self.names.varying, self.returns)
        together = any(isinstance(step, Call) and step.word in _TOGETHER for step in self.steps)
        return GroupForm(text, self.axis, together)

    def _parameters(self) -> None:
        for parameter in self.function.parameters:
            name = parameter_name(parameter)
            if name in directly_changed(self.body):
                raise _Refused
            whole = parameter.attribute not in _OF_THREAD
            along_x = parameter.attribute in _PLACES and not is_vector(parameter) and self.axis == 1
            if whole or along_x:
                self.names.uniform.add(name)
                if any(token.text == "&" for token in parameter.tokens):
                    self.names.memory.add(name)
                continue
            self.names.varying.add(name)
            self.names.indices.add(name)
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
        if statement.kind == "control" or {"?", "&&", "||"} & set(words):
            raise _Refused
        call = next((i for i, word in enumerate(words) if word in _BARRIERS), None)
        if call is not None:
            if statement.kind != "expression" or any(word not in ("metal", "::") for word in words[:call]):
                raise _Refused
            self._close()
            self.steps.append(Cut())
            return
        replaced: dict[tuple[int, int], str] = {}
        results: dict[str, bool] = {}
        at = self._innermost(statement, replaced)
        while at is not None:
            name, uniform = self._call(statement, at, replaced)
            results[name] = uniform
            at = self._innermost(statement, replaced)
        self._add(statement, replaced)

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

    def _innermost(self, statement: Statement, replaced: dict[tuple[int, int], str]) -> tuple[int, int, int] | None:
        """The first call that holds no other: where its name begins, its bracket and its end, as indices of tokens."""
        found = None
        for index in range(statement.first, statement.last):
            if not self._is_sync(index) or any(a <= index <= b for a, b in replaced):
                continue
            bracket = index + 1
            if self.code[bracket].text == "<":
                bracket = closing_angle(self.code, bracket) + 1
            if self.code[bracket].text != "(":
                raise _Refused
            close = closing(self.code, bracket)
            if found is None or close < found[2]:
                found = (index, bracket, close)
        return found

    def _call(
        self, statement: Statement, at: tuple[int, int, int], replaced: dict[tuple[int, int], str]
    ) -> tuple[str, bool]:
        """Cuts before a call, and has it made for all threads; returns the name of its result."""
        index, bracket, close = at
        word = self.code[index].text
        start = index
        while self.code[start - 1].text == "::" or (
            self.code[start].text == "::" and self.code[start - 1].text in ("metal", "c10")
        ):
            start -= 1
        path = "".join(token.text for token in self.code[start:bracket])
        if word in self.names.own_functions or (word not in _KNOWN and not word.startswith(_SIMD)):
            raise _Refused
        number = self.calls
        self.calls += 1
        differing, lane = _KNOWN.get(word, ((), None))
        arguments: list[str] = []
        for position, tokens in enumerate(split_commas(self.code[bracket + 1 : close])):
            first = next(i for i in range(bracket + 1, close) if self.code[i] is tokens[0])
            if word in _KNOWN and position == lane:
                arguments.append(self._lane_of(tokens))
                continue
            name = f"anymps_a{number}_{position}"
            text = f"auto {name} = {self.render(first, first + len(tokens) - 1, replaced)};"
            used = self._used(tokens, first, replaced)
            same = word in _KNOWN and position not in differing
            if same:
                if not self._is_uniform(tokens, used):
                    raise _Refused
                self.steps.append(Once(text, used))
                self.names.uniform.add(name)
            else:
                self.open.append(Item(text, used, (name,)))
                self.names.varying.add(name)
            arguments.append(name)
        self._close()
        result = f"anymps_r{number}"
        uniform = word in _KNOWN
        self.steps.append(Call(result, word, path, tuple(arguments), lane, uniform))
        (self.names.uniform if uniform else self.names.varying).add(result)
        for inner in [key for key in replaced if start <= key[0] and key[1] <= close]:
            del replaced[inner]
        replaced[start, close] = result
        return result, uniform

    def _lane_of(self, tokens: list[Token]) -> str:
        """From where a thread counts its index, which an argument must be."""
        words = [token.text for token in tokens]
        if words[-2:] == ["*", "1"]:
            words = words[:-2]
        start = self.names.lanes.get("".join(words))
        if start is None:
            raise _Refused
        return start

    def _used(self, tokens: Collection[Token], first: int, replaced: dict[tuple[int, int], str]) -> frozenset[str]:
        """The names of tokens, with results in the place of calls."""
        names = set()
        for offset, token in enumerate(tokens):
            at = first + offset
            inside = [name for (a, b), name in replaced.items() if a <= at <= b]
            if inside:
                names.add(inside[0])
            elif token.kind == "name":
                names.add(token.text)
        return frozenset(names)

    def _add(self, statement: Statement, replaced: dict[tuple[int, int], str]) -> None:
        """A statement that needs no other thread."""
        names = self.names
        used = self._used(statement.tokens, statement.first, replaced)
        counted = [name for name, start in names.lanes.items() if start == "0"]
        signed = signed_indices(self.code, statement.first, statement.last, counted)
        text = self.render(statement.first, statement.last, {**signed, **replaced})
        if "#" in text and "#pragma" not in text:
            raise _Refused
        declared = frozenset(statement.declared)
        if statement.shared:
            self.steps.append(Once(text.replace(">::get().", ">::in(anymps_g.shared)."), frozenset()))
            names.uniform |= declared
            names.memory |= declared
            return
        tokens = list(statement.tokens)
        kept = [t for i, t in enumerate(tokens) if not any(a <= statement.first + i <= b for a, b in replaced)]
        fixed = (
            statement.kind == "declaration" and statement.plain and statement.valued and not declared & names.changed
        )
        loads = any(token.text in ("[", "->") for token in kept) or dereferences(kept) or bool(used & names.memory)
        uniform = self._is_uniform(kept, used - declared) and (not self.returns or not loads)
        if fixed and uniform:
            if loads and any(item.stores for item in self.open):
                self._close()
            self.steps.append(Once(text, used - declared))
            names.uniform |= declared
        elif statement.kind == "expression" and uniform and not self.returns and self._is_store(kept):
            self._close()
            self.steps.append(Once(text, used))
        elif fixed and not loads and not replaced and self._is_index(kept, used - declared):
            lane = "".join(token.text for token in kept[kept.index(next(t for t in kept if t.text == "=")) + 1 : -1])
            if lane in names.lanes:
                names.lanes[statement.declared[0]] = names.lanes[lane]
            names.varying |= declared
            names.indices |= declared
            self.open.append(Item(text, used - declared, tuple(declared), again=True))
        elif statement.kind == "control" and (only := self._only_thread(tokens)) is not None:
            self._close()
            self.open.append(Item(text, used, (), stores=True))
            self._close(only)
        else:
            names.varying |= declared
            if not statement.plain:
                self.arrays |= declared
            self.open.append(
                Item(
                    text,
                    used - declared,
                    tuple(statement.declared),
                    statement.kind != "declaration" or self._may_store(used),
                    frozenset(used & names.changed),
                    kept=statement.plain and not self._may_point(statement, used),
                )
            )

    def _may_point(self, statement: Statement, used: Collection[str]) -> bool:
        """Whether a declared value may be the address of a thread's own variable, which is gone behind a cut."""
        own = set(used) & self.names.varying - self.names.indices
        words = [token.text for token in statement.tokens]
        behind = words.index("=") if "=" in words else len(words)
        arrays = own & self.arrays
        return bool(own and ("*" in words[:behind] or "&" in words[behind:])) or bool(arrays)

    def _may_store(self, used: Collection[str]) -> bool:
        return any(name in self.names.own_functions or "atomic" in name.lower() for name in used)

    def _close(self, only: str = "") -> None:
        if self.open:
            self.steps.append(Piece(self.open, only))
        self.open = []

    def _is_uniform(self, tokens: Collection[Token], used: Collection[str]) -> bool:
        """Whether an expression is the same for all threads, and may be computed once for them."""
        listed = list(tokens)
        for index, token in enumerate(listed):
            after = listed[index + 1].text if index + 1 < len(listed) else ""
            if token.kind != "name":
                continue
            if token.text in self.names.positions and after == "." and listed[index + 2].text in others(self.axis):
                continue
            if token.text in self.names.varying or (
                token.text in self.names.changed and token.text not in self.names.uniform
            ):
                return False
            if after in ("(", "<") and not self._is_pure(listed, index):
                return False
        return not (set(used) & self.names.varying - self.names.positions)

    def _is_pure(self, tokens: list[Token], index: int) -> bool:
        text = tokens[index].text
        if text in self.names.own_functions or "atomic" in text.lower() or text.isupper():
            return False
        return (
            text in _INDEX_CALLS
            or text in ("float", "half", "bool", "decltype")
            or (index > 0 and tokens[index - 1].text == "::")
        )

    def _is_index(self, tokens: list[Token], used: Collection[str]) -> bool:
        calls = (t.text for t, after in pairwise(tokens) if after.text == "(" and t.kind == "name")
        return (
            all(call in _INDEX_CALLS for call in calls)
            and not set(used) & self.names.varying - self.names.indices
            and bool(set(used) & self.names.indices)
        )

    def _is_store(self, tokens: list[Token]) -> bool:
        """Whether an expression is `buffer[...] = ...`, of a buffer that all threads share."""
        if (
            len(tokens) < 2
            or tokens[0].kind != "name"
            or tokens[1].text != "["
            or tokens[0].text not in self.names.uniform
        ):
            return False
        close = closing(tokens, 1)
        return tokens[close + 1].text in ASSIGNMENTS and sum(t.text in (*ASSIGNMENTS, "++", "--") for t in tokens) == 1

    def _only_thread(self, tokens: list[Token]) -> str | None:
        """For `if (index == 3) ...` the one turn of the loop that does something."""
        words = [token.text for token in tokens]
        if words[:2] != ["if", "("] or "else" in words:
            return None
        condition = words[2 : closing(tokens, 1)]
        if "==" not in condition or not condition[-1].isdigit() or condition[-2] != "==":
            return None
        start = self.names.lanes.get("".join(condition[:-2]))
        return None if start is None else f"{condition[-1]} - int({start})"
