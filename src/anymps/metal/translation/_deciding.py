"""Finds the buffers whose contents decide what memory a kernel touches, and which branches it takes.

The checker finds the same in two launches that agree in all that decides. A kernel that adds vectors touches the same
memory whatever the numbers are; one that gathers does so only for the same indices. So values are followed from where
they are read to where they would decide something: an address, a condition over an access or over what threads do
together, an integer's divisor, a shift. What is not understood is not guessed at: such a kernel is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from anymps.metal.translation._brackets import SPACES, closing, is_attribute, split_commas
from anymps.metal.translation._fission_names import parameter_name
from anymps.metal.translation._parameters import Unsupported, buffer_places
from anymps.metal.translation._pure_calls import ATOMIC_TYPES, FLOATS, TYPES
from anymps.metal.translation._structure import Function, Structure, read_structure
from anymps.metal.translation._tokens import Token, tokenize
from anymps.metal.translation._value_flow import Body
from anymps.metal.translation._value_reader import ANY, NOTHING, Unclear, Value, Variable

_MOST_TURNS = 50  # until the labels of variables no longer grow


def deciding_buffers(text: str, divides: bool = True, shifts: bool = True) -> dict[str, frozenset[int]]:
    """For each kernel that is understood, by its name, the buffers whose contents decide what it touches.

    `text` has no macros left. `divides` and `shifts`: whether any of its code divides integers by what is no constant,
    or shifts by it.
    """
    tokens = tokenize(text)
    for token, after in pairwise(tokens):
        if token.directive and token.text == "#" and after.text != "pragma":
            return {}  # a macro, or a condition
    code = [token for token in tokens if not token.directive]
    structure = read_structure(code)
    if not structure.balanced or any(function.name == "operator" for function in structure.functions):
        return {}
    found = {}
    for name, function in _kernels(structure):
        with contextlib.suppress(Unclear):
            found[name] = _Kernel(code, structure, function, divides, shifts).deciding()
    return found


def _kernels(structure: Structure) -> Iterator[tuple[str, Function]]:
    """The kernels by name. Of two functions of one name, an instance may be of either."""
    by_name: dict[str, list[Function]] = {}
    for function in structure.functions:
        if function.kernel:
            by_name.setdefault(function.name, []).append(function)
            if function.template is None:
                yield function.host_name or function.name, function
    for instance in structure.instances:
        functions = by_name.get(instance.target.split("::")[-1], [])
        plain = all(
            token.kind == "number" or token.text in TYPES or token.text in ("<", ">", ",", "true", "false")
            for token in instance.arguments
        )
        if len(functions) == 1 and instance.arguments and plain:
            yield instance.host_name, functions[0]


def _plain_structs(code: list[Token]) -> set[str]:
    """Structs that hold values of Metal's own types, and nothing else."""
    found: set[str] = set()
    others: set[str] = set()
    for index, token in enumerate(code[:-2]):
        if token.text not in ("struct", "class", "union", "using", "typedef", "enum"):
            continue
        name, brace = code[index + 1].text, index + 2
        inside = code[brace + 1 : closing(code, brace)] if code[brace].text == "{" else []
        members = [split_commas(part) for part in _statements(inside)]
        plain = token.text == "struct" and bool(inside)
        for first, *rest in members:
            plain = plain and len(first) == 2 and first[0].text in TYPES and first[1].kind == "name"
            plain = plain and all(len(one) == 1 for one in rest)
        (found if plain else others).add(name)
    return found - others


def _statements(tokens: list[Token]) -> Iterator[list[Token]]:
    part: list[Token] = []
    for token in tokens:
        if token.text == ";":
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


