"""What names refer to at a line: read from the whole file, or from the lines that a recording has."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from anymps.source._statements import imported

BUILTINS = frozenset(dir(builtins))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OF_TORCH = frozenset(
    {("cuda", "is_available"), ("backends", "mps"), ("backends", "cudnn"), ("cuda", "amp"), ("nn", "functional")}
    | {("cuda", "synchronize"), ("cuda", "empty_cache"), ("cuda", "manual_seed"), ("cuda", "manual_seed_all")}
)


@dataclass(frozen=True)
class Given:
    """One place where a name gets a value; `value` is None where that is no plain assignment."""

    value: ast.expr | None
    line: int


@dataclass(frozen=True)
class Names:
    """`imports` are names by what they were imported as (`th`: `torch`), `bound` all that have a value there.

    `whole`: nothing else is bound in the file. `given` tells of a name's values anywhere in it, `nodes` are all of its
    tree.
    """

    imports: Mapping[str, str] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    whole: bool = False
    given: Mapping[str, list[Given]] = field(default_factory=dict)
    nodes: tuple[ast.AST, ...] = ()

    @property
    def mentioned(self) -> Collection[str]:
        """The names that have a value anywhere in the file, or may have one."""
        return self.given.keys() if self.whole else self.bound

    @property
    def torch(self) -> str:
        """By which name torch is known; empty where that cannot be told."""
        known = [name for name, meaning in self.imports.items() if meaning == "torch"]
        return "torch" if "torch" in known else next(iter(known), "")

    def meaning(self, node: ast.AST) -> str:
        """`torch.cuda.amp.autocast` of `autocast` or `th.cuda.amp.autocast`; empty for what is no dotted name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])


def names_in_file(tree: ast.Module, line: int) -> Names:
    """The names that are bound where a line of a file runs: those of its functions, and those of the module."""
    found = _Collector(line)
    found.collect(tree, visible=True)
    nodes = tuple(ast.walk(tree))
    if "torch" not in found.given and "*" in found.given and any(map(_is_in_torch, nodes)):  # it may come from there
        found.imports["torch"] = "torch"
        found.bound.add("torch")
    return Names(found.imports, frozenset(found.bound), True, found.given, nodes)


class _Collector:
    """Names of scopes and of those within them; only a scope around the line is seen from there.

    `imports` and `bound` are what is seen from the line, `given` what any scope gives a name.
    """

    def __init__(self, line: int) -> None:
        self._line = line
        self.imports: dict[str, str] = {}
        self.bound: set[str] = set()
        self.given: dict[str, list[Given]] = {}

    def collect(self, node: ast.AST, *, visible: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                for name, meaning in imported(child):
                    self._give(name, None, child.lineno, visible)
                    if visible:
                        self.imports[name] = meaning
            elif isinstance(child, _SCOPES):
                self._scope(child, visible)
            else:
                self._assignment(child, visible)
                self.collect(child, visible=visible)

    def _give(self, name: str, value: ast.expr | None, line: int, visible: bool) -> None:
        self.given.setdefault(name, []).append(Given(value, line))
        if visible:
            self.bound.add(name)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef, visible: bool) -> None:
        """A function, a lambda or a class: its own name, its arguments, and what is in it."""
        if not isinstance(node, ast.Lambda) and visible:
            self.bound.add(node.name)
        seen = visible and node.lineno <= self._line <= (node.end_lineno or node.lineno)
        if isinstance(node, ast.ClassDef):
            # Names of a class are not seen from its methods.
            reached = [part for part in node.body if _reaches(part, self._line)]
            for part in node.body if reached else ():
                self.collect(ast.Module([part], []), visible=part in reached)
            if reached:
                return
        else:
            self._arguments(node.args, node.lineno, seen)
        self.collect(node, visible=seen)

    def _arguments(self, arguments: ast.arguments, line: int, seen: bool) -> None:
        plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for argument in (*plain, arguments.vararg, arguments.kwarg):
            if argument is not None:
                self._give(argument.arg, None, line, seen)
                if seen:
                    self.imports.pop(argument.arg, None)

    def _assignment(self, node: ast.AST, visible: bool) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    self._give(target.id, node.value, node.lineno, visible)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if visible:
                self.bound.add(node.id)
            if not any(given.line == node.lineno for given in self.given.get(node.id, ())):
                self._give(node.id, None, node.lineno, visible)
        elif isinstance(node, ast.ExceptHandler) and node.name and visible:
            self.bound.add(node.name)


def _reaches(statement: ast.stmt, line: int) -> bool:
    """Whether a line is within a function."""
    return isinstance(statement, _FUNCTIONS) and statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def names_in_lines(statements: Iterable[tuple[int, ast.AST]]) -> Names:
    """What single lines of a file tell: a name that one of them reads is bound, and torch is known by its use."""
    found = _Collector(0)
    guessed: set[str] = set()
    nodes = [(line, node) for line, statement in statements for node in ast.walk(statement)]
    for line, node in nodes:
        found.imports |= dict(imported(node))
        if isinstance(node, ast.Name):
            found.bound.add(node.id)
        elif isinstance(node, ast.arg):
            found._give(node.arg, None, line, True)
        elif isinstance(node, ast.Attribute) and _is_in_torch(node):
            guessed.add("torch")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            # `th.cuda.is_available`, `th.backends.mps`: no other module has these.
            if isinstance(node.value.value, ast.Name) and (node.value.attr, node.attr) in _OF_TORCH:
                guessed.add(node.value.value.id)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found._give(target.id, node.value, line, True)
    found.imports |= dict.fromkeys(guessed - found.imports.keys(), "torch")
    bound = frozenset(found.bound | found.imports.keys())
    return Names(found.imports, bound, False, found.given, tuple(node for _, node in nodes))


def _is_in_torch(node: ast.AST) -> bool:
    """`torch.ones`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
