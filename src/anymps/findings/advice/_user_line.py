"""The user's line, parsed: what it does with a value that it reads from the device, and how to do without the read."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from anymps.findings.edits import place_at
from anymps.record import Site
from anymps.source import Code, Place, Rewritten, Splice, last_name, name_of, names_in, without_comment

_READING_METHODS = ("item", "tolist", "cpu", "numpy")
_READING_FUNCTIONS = ("float", "int", "bool")
_DECIDING = (ast.If, ast.While, ast.For, ast.Assert)
_TRANSPARENT = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Attribute, ast.Call, ast.Subscript)
_TAKING_TENSORS = ("append", "extend", "log", "log_dict")
"""Methods that keep what they are given: of a list, and of a Lightning module."""

_PASS = Code("pass", "", "", ast.Pass())


@dataclass(frozen=True)
class UserLine:
    """A source line: `code` without its comment, and `parsed`, of `pass` where it is only a part of a statement."""

    code: str
    parsed: Code

    @classmethod
    def of(cls, source: str) -> UserLine:
        """Read a line as it was recorded. One line of several may be half a statement."""
        code = without_comment(source)
        return cls(code, Code.of(code) or _PASS)

    @classmethod
    def at(cls, site: Site) -> UserLine:
        """The whole statement at a line, where the recording holds it; else the line."""
        place = place_at(site)
        return cls.of(site.source) if place is None else cls(place.code.text, place.code)

    @property
    def statement(self) -> ast.stmt:
        """The statement."""
        return self.parsed.statement

    @property
    def saves(self) -> bool:
        """Whether the line writes a checkpoint: `torch.save(x)`, `save_all({"model": model.state_dict()})`."""
        calls = self.parsed.calls
        of_state = any(last_name(call) == "state_dict" for call in calls)
        return any(self._text(call.func) == "torch.save" for call in calls) or (
            of_state and any(last_name(call).startswith("save") for call in calls)
        )

    @property
    def reads_gradient(self) -> bool:
        """Whether it has `parameter.grad`."""
        return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in self.parsed.nodes)

    @property
    def appends_to(self) -> str:
        """The list of `losses.append(...)` and `losses += [...]`, empty if the line is none."""
        return self._list_of("append") or self._added(to_a_list=True)

    @property
    def extends(self) -> str:
        """The list of `predictions.extend(...)`, empty if the line is none."""
        return self._list_of("extend")

    def _list_of(self, method: str) -> str:
        call = self.statement.value if isinstance(self.statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method:
            return self._text(call.func.value)
        return ""

    @property
    def adds_to(self) -> str:
        """The target of `total += ...`, empty if the line is none, or adds to a list or to an item of an array."""
        return self._added(to_a_list=False)

    def _added(self, *, to_a_list: bool) -> str:
        if (
            isinstance(self.statement, ast.AugAssign)
            and isinstance(self.statement.op, ast.Add)
            and isinstance(self.statement.value, ast.List) is to_a_list
        ):
            target = self.statement.target
            return self._text(target) if _is_name_or_named_item(target) else ""
        return ""

    @property
    def without_read(self) -> str:
        """The line with `loss.detach()` for each `loss.item()`, the empty text where a number is needed.

        What is added up becomes a new tensor each time, as other names may hold the one before.

        One is needed as an index, as a part of a text, and as an argument of most calls.
        """
        return self.parsed.spliced(self.kept) if self.kept else ""

    @property
    def read(self) -> list[ast.expr]:
        """The tensors that the line reads."""
        return [tensor for _, tensor in _reads(self.statement)]

    @property
    def kept(self) -> list[Splice]:
        """What makes of each value that the line reads the tensor itself."""
        if isinstance(self.statement, _DECIDING):
            return []
        reads = _reads(self.statement)
        several = len(reads) > 1 and not all(isinstance(call.func, ast.Attribute) for call, _ in reads)
        if not reads or several or not all(_may_be_tensor(call, self.parsed.parents) for call, _ in reads):
            return []
        return [*self._anew(), *(Splice(*self.parsed.span(call), self._detached(tensor)) for call, tensor in reads)]

    def _anew(self) -> list[Splice]:
        """What makes `total = total + x` of `total += x`, which would change the tensor that `total` is by then."""
        statement = self.statement
        if not isinstance(statement, ast.AugAssign) or not self.adds_to:
            return []
        (start, end), after = self.parsed.span(statement.value), self.parsed.span(statement.target)[1]
        operator = after + self.parsed.text[after:start].index("+=")
        if not _is_looser_than_sum(statement.value) or "(" in self.parsed.text[operator:start]:
            return [Splice(operator, operator + 2, f"= {self.adds_to} +")]
        return [Splice(operator, start, f"= {self.adds_to} + ("), Splice(end, end, ")")]

    def _detached(self, tensor: ast.expr) -> str:
        kept = self._text(tensor)
        if isinstance(tensor, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)):
            kept = f"({kept})"
        compares = any(isinstance(node, ast.Compare) for node in ast.walk(tensor))
        return kept if compares or kept.endswith(".detach()") else f"{kept}.detach()"

    @property
    def needs_size(self) -> bool:
        """Whether a read is an index or a bound of a slice: `x[: n.item()]`."""
        slices = (node.slice for node in ast.walk(self.statement) if isinstance(node, ast.Subscript))
        return any(_reads(part) for part in slices)

    @property
    def assigns(self) -> tuple[str, ast.expr] | None:
        """The target and the value of `target = value`."""
        if isinstance(self.statement, ast.Assign) and len(self.statement.targets) == 1:
            return self._text(self.statement.targets[0]), self.statement.value
        return None

    @property
    def fills(self) -> str:
        """The tensor of `losses[i] = loss`, empty if the line is none, or calls what may copy the value."""
        target = self.statement.targets[0] if isinstance(self.statement, ast.Assign) else None
        calls = any(last_name(call) != "detach" for call in self.parsed.calls)
        return self._text(target.value) if isinstance(target, ast.Subscript) and not calls else ""

    @property
    def keeps_any(self) -> bool:
        """Whether the line assigns to names or to an item by a text: an array would not take a tensor on mps."""
        target = self.statement.targets[0] if isinstance(self.statement, ast.Assign) else None
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        return all(map(_is_name_or_named_item, parts))

    def _text(self, node: ast.expr) -> str:
        return self.parsed.source(node)


def _is_looser_than_sum(node: ast.expr) -> bool:
    """Whether an expression takes parentheses after a `+`."""
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, (ast.Mult, ast.MatMult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow))
    return isinstance(node, (ast.BoolOp, ast.Compare, ast.IfExp))


def _is_name_or_named_item(node: ast.expr | None) -> bool:
    if isinstance(node, (ast.Name, ast.Attribute)):
        return True
    key = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def given_to_environment(node: ast.AST) -> frozenset[str] | None:
    """The names in what is given to `env.step(...)`; None for what is no such call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
        return None
    if "env" not in name_of(node.func.value).lower():
        return None
    return names_in(*node.args, *node.keywords)


