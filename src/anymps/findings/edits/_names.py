"""What names stand for at a line: read from the whole file, or from those lines of it that a recording holds."""

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
    devices of which the file takes only those that it lists, and no mps.
    """

    imports: Mapping[str, str] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    whole: bool = False
    given: Mapping[str, tuple[Given, ...]] = field(default_factory=dict)
    mentioned: frozenset[str] = frozenset()
    limited: frozenset[str] = frozenset()

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
    imports: dict[str, str] = {}
    bound: set[str] = set()
    given: dict[str, list[Given]] = {}
    _collect(tree, line, imports, bound, given, visible=True, in_function=False)
    return Names(
        imports,
        frozenset(bound),
        True,
        {name: tuple(all_of) for name, all_of in given.items()},
        frozenset(given),
        limited_names(ast.walk(tree)),
    )


def _collect(
    node: ast.AST,
    line: int,
    imports: dict[str, str],
    bound: set[str],
    given: dict[str, list[Given]],
    *,
    visible: bool,
    in_function: bool,
) -> None:
    """Names of one scope and of those within it; only a scope around the line is seen from there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            for name, meaning in _imported(child):
                if visible:
                    imports[name] = meaning
                    bound.add(name)
                given.setdefault(name, []).append(Given(None, child.lineno, in_function))
        elif isinstance(child, _SCOPES):
            if not isinstance(child, ast.Lambda) and visible:
                bound.add(child.name)
            inside = child.lineno <= line <= (child.end_lineno or child.lineno)
            if isinstance(child, _FUNCTIONS):
                arguments = child.args
                for each in (
                    *arguments.posonlyargs,
                    *arguments.args,
                    *arguments.kwonlyargs,
                    arguments.vararg,
                    arguments.kwarg,
                ):
                    if each is not None:
                        given.setdefault(each.arg, []).append(Given(None, child.lineno, True))
                        if inside and visible:
                            bound.add(each.arg)
                            imports.pop(each.arg, None)
            # Names of a class are not seen from its methods.
            around = child.body if isinstance(child, ast.ClassDef) else []
            if any(_reaches(method, line) for method in around):
                own: set[str] = set()
                for part in around:
                    seen = _reaches(part, line)
                    scope = bound if seen else own
                    _collect(ast.Module([part], []), line, imports, scope, given, visible=seen, in_function=True)
            else:
                _collect(child, line, imports, bound, given, visible=visible and inside, in_function=True)
        else:
            if isinstance(child, ast.Assign):
                for target in child.targets:
                    _give(target, child.value, child.lineno, given, in_function)
            elif isinstance(child, (ast.AnnAssign, ast.NamedExpr)):
                _give(child.target, child.value, child.lineno, given, in_function)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                if visible:
                    bound.add(child.id)
                if not any(it.line == child.lineno for it in given.get(child.id, ())):
                    given.setdefault(child.id, []).append(Given(None, child.lineno, in_function))
            elif isinstance(child, ast.ExceptHandler) and child.name and visible:
                bound.add(child.name)
            _collect(child, line, imports, bound, given, visible=visible, in_function=in_function)


def _reaches(statement: ast.stmt, line: int) -> bool:
    """Whether a line is within a function."""
    return isinstance(statement, _FUNCTIONS) and statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _give(
    target: ast.expr, value: ast.expr | None, line: int, given: dict[str, list[Given]], in_function: bool
) -> None:
    if isinstance(target, ast.Name):
        given.setdefault(target.id, []).append(Given(value, line, in_function))


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
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                guessed.add("torch")
            elif _is_of_torch(node):
                guessed.add(node.value.value.id)  # type: ignore[attr-defined]
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    _give(target, node.value, line, given, in_function=False)
    for name in guessed - imports.keys():
        imports[name] = "torch"
    every = frozenset(bound | imports.keys())
    limited = limited_names(node for _, statement in known for node in ast.walk(statement))
    return Names(imports, every, False, {name: tuple(all_of) for name, all_of in given.items()}, every, limited)


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
            (it.asname, it.name) if it.asname else (it.name.partition(".")[0], it.name.partition(".")[0])
            for it in node.names
        ]
    if node.level:
        return [(it.asname or it.name, f".{node.module or ''}.{it.name}") for it in node.names if it.name != "*"]
    return [(it.asname or it.name, f"{node.module}.{it.name}") for it in node.names if it.name != "*"]
