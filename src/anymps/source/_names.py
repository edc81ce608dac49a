"""What names refer to at a line: read from the whole file, or from the lines that a recording has."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from anymps.source._nodes import name_of, names_in
from anymps.source._statements import SCOPES, imported, own_nodes

BUILTINS = frozenset(dir(builtins))
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
    nodes = tuple(ast.walk(tree))
    around = [node for node in nodes if isinstance(node, SCOPES) and node.lineno <= line <= (node.end_lineno or 0)]
    imports: dict[str, str] = {}
    bound: set[str] = set()
    for scope in (tree, *around):
        if isinstance(scope, ast.ClassDef) and scope is not around[-1]:
            continue  # names of a class are not seen from its methods
        for node in own_nodes(scope):
            name = getattr(node, "name", None) if not isinstance(node, ast.alias) else None
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
                imports.pop(name, None)
            if isinstance(name, str):
                bound.add(name)
            imports |= dict(imported(node))
    given = _given((node, getattr(node, "lineno", 0)) for node in nodes)
    if "torch" not in given and "*" in given and any(map(_is_in_torch, nodes)):  # it may come from there
        imports["torch"] = "torch"
    return Names(imports, frozenset(bound | imports.keys()), True, given, nodes)


def names_in_lines(statements: Iterable[tuple[int, ast.AST]]) -> Names:
    """What single lines of a file tell: a name that one of them reads is bound, and torch is known by its use."""
    lines = [(node, line) for line, statement in statements for node in ast.walk(statement)]
    nodes = tuple(node for node, _ in lines)
    imports = {name: meaning for node in nodes for name, meaning in imported(node)}
    for node in nodes:
        owner = node.value if isinstance(node, ast.Attribute) else None
        root = owner.value if isinstance(owner, ast.Attribute) else None
        if isinstance(root, ast.Name) and (name_of(owner), name_of(node)) in _OF_TORCH:  # no other module has these
            imports.setdefault(root.id, "torch")
        elif isinstance(owner, ast.Name) and owner.id == "torch":
            imports.setdefault("torch", "torch")
    bound = names_in(*nodes) | {node.arg for node in nodes if isinstance(node, ast.arg)} | imports.keys()
    return Names(imports, bound, False, _given(lines), nodes)


def _given(nodes: Iterable[tuple[ast.AST, int]]) -> dict[str, list[Given]]:
    """All values that names are given, with the lines, by nodes of which the outer ones come first."""
    given: dict[str, list[Given]] = {}
    plain: set[ast.AST] = set()
    for node, line in nodes:
        found: list[tuple[str, ast.expr | None]] = [(name, None) for name, _ in imported(node)]
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = [(target.id, node.value) for target in targets if isinstance(target, ast.Name)]
            plain.update(targets)
        elif isinstance(node, ast.arg):
            found = [(node.arg, None)]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in plain:
            found = [(node.id, None)]
        for name, value in found:
            given.setdefault(name, []).append(Given(value, line))
    return given


def _is_in_torch(node: ast.AST) -> bool:
    """`torch.ones`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