def without_read(place: Place) -> Rewritten | None:
    """The statement with tensors in the place of the values that it reads."""
    kept = UserLine(place.code.text, place.code).kept
    return Rewritten(tuple(kept)) if kept else None


def collected(place: Place) -> Rewritten | None:
    """`found.append(x.detach())` for `found.extend(x.cpu())`."""
    line = UserLine(place.code.text, place.code)
    call = line.statement.value if isinstance(line.statement, ast.Expr) else None
    if not line.kept or not line.extends or not isinstance(call, ast.Call):
        return None
    end = place.code.span(call.func)[1]
    return Rewritten((Splice(end - len("extend"), end, "append"), *line.kept))


def every_10(place: Place) -> Rewritten | None:
    """The statement in each tenth round, by the loop's own counter."""
    if (
        not place.counter
        or place.code.is_head
        or "\n" in place.code.text
        or not isinstance(place.code.statement, ast.Expr)
    ):
        return None
    return Rewritten((Splice(0, 0, f"if {place.counter} % 10 == 0: "),))


def _reads(node: ast.AST) -> list[tuple[ast.Call, ast.expr]]:
    """The outermost calls that read a value, each with the tensor that it reads."""
    if isinstance(node, ast.Call):
        tensor = _read_by(node)
        if tensor is not None:
            return [(node, _tensor_of(tensor))]
    return [read for child in ast.iter_child_nodes(node) for read in _reads(child)]


def _may_be_tensor(place: ast.AST, around: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether what stands around an expression takes a tensor as well as a number: arithmetic, a list, a dictionary."""
    node = place
    while not isinstance(node, ast.stmt):
        parent = around.get(node)  # none within an f-string, whose parts have no places in the text
        if isinstance(parent, ast.Call) and node is not parent.func:
            kept = isinstance(parent.func, ast.Attribute) and parent.func.attr in _TAKING_TENSORS
            return kept and isinstance(around[parent], ast.Expr)
        if isinstance(parent, ast.Subscript) and node is parent.slice:
            return False
        if not isinstance(parent, (*_TRANSPARENT, ast.stmt)):
            return False
        node = parent
    return True


def _tensor_of(node: ast.expr) -> ast.expr:
    """What `loss.detach().cpu().numpy()` and the like read; what reads nothing as it is."""
    while isinstance(node, ast.Call) and (tensor := _read_by(node)) is not None:
        node = tensor
    return node


def _read_by(call: ast.Call) -> ast.expr | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READING_METHODS and not call.args:
        return call.func.value
    if isinstance(call.func, ast.Name) and call.func.id in _READING_FUNCTIONS and len(call.args) == 1:
        return call.args[0]
    return None
