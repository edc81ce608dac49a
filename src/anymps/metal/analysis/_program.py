"""A source as those see it who ask what its kernels touch: its functions, their parameters, and their syntax trees."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from anymps.metal.analysis._syntax_reader import Unclear
from anymps.metal.analysis._syntax_tree import Tree
from anymps.metal.translation import (
    ATOMIC_TYPES,
    TYPES,
    Function,
    Token,
    closing,
    parameter_name,
    read_structure,
    split_commas,
    tokenize,
    without_attributes,
)


class Program:
    """`text` has no macros left. `functions` are its functions by name; none if it is not understood as a whole."""

    def __init__(self, text: str) -> None:
        tokens = tokenize(text)
        self.code = [token for token in tokens if not token.directive]
        structure = read_structure(self.code)
        # What else begins with `#` is a macro, or a condition.
        pragmas = all(after.text == "pragma" for one, after in pairwise(tokens) if one.directive and one.text == "#")
        operators = any(function.name == "operator" for function in structure.functions)
        understood = pragmas and structure.balanced and not operators
        self.functions: dict[str, list[Function]] = {}
        for function in structure.functions if understood else ():
            self.functions.setdefault(function.name, []).append(function)
        self.instances = structure.instances
        self._types = TYPES | ATOMIC_TYPES | _plain_structs(self.code)
        self._trees: dict[int, Tree | Unclear] = {}

    def types_in(self, function: Function) -> frozenset[str]:
        """Names of types in a function: those of its template are among them."""
        return self._types.union(function.template or ())

    def tree(self, function: Function) -> Tree:
        """The body of a function, read once. Raises Unclear."""
        found = self._trees.get(id(function))
        if found is None:
            try:
                found = self._read(function)
            except Unclear as error:
                found = error
            self._trees[id(function)] = found
        if isinstance(found, Unclear):
            raise found
        return found

    def _read(self, function: Function) -> Tree:
        first, last = function.body
        if function.kernel:
            names = [parameter_name(parameter) for parameter in function.parameters]
        else:
            names = [words[-1] for words in parameters_of(function)]
        return Tree(self.code[first + 1 : last], self.types_in(function), self.functions, names)


def parameters_of(function: Function) -> list[list[str]]:
    """The words of each parameter, the last of which is its name. Raises Unclear."""
    if function.kernel:
        return [[token.text for token in without_attributes(list(one.tokens))] for one in function.parameters]
    head = function.head
    opening = next(
        (i for i, (one, after) in enumerate(pairwise(head)) if (one.text, after.text) == (function.name, "(")), -1
    )
    if opening < 0 or any(token.text in ("*", "&", "operator") for token in head[:opening]):
        raise Unclear("a function of another form")
    parts = split_commas(head[opening + 2 : closing(head, opening + 1)])
    return [words for words in ([token.text for token in part] for part in parts) if words != ["void"]]


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
