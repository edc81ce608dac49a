"""Finds the buffers whose contents decide what memory a kernel touches, and which branches it takes.

The checker finds the same in two launches that agree in all that decides. A kernel that adds vectors touches the same
memory whatever the numbers are; one that gathers does so only for the same indices. So values are followed from where
they are read to where they would decide something: an address, a condition over an access or over what threads do
together, an integer's divisor, a shift. What is not understood is not guessed at: such a kernel is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

from anymps.metal.analysis._program import Program, parameters_of
from anymps.metal.analysis._syntax_reader import Unclear
from anymps.metal.analysis._taint import ANY, NOTHING, Body, Value, Variable
from anymps.metal.translation import FLOATS, SPACES, TYPES, Function, Unsupported, buffer_places

_MOST_TURNS = 50  # until the labels of variables no longer grow


def deciding_buffers(program: Program, divides: bool = True, shifts: bool = True) -> dict[str, frozenset[int]]:
    """For each kernel that is understood, by its name, the buffers whose contents decide what it touches.

    `divides` and `shifts`: whether any code of the program divides integers by what is no constant, or shifts by it.
    """
    found = {}
    for name, function in _kernels(program):
        with contextlib.suppress(Unclear):
            found[name] = _Kernel(program, function, divides, shifts).deciding()
    return found


def _kernels(program: Program) -> Iterator[tuple[str, Function]]:
    """The kernels by name. Of two functions of one name, an instance may be of either."""
    by_name = {name: [one for one in functions if one.kernel] for name, functions in program.functions.items()}
    for functions in by_name.values():
        for function in functions:
            if function.template is None:
                yield function.host_name or function.name, function
    for instance in program.instances:
        functions = by_name.get(instance.target.split("::")[-1], [])
        plain = all(
            token.kind == "number" or token.text in TYPES or token.text in ("<", ">", ",", "true", "false")
            for token in instance.arguments
        )
        if len(functions) == 1 and instance.arguments and plain:
            yield instance.host_name, functions[0]


class _Kernel:
    """One kernel, with the functions that it calls."""

    def __init__(self, program: Program, function: Function, divides: bool, shifts: bool) -> None:
        self.divides, self.shifts = divides, shifts
        self._program = program
        self._changed = False
        self._decides: set[int] = set()
        self._bodies: dict[int, Body] = {}
        self._add(function)

    def is_own(self, name: str) -> bool:
        return name in self._program.functions

    def decide(self, labels: Collection[int]) -> None:
        """What has these labels decides something."""
        if ANY in labels:
            raise Unclear("memory decides that changes")
        self._decides.update(labels)

    def note(self, into: set[int], labels: Collection[int]) -> None:
        """Adds labels, and sees whether any is new."""
        if not into.issuperset(labels):
            into.update(labels)
            self._changed = True

    def called(self, name: str, arguments: Sequence[Value], control: Collection[int]) -> set[int]:
        """A function of the program's own is called. The labels of what it returns."""
        returned: set[int] = set()
        found = False
        for function in self._program.functions[name]:
            body = self._bodies.get(id(function)) or self._add(function)
            if len(body.parameters) != len(arguments):
                continue
            pairs = list(zip(body.parameters, arguments, strict=True))
            if any(one.vague and given.content is not None for one, given in pairs):
                raise Unclear("an address of a type that is not written")
            if any((one.kind == "pointer") != (given.content is not None) for one, given in pairs):
                continue  # an overload for others
            for parameter, given in pairs:
                self._bind(parameter, given)
            self.note(body.control, control)
            returned |= body.returned
            found = True
        if not found:
            raise Unclear("a function of another form")
        return returned

    def _bind(self, parameter: Variable, given: Value) -> None:
        """A parameter gets its value, or becomes another name of it."""
        if parameter.kind == "reference":
            if not given.in_memory:
                raise Unclear("a reference to what is no memory")
            (label,) = given.labels
            self._point(parameter, label)
            return
        if given.content is not None:
            self._point(parameter, given.content)
        self.note(parameter.labels, given.labels)
        if parameter.bound and given.in_memory:
            raise Unclear("memory as a thread's own")
        if parameter.bound and given.target is not None:
            self.note(given.target.labels, parameter.labels)

    def _point(self, parameter: Variable, label: int) -> None:
        if parameter.content != label and parameter.content != ANY:
            parameter.content = label if parameter.content == NOTHING else ANY
            self._changed = True

    def deciding(self) -> frozenset[int]:
        for _ in range(_MOST_TURNS):
            self._changed = False
            for body in list(self._bodies.values()):
                body.run()
            if not self._changed:
                return frozenset(self._decides)
        raise Unclear("labels that grow and grow")

    def _add(self, function: Function) -> Body:
        if function.kernel and self._bodies:
            raise Unclear("a kernel that is called")
        if any(name.endswith("...") for name in function.template or ()):
            raise Unclear("a pack")
        words = parameters_of(function)
        types = self._program.types_in(function)
        if function.kernel:
            parameters = list(_of_kernel(function, words, types))
        else:
            parameters = [_of_value(one, types, function.template or ()) for one in words]
        body = Body(self, self._program.tree(function), types, parameters)
        self._bodies[id(function)] = body
        self._changed = True
        return body


def _of_kernel(function: Function, parameters: Sequence[list[str]], types: Collection[str]) -> Iterator[Variable]:
    """The parameters of a kernel: positions, and buffers by their places."""
    try:
        places = buffer_places(function.parameters)
    except Unsupported as error:
        raise Unclear(str(error)) from None
    for words, place in zip(parameters, places, strict=True):
        if place is None:
            yield Variable("value")
            continue
        mark = words[-2] if len(words) > 2 else ""
        before = [word for word in words[:-2] if word not in ("const", "::", "metal", *SPACES)]
        if mark not in ("*", "&"):
            raise Unclear("a parameter of another form")
        if (len(before) == 4 and before[0] == "atomic") or (len(before) == 1 and before[0].startswith("atomic_")):
            before = ["uint"]
        if len(before) != 1 or before[0] not in types:
            raise Unclear("a parameter of another type")
        label = place if "const" in words or "constant" in words else ANY
        yield Variable("pointer" if mark == "*" else "reference", label, before[0] in FLOATS)


def _of_value(words: Sequence[str], types: Collection[str], template: Collection[str]) -> Variable:
    """A parameter of a function of the program's own."""
    space = next((word for word in words if word in SPACES), "thread")
    match [word for word in words if word not in ("const", "::", "metal", *SPACES)]:
        case [kind, _]:
            mark = ""
        case [kind, ("*" | "&") as mark, _]:
            pass
        case _:
            raise Unclear("a parameter of another form")
    if kind not in types or space not in ("thread", "device", "constant", "threadgroup"):
        raise Unclear("a parameter of another type")
    floating, vague = kind in FLOATS, kind in template and mark != "*"
    if space == "thread" or not mark:
        if mark == "*" or space != "thread":
            raise Unclear("the address of a thread's own")
        return Variable("value", floating=floating, bound=mark == "&", vague=vague)
    return Variable("pointer" if mark == "*" else "reference", NOTHING, floating)