class _Kernel:
    """One kernel, with the functions that it calls."""

    def __init__(
        self, code: list[Token], structure: Structure, function: Function, divides: bool, shifts: bool
    ) -> None:
        self.code = code
        self.divides, self.shifts = divides, shifts
        self.structs = _plain_structs(code)
        self.own: dict[str, list[Function]] = {}
        for one in structure.functions:
            self.own.setdefault(one.name, []).append(one)
        self.changed = False
        self._decides: set[int] = set()
        self._bodies: dict[int, Body] = {}
        self._add(function)

    def is_type(self, name: str, template: Collection[str]) -> bool:
        return name in TYPES or name in ATOMIC_TYPES or name in template or name in self.structs

    def decide(self, labels: Collection[int]) -> None:
        """What has these labels decides something."""
        if ANY in labels:
            raise Unclear("memory decides that changes")
        self._decides.update(labels)

    def note(self, into: set[int], labels: Collection[int]) -> None:
        """Adds labels, and sees whether any is new."""
        if not into.issuperset(labels):
            into.update(labels)
            self.changed = True

    def called(self, name: str, arguments: Sequence[Value], control: Collection[int]) -> set[int]:
        """A function of the program's own is called. The labels of what it returns."""
        returned: set[int] = set()
        found = False
        for function in self.own[name]:
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
            self.changed = True

    def deciding(self) -> frozenset[int]:
        for _ in range(_MOST_TURNS):
            self.changed = False
            for body in list(self._bodies.values()):
                body.run()
            if not self.changed:
                return frozenset(self._decides)
        raise Unclear("labels that grow and grow")

    def _add(self, function: Function) -> Body:
        if function.kernel and self._bodies:
            raise Unclear("a kernel that is called")
        template = [one for one in function.template or () if not one.endswith("...")]
        if len(template) != len(function.template or ()):
            raise Unclear("a pack")
        parameters = self._of_kernel(function, template) if function.kernel else self._of_values(function, template)
        body = Body(self, self.code, function.body, template, parameters)
        self._bodies[id(function)] = body
        self.changed = True
        return body

    def _of_kernel(self, function: Function, template: Collection[str]) -> list[Variable]:
        try:
            places = buffer_places(function.parameters)
        except Unsupported as error:
            raise Unclear(str(error)) from None
        found = []
        for parameter, place in zip(function.parameters, places, strict=True):
            name = parameter_name(parameter)
            words = _without_attributes(list(parameter.tokens))
            if place is None:
                found.append(Variable(name, "value", floating=False))
                continue
            mark = words[-2] if len(words) > 2 else ""
            before = [word for word in words[:-2] if word not in ("const", "::", "metal", *SPACES)]
            if words[-1] != name or mark not in ("*", "&"):
                raise Unclear("a parameter of another form")
            if (len(before) == 4 and before[0] == "atomic") or (len(before) == 1 and before[0].startswith("atomic_")):
                before = ["uint"]
            if len(before) != 1 or not self.is_type(before[0], template):
                raise Unclear("a parameter of another type")
            label = place if "const" in words or "constant" in words else ANY
            kind = "pointer" if mark == "*" else "reference"
            found.append(Variable(name, kind, content=label, floating=before[0] in FLOATS))
        return found

    def _of_values(self, function: Function, template: Collection[str]) -> list[Variable]:
        head = function.head
        opening = next(
            (i for i, (one, after) in enumerate(pairwise(head)) if (one.text, after.text) == (function.name, "(")),
            -1,
        )
        if opening < 0 or any(token.text in ("*", "&", "operator") for token in head[:opening]):
            raise Unclear("a function of another form")
        parts = split_commas(head[opening + 2 : closing(head, opening + 1)])
        words = [[token.text for token in part] for part in parts]
        return [self._of_value(one, template) for one in words if one not in ([], ["void"])]

    def _of_value(self, words: Sequence[str], template: Collection[str]) -> Variable:
        """A parameter of a function of the program's own."""
        space = next((word for word in words if word in SPACES), "thread")
        match [word for word in words if word not in ("const", "::", "metal", *SPACES)]:
            case [kind, name]:
                mark = ""
            case [kind, ("*" | "&") as mark, name]:
                pass
            case _:
                raise Unclear("a parameter of another form")
        if not self.is_type(kind, template) or space not in ("thread", "device", "constant", "threadgroup"):
            raise Unclear("a parameter of another type")
        floating, vague = kind in FLOATS, kind in template and mark != "*"
        if space == "thread" or not mark:
            if mark == "*" or space != "thread":
                raise Unclear("the address of a thread's own")
            return Variable(name, "value", floating=floating, bound=mark == "&", vague=vague)
        return Variable(name, "pointer" if mark == "*" else "reference", NOTHING, floating)


def _without_attributes(tokens: list[Token]) -> list[str]:
    found, index = [], 0
    while index < len(tokens):
        if is_attribute(tokens, index):
            index = closing(tokens, index) + 1
        else:
            found.append(tokens[index].text)
            index += 1
    return found
