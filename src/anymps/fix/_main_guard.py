"""`if __name__ == "__main__":` around what a script does at its end, so that its workers can import it."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from anymps.fix._script import Script

_GUARD = cst.parse_expression('__name__ == "__main__"')
_DEFINES = (cst.FunctionDef, cst.ClassDef)
_IMPORTS = (cst.Import, cst.ImportFrom)


def guarded_line(script: Script) -> int | None:
    """The line from which a script's end would be guarded: what comes after its last import, function and class.

    Functions of the script still find their globals, and workers the functions and classes that they are sent by name.
    None where there is a guard already, or nothing to guard.
    """
    wrapper = MetadataWrapper(cst.parse_module(script.text))
    body = wrapper.module.body
    start = _start(body)
    if start == len(body) or any(_is_guard(it) for it in body):
        return None
    return wrapper.resolve(PositionProvider)[body[start]].start.line


def with_guard(script: Script) -> Script | None:
    """The script with its end under the guard; None where `guarded_line` is."""
    if guarded_line(script) is None:
        return None
    module = cst.parse_module(script.text)
    start = _start(module.body)
    first = module.body[start]
    above = list(first.leading_lines)
    blank = next((at for at, line in enumerate(above) if line.comment is not None), len(above))
    inner = [first.with_changes(leading_lines=above[blank:]), *module.body[start + 1 :]]
    guard = cst.If(
        test=_GUARD,
        body=cst.IndentedBlock(body=inner),
        leading_lines=above[:blank] or ([] if start == 0 else [cst.EmptyLine(indent=False)]),
    )
    guard = cst.ensure_type(guard.visit(_BlankLines()), cst.If)
    return script.with_text(module.with_changes(body=[*module.body[:start], guard]).code)


class _BlankLines(cst.CSTTransformer):
    """Lines without anything stay so: those of a module would be indented in a block."""

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:
        return updated_node if updated_node.comment is not None else updated_node.with_changes(indent=False)


def _start(body: Sequence[cst.CSTNode]) -> int:
    last = [at for at, it in enumerate(body) if isinstance(it, _DEFINES) or _is_import(it)]
    return last[-1] + 1 if last else 0


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(isinstance(it, _IMPORTS) for it in statement.body)


def _is_guard(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.If) or not isinstance(statement.test, cst.Comparison):
        return False
    return "__name__" in {
        it.value
        for it in (statement.test.left, *(part.comparator for part in statement.test.comparisons))
        if isinstance(it, cst.Name)
    }
