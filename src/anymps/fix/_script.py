"""A script's text and its statements, with edits that leave everything else as it stands."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from anymps._errors import UsageError

CallChange = Callable[[cst.Call], cst.Call | None]
"""Gives a call anew, or None to leave it."""


@dataclass(frozen=True)
class Script:
    """The text of a Python file; `encoding` is how it is written, line ends are those of the file."""

    path: Path
    text: str
    encoding: str

    @classmethod
    def read(cls, path: Path) -> Script:
        """Read a file. Raises UsageError, in one line, for one that is no text or no Python that libcst can read."""
        try:
            data = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            script = cls(path, data.decode(encoding), encoding)
            cst.parse_module(script.text)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {_words(error)}") from None
        except cst.ParserSyntaxError as error:
            raise UsageError(f"{path}, line {error.raw_line}, is no Python that libcst can read") from None
        return script

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.text.encode(self.encoding)

    def line(self, number: int) -> str:
        """A line without its end; empty where there is none."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def with_line(self, number: int, old: str, new: str) -> Script | None:
        """The script with `new` for the code `old` of a line; None if that line does not hold it once."""
        lines = self.text.splitlines(keepends=True)
        if not (0 < number <= len(lines)) or lines[number - 1].count(old) != 1:
            return None
        lines[number - 1] = lines[number - 1].replace(old, new)
        return self.with_text("".join(lines))

    def with_calls(self, number: int, change: CallChange) -> Script | None:
        """The script with calls of the statement at a line changed; None if `change` leaves all of them."""
        wrapper = MetadataWrapper(cst.parse_module(self.text))
        rewriter = _Rewriter(number, change)
        module = wrapper.visit(rewriter)
        return self.with_text(module.code) if rewriter.changed else None

    def has_global(self, name: str) -> bool:
        """Whether the module gives a name a value outside of functions and classes."""
        for statement in ast.parse(self.text).body:
            for node in ast.walk(statement):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                    break
                if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                    return True
        return False

    def with_line_below_imports(self, code: str) -> Script | None:
        """The script with a line of code below the imports at its top."""
        imports = [it for it in ast.parse(self.text).body if isinstance(it, (ast.Import, ast.ImportFrom))]
        if not imports:
            return None
        lines = self.text.splitlines(keepends=True)
        last = imports[-1].end_lineno or imports[-1].lineno
        end = "\r\n" if lines[last - 1].endswith("\r\n") else "\n"
        lines.insert(last, f"{end}{code}{end}")
        return self.with_text("".join(lines))

    def with_text(self, text: str) -> Script | None:
        """The script with another text; None if that is no Python."""
        try:
            cst.parse_module(text)
        except cst.ParserSyntaxError:
            return None
        return Script(self.path, text, self.encoding)


class _Rewriter(cst.CSTTransformer):
    """Changes the calls of the innermost statement that a line is in; a block's statement is its head alone."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, line: int, change: CallChange) -> None:
        super().__init__()
        self._line = line
        self._change = change
        self._within = 0
        self.changed = False

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        self._within += self._holds(self.get_metadata(PositionProvider, node))
        return True

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        self._within -= self._holds(self.get_metadata(PositionProvider, original_node))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Within the statement; in the head of a block, where the call stands on the line itself."""
        place = self.get_metadata(PositionProvider, original_node)
        if self._within or self._holds(place):
            new = self._change(updated_node)
            if new is not None:
                self.changed = True
                return new
        return updated_node

    def _holds(self, place: CodeRange) -> bool:
        return place.start.line <= self._line <= place.end.line


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).partition("\n")[0]
