"""How values flow through the body of a function: taint analysis, of which buffers the values may come from.

Each variable has the labels of all buffers that any of its values may come from, in whatever order statements run, and
so has each place what may keep a thread from it: the conditions around it, and those of earlier returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from anymps.metal.analysis._syntax_reader import Unclear
from anymps.metal.analysis._syntax_tree import Node, Tree
from anymps.metal.translation import FLOAT_CALLS, FLOATS, PURE, VALUES_OF, WHOLE

ANY = -1
"""The label of memory that changes within a launch."""
NOTHING = -2
"""In the place of a label, where nothing has been seen yet."""
_SHIFT_LIMIT = 32  # what is narrower is an `int` by then
_COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||"})


@dataclass
class Variable:
    """A name, as it was declared. `content`: the label of what lies where it points to.

    A parameter that is `bound` is another name of what it is given; one of a `vague` type may be an address.
    """

    kind: str  # value, array (of a thread's own), pointer, reference, shared, shared_array
    content: int = ANY
    floating: bool = False
    labels: set[int] = field(default_factory=set)
    bound: bool = False
    vague: bool = False


@dataclass(frozen=True)
class Value:
    """What an expression gives: where it may come from, and what an assignment to it changes.

    `content`: it is an address, and what lies there has this label. `floating`: surely no integer. `fixed`: the number
    that stands there.
    """

    labels: frozenset[int] = frozenset()
    content: int | None = None
    floating: bool = False
    fixed: int | None = None
    target: Variable | None = None
    in_memory: bool = False


class Kernel(Protocol):
    """What a body asks of its kernel."""

    divides: bool
    shifts: bool

    def decide(self, labels: Collection[int]) -> None: ...
    def note(self, into: set[int], labels: Collection[int]) -> None: ...
    def is_own(self, name: str) -> bool: ...
    def called(self, name: str, arguments: Sequence[Value], control: Collection[int]) -> set[int]: ...


class Body:
    """The body of one function. `control`: what decides whether it is called, or left early."""

    def __init__(self, kernel: Kernel, tree: Tree, types: Collection[str], parameters: Sequence[Variable]) -> None:
        self.parameters = parameters
        self.control: set[int] = set()
        self.returned: set[int] = set()
        self._kernel, self._tree, self._types = kernel, tree, types
        self._variables = dict(zip(tree.names, parameters, strict=True))
        self._around: list[frozenset[int]] = []  # what decides whether a thread comes here
        self._follow: dict[str, Callable[..., object]] = {
            "block": self._statements,
            "declare": self._declare,
            "refer": self._refer,
            "if": self._if,
            "loop": self._loop,
            "switch": self._switch,
            "case": self._case,
            "return": self._return,
            "break": self._jump,
            "continue": self._jump,
            "do": self._value,
        }
        self._evaluate: dict[str, Callable[..., Value]] = {
            "number": lambda value, _: Value(fixed=value),
            "floating": lambda: Value(floating=True),
            "name": self._name,
            "global": lambda _: Value(),  # a constant of the source's or of Metal's
            "binary": self._binary,
            "&&": lambda left, right: self._binary("&&", left, right),
            "||": lambda left, right: self._binary("||", left, right),
            "choose": self._choose,
            "unary": self._unary,
            "assign": self._assign,
            "after": lambda target, operator: self._assign(target, operator, ("number", 1, "int")),
            "index": self._index,
            "member": lambda base, _: replace(self._no_address(base), fixed=None),
            "arrow": lambda base, _: replace(self._read(self._value(base), Value()), floating=False),
            "cast": self._cast,
            "make": lambda words, nodes: Value(self._labels(nodes), floating=_is_floating(words)),
            "list": lambda nodes: Value(self._labels(nodes)),
            "call": self._call,
            "atomic": self._atomic,
        }

    def run(self) -> None:
        """Goes through it once, with the labels that are known so far."""
        self._around = []
        self._statements(self._tree.statements)

    # What decides

    def _here(self) -> frozenset[int]:
        return frozenset(self.control).union(*self._around)

    def _weigh(self, labels: Collection[int] = ()) -> None:
        """Something happens here that the checker looks at, and it depends on values with these labels."""
        self._kernel.decide(self._here().union(labels))

    @contextmanager
    def _under(self, labels: Collection[int]) -> Iterator[None]:
        self._around.append(frozenset(labels))
        yield
        self._around.pop()

    # Statements

    def _statements(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._follow[node[0]](*node[1:])

    def _if(self, condition: Node, one: Node, other: Node) -> None:
        with self._under(self._value(condition).labels):
            self._statements((one, other))

    def _loop(self, condition: Node | None, steps: Sequence[Node], body: Node, first: bool) -> None:
        """How often it runs decides what is touched. A body before its condition declares nothing that this reads."""
        if not first:
            self._statements((body,))
        if condition is not None:
            self._weigh(self._no_address(condition).labels)
        for step in steps:
            self._value(step)
        if first:
            self._statements((body,))

    def _switch(self, condition: Node, body: Node) -> None:
        self._weigh(self._no_address(condition).labels)
        self._statements((body,))

    def _case(self, value: Node | None) -> None:
        if value is not None:
            self._value(value)

    def _return(self, value: Node | None) -> None:
        if value is not None:
            self._kernel.note(self.returned, self._no_address(value).labels)
        self._jump()
        self._kernel.note(self.returned, self._here())

    def _jump(self) -> None:
        """A thread goes on somewhere else."""
        self._kernel.note(self.control, self._here())

    def _declare(
        self,
        name: str,
        words: Sequence[str],
        space: str,
        pointer: bool,
        sizes: Sequence[Node | None],
        initializer: Node | None,
    ) -> None:
        for size in sizes:
            if size is not None:
                self._weigh(self._no_address(size).labels)
        if name not in self._variables:
            kind = "pointer" if pointer else "value" if space == "thread" else "shared"
            if sizes:
                kind = "array" if space == "thread" else "shared_array"
            self._variables[name] = Variable(kind, floating=not pointer and _is_floating(words))
        if initializer is None:
            return
        variable = self._variables[name]
        given = self._value(initializer)
        if variable.kind in ("shared", "shared_array"):
            self._weigh()
        if pointer or ("auto" in words and given.content is not None):
            if given.content is None:
                raise Unclear("an address of another kind")
            variable.kind, variable.content = "pointer", given.content
        elif "auto" in words:
            variable.floating = given.floating
        else:
            _no_address(given)
        self._kernel.note(variable.labels, given.labels | self._here())

    def _refer(self, name: str, space: str, node: Node) -> None:
        """`auto& a = b`: another name of something."""
        given = self._no_address(node)
        if given.in_memory:
            (label,) = given.labels
            found = self._variables.setdefault(name, Variable("reference", content=label, floating=given.floating))
            if found.content != label:
                raise Unclear("a reference to several things")
        elif given.target is not None and space == "thread":
            self._variables[name] = given.target
        else:
            raise Unclear("a reference to nothing that is known")

    # Expressions

    def _value(self, node: Node) -> Value:
        return self._evaluate[node[0]](*node[1:])

    def _no_address(self, node: Node) -> Value:
        return _no_address(self._value(node))

    def _labels(self, nodes: Sequence[Node]) -> frozenset[int]:
        """Those of values."""
        return frozenset().union(*(self._no_address(one).labels for one in nodes))

    def _assign(self, target: Node, operator: str, node: Node) -> Value:
        left, right = self._value(target), self._value(node)
        self._judge_divisor(operator, left, right)
        labels = left.labels | right.labels | self._here()
        if left.in_memory:
            self._weigh()
            _no_address(right)
            return Value(labels, floating=left.floating)
        variable = left.target
        if variable is None:
            raise Unclear("an assignment to nothing")
        if variable.kind != "pointer":
            _no_address(right)
        elif right.content != (left.content if operator == "" else None):
            raise Unclear("a pointer that changes what it is")
        self._kernel.note(variable.labels, labels)
        return Value(labels, left.content, left.floating)

    def _choose(self, condition: Node, node: Node, other_node: Node) -> Value:
        chooses = self._no_address(condition)
        with self._under(chooses.labels):
            one, other = self._value(node), self._value(other_node)
        if one.content != other.content:
            raise Unclear("one of several addresses")
        return Value(chooses.labels | one.labels | other.labels, one.content, one.floating and other.floating)

    def _binary(self, operator: str, node: Node, other: Node) -> Value:
        left = self._value(node)
        with self._under(left.labels if operator in ("&&", "||") else ()):
            right = self._value(other)
        content = None
        if operator in ("+", "-") and (left.content is None) != (right.content is None):
            if operator == "-" and left.content is None:
                raise Unclear("an address taken from a number")
            content = left.content if left.content is not None else right.content
        else:
            _no_address(left)
            _no_address(right)
        self._judge_divisor(operator, left, right)
        floating = content is None and operator not in _COMPARES and (left.floating or right.floating)
        return Value(left.labels | right.labels, content, floating)

    def _judge_divisor(self, operator: str, left: Value, right: Value) -> None:
        """An integer may be divided by zero, or shifted too far."""
        if operator in ("<<", ">>"):
            judged = self._kernel.shifts and not (right.fixed is not None and right.fixed < _SHIFT_LIMIT)
        elif operator in ("/", "%"):
            judged = self._kernel.divides and not (right.fixed or (operator == "/" and left.floating | right.floating))
        else:
            judged = False
        if judged:
            self._weigh(right.labels)

    def _unary(self, operator: str, node: Node) -> Value:
        found = self._no_address(node)
        fixed = found.fixed if operator == "+" else None
        return Value(found.labels, floating=found.floating and operator in ("-", "+"), fixed=fixed)

    def _cast(self, words: Sequence[str], pointer: bool, node: Node) -> Value:
        found = self._value(node)
        if pointer != (found.content is not None) or "auto" in words:
            raise Unclear("a cast of an address")
        if pointer:
            return Value(found.labels, ANY)
        return Value(found.labels, floating=_is_floating(words))

    def _index(self, base: Node, node: Node) -> Value:
        found = self._name(base[1], indexed=True) if base[0] == "name" else self._value(base)
        index = self._value(node)
        if found.content is not None:
            return self._read(found, index)
        self._weigh(_no_address(index).labels)
        return replace(found, fixed=None)

    def _read(self, pointer: Value, index: Value) -> Value:
        """What lies in memory."""
        _no_address(index)
        if pointer.content is None:
            raise Unclear("what lies at no address")
        self._weigh(pointer.labels | index.labels)
        return Value(frozenset({pointer.content}), floating=pointer.floating, in_memory=True)

    def _name(self, name: str, indexed: bool = False) -> Value:
        variable = self._variables[name]
        if variable.kind == "pointer":
            return Value(frozenset(variable.labels), variable.content, variable.floating, None, variable)
        if variable.kind == "shared_array":
            return Value(frozenset(variable.labels), ANY, variable.floating)
        if variable.kind in ("reference", "shared"):
            self._weigh()
            return Value(frozenset({variable.content}), None, variable.floating, None, None, True)
        if variable.kind == "array" and not indexed:
            raise Unclear("the address of a thread's own array")
        return Value(frozenset(variable.labels), None, variable.floating, None, variable)

    def _call(self, name: str, nodes: Sequence[Node], _: object) -> Value:
        given = [self._value(one) for one in nodes]
        labels = frozenset().union(*(one.labels for one in given))
        if self._kernel.is_own(name):
            return Value(labels | self._kernel.called(name, given, self._here()))
        if name in VALUES_OF:
            free = VALUES_OF[name]
            self._weigh(frozenset().union(*(one.labels for one in given[free:])))
            for one in given[:free]:
                if one.content is not None:
                    labels |= {ANY}
                    self._weigh(one.labels)
            return Value(labels)
        if name not in PURE and name not in WHOLE and name not in self._types:
            raise Unclear(name)
        for one in given:
            _no_address(one)
        if name in WHOLE and (self._kernel.divides or self._kernel.shifts):
            self._weigh(labels)
        return Value(labels, floating=name in FLOAT_CALLS)

    def _atomic(self, _: str, target: Node, nodes: Sequence[Node]) -> Value:
        if not self._value(target).in_memory:
            raise Unclear("an atomic of a thread's own")
        labels = self._labels(nodes)
        self._weigh()
        return Value(labels | {ANY})


def _no_address(found: Value) -> Value:
    if found.content is not None:
        raise Unclear("an address in the place of a value")
    return found


def _is_floating(words: Sequence[str]) -> bool:
    """Whether values of a type are surely no integers."""
    return "vec" not in words and not FLOATS.isdisjoint(words)
