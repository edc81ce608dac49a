"""What names refer to at a line: read from the whole file, or from the lines that a recording has."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anymps.findings.edits._limits import limited_names

BUILTINS = frozenset(dir(builtins))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OF_TORCH = frozenset(
    {
        "accelerator",
        "amp",
        "autocast",
        "autograd",
        "backends",
        "cat",
        "compile",
        "cuda",
        "device",
        "full",
        "inference_mode",
    }
    | {"float16", "float32", "from_numpy", "load", "manual_seed", "mps", "no_grad", "optim", "rand", "randn", "save"}
    | {"stack", "tensor", "utils", "where", "zeros", "ones"}
)


@dataclass(frozen=True)
class Given:
    """One place where a name gets a value; `value` is None where that is no plain assignment."""

    value: ast.expr | None
    line: int
    in_function: bool


@dataclass(frozen=True)
class Names:
    """`imports` are names by what they were imported as (`th`: `torch`), `bound` all that have a value there.

    `whole`: nothing else is bound in the file. `given` tells of a name's values anywhere in it, `limited` are names of
    devices of which the file takes only those that it lists, and no mps, `seeds` what is given to `torch.manual_seed`.
    """

    imports: Mapping[str, str] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    whole: bool = False
    given: Mapping[str, tuple[Given, ...]] = field(default_factory=dict)
    mentioned: frozenset[str] = frozenset()
    limited: frozenset[str] = frozenset()
    seeds: frozenset[str] = frozenset()

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
    found.collect(tree, visible=True, in_function=False)
    nodes = tuple(ast.walk(tree))
    if "torch" not in found.given and any(map(_imports_all, nodes)) and any(map(_is_in_torch, nodes)):
        found.imports["torch"] = "torch"
        found.bound.add("torch")
    return Names(
        found.imports,
        frozenset(found.bound),
        True,
        {name: tuple(all_of) for name, all_of in found.given.items()},
        frozenset(found.given),
        limited_names(nodes),
        _seeds(nodes, found.imports),
    )


class _Collector:
    """Names of scopes and of those within them; only a scope around the line is seen from there.

    `imports` and `bound` are what is seen from the line, `given` what any scope gives a name.
    """

    def __init__(self, line: int) -> None:
        self._line = line
        self.imports: dict[str, str] = {}
        self.bound: set[str] = set()
        self.given: dict[str, list[Given]] = {}

    def collect(self, node: ast.AST, *, visible: bool, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                self._import(child, visible, in_function)
            elif isinstance(child, _SCOPES):
                self._scope(child, visible)
            else:
                self._assignment(child, visible, in_function)
                self.collect(child, visible=visible, in_function=in_function)

    def _give(self, name: str, value: ast.expr | None, line: int, in_function: bool) -> None:
        self.given.setdefault(name, []).append(Given(value, line, in_function))

    def _import(self, node: ast.Import | ast.ImportFrom, visible: bool, in_function: bool) -> None:
        for name, meaning in _imported(node):
            if visible:
                self.imports[name] = meaning
                self.bound.add(name)
            self._give(name, None, node.lineno, in_function)

    def _scope(self, node: ast.AST, visible: bool) -> None:
        """A function, a lambda or a class: its own name, its arguments, and what is in it."""
        assert isinstance(node, _SCOPES)
        if not isinstance(node, ast.Lambda) and visible:
            self.bound.add(node.name)
        inside = node.lineno <= self._line <= (node.end_lineno or node.lineno)
        if isinstance(node, _FUNCTIONS):
            self._arguments(node.args, node.lineno, seen=inside and visible)
        # Names of a class are not seen from its methods.
        around = node.body if isinstance(node, ast.ClassDef) else []
        if not any(_reaches(method, self._line) for method in around):
            self.collect(node, visible=visible and inside, in_function=True)
            return
        bound = self.bound
        for part in around:
            seen = _reaches(part, self._line)
            self.bound = bound if seen else set()
            self.collect(ast.Module([part], []), visible=seen, in_function=True)
        self.bound = bound

    def _arguments(self, arguments: ast.arguments, line: int, *, seen: bool) -> None:
        plain = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for argument in (*plain, arguments.vararg, arguments.kwarg):
            if argument is None:
                continue
            self._give(argument.arg, None, line, True)
            if seen:
                self.bound.add(argument.arg)
                self.imports.pop(argument.arg, None)

    def _assignment(self, node: ast.AST, visible: bool, in_function: bool) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._give(target.id, node.value, node.lineno, in_function)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if isinstance(node.target, ast.Name):
                self._give(node.target.id, node.value, node.lineno, in_function)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if visible:
                self.bound.add(node.id)
            if not any(given.line == node.lineno for given in self.given.get(node.id, ())):
                self._give(node.id, None, node.lineno, in_function)
        elif isinstance(node, ast.ExceptHandler) and node.name and visible:
            self.bound.add(node.name)


def _reaches(statement: ast.stmt, line: int) -> bool:
    """Whether a line is within a function."""
    return isinstance(statement, _FUNCTIONS) and statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def names_in_lines(statements: Iterable[tuple[int, ast.AST]]) -> Names:
    """What single lines of a file tell: a name that one of them reads is bound, and torch is known by its use."""
    imports: dict[str, str] = {}
    bound: set[str] = set()
    guessed: set[str] = set()
    given: dict[str, list[Given]] = {}
    known = tuple(statements)
    for line, statement in known:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports |= dict(_imported(node))
            elif isinstance(node, ast.Name):
                bound.add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
                given.setdefault(node.arg, []).append(Given(None, line, True))
            elif _is_in_torch(node):
                guessed.add("torch")
            elif _is_of_torch(node):
                guessed.add(node.value.value.id)  # type: ignore[attr-defined]
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        given.setdefault(target.id, []).append(Given(node.value, line, False))
    for name in guessed - imports.keys():
        imports[name] = "torch"
    every = frozenset(bound | imports.keys())
    nodes = [node for _, statement in known for node in ast.walk(statement)]
    values = {name: tuple(all_of) for name, all_of in given.items()}
    return Names(imports, every, False, values, every, limited_names(nodes), _seeds(nodes, imports))


def _seeds(nodes: Iterable[ast.AST], imports: Mapping[str, str]) -> frozenset[str]:
    """The code of each seed that `torch.manual_seed` is given."""
    names = Names(imports)
    calls = (node for node in nodes if isinstance(node, ast.Call) and node.args)
    return frozenset(ast.unparse(call.args[0]) for call in calls if names.meaning(call.func) == "torch.manual_seed")


def _is_in_torch(node: ast.AST) -> bool:
    """`torch.ones`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"


def _imports_all(node: ast.AST) -> bool:
    """`from utils import *`, which may be where torch comes from."""
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _is_of_torch(node: ast.AST) -> bool:
    """`th.cuda.is_available`, `th.backends.mps`: no other module has these."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Name)
        and (node.value.attr, node.attr)
        in {("cuda", "is_available"), ("backends", "mps"), ("backends", "cudnn"), ("cuda", "amp"), ("nn", "functional"),
            ("cuda", "synchronize"), ("cuda", "empty_cache"), ("cuda", "manual_seed"), ("cuda", "manual_seed_all")}
    )  # fmt: skip


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    if isinstance(node, ast.Import):
        return [
            (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0], alias.name.partition(".")[0])
            for alias in node.names
        ]
    if node.level:
        return [
            (alias.asname or alias.name, f".{node.module or ''}.{alias.name}")
            for alias in node.names
            if alias.name != "*"
        ]
    return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names if alias.name != "*"]
