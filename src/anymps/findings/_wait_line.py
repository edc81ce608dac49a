"""What the user's line does with a value that it reads from the device, and the same line without the read."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass

_READING_METHODS = ("item", "tolist", "cpu", "numpy")
_READING_FUNCTIONS = ("float", "int", "bool")


@dataclass(frozen=True)
class UserLine:
    """A source line: `code` without its comment, and `statement` where it is a whole one (`if x:` counts as one).

    Places in the statement are those in `parsed`.
    """

    code: str
    statement: ast.stmt | None
    parsed: str = ""

    @classmethod
    def of(cls, source: str) -> UserLine:
        """Read a line as it was recorded. One line of several may be half a statement."""
        code = without_comment(source)
        for whole in (code, f"{code.removeprefix('el')} pass" if code.endswith(":") else ""):
            try:
                body = ast.parse(whole).body
            except (SyntaxError, ValueError):
                continue
            if len(body) == 1:
                return cls(code, body[0], whole)
        return cls(code, None)

    @property
    def test(self) -> ast.expr | None:
        """What an `if`, `while` or `assert` of this line decides by."""
        return self.statement.test if isinstance(self.statement, (ast.If, ast.While, ast.Assert)) else None

    @property
    def appends_to(self) -> str:
        """The list of `losses.append(...)`, empty if the line is none."""
        call = self.statement.value if isinstance(self.statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            return self._text(call.func.value)
        return ""

    @property
    def adds_to(self) -> str:
        """The target of `total += ...`, empty if the line is none."""
        if isinstance(self.statement, ast.AugAssign) and isinstance(self.statement.op, ast.Add):
            return self._text(self.statement.target)
        return ""

    @property
    def without_read(self) -> str:
        """The line with `loss.detach()` for `loss.item()`, the empty text if there is not just one read in it."""
        reads = [] if self.statement is None else _reads(self.statement)
        if len(reads) != 1 or isinstance(self.statement, (ast.If, ast.While)):
            return ""
        ((call, tensor),) = reads
        kept = self._text(tensor)
        if isinstance(tensor, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)):
            kept = f"({kept})"
        if not any(isinstance(node, ast.Compare) for node in ast.walk(tensor)) and not kept.endswith(".detach()"):
            kept = f"{kept}.detach()"
        code = self.code.encode()
        return (code[: call.col_offset] + kept.encode() + code[call.end_col_offset :]).decode()

    def compares(self) -> tuple[str, str] | None:
        """The names in `if loss < best:`, where both sides are names or attributes."""
        test = self.test
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            return None
        sides = (test.left, *test.comparators)
        if len(sides) != 2 or not all(isinstance(side, (ast.Name, ast.Attribute)) for side in sides):
            return None
        return self._text(sides[0]), self._text(sides[1])

    def _text(self, node: ast.expr) -> str:
        return self.parsed.encode()[node.col_offset : node.end_col_offset].decode()


def without_comment(source: str) -> str:
    """A source line without its comment, as far as it can be read."""
    code = source.strip()
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                return code[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        pass
    return code


def _reads(node: ast.AST) -> list[tuple[ast.Call, ast.expr]]:
    """The outermost calls that read a value, each with the tensor that it reads."""
    if isinstance(node, ast.Call):
        tensor = _read_by(node)
        if tensor is not None:
            while isinstance(tensor, ast.Call) and (inner := _read_by(tensor)) is not None:
                tensor = inner
            return [(node, tensor)]
    return [read for child in ast.iter_child_nodes(node) for read in _reads(child)]


def _read_by(call: ast.Call) -> ast.expr | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READING_METHODS and not call.args:
        return call.func.value
    if isinstance(call.func, ast.Name) and call.func.id in _READING_FUNCTIONS and len(call.args) == 1:
        return call.args[0]
    return None
