"""A script's text and its statements, with edits that leave everything else unchanged."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from anymps._errors import UsageError
from anymps._text import first_line
from anymps.source import (
    Built,
    Edit,
    Guard,
    Insert,
    Place,
    build,
    guarded_line,
    line_end,
    line_starts,
    own_nodes,
    parsed,
    place_in_file,
    tree_of,
    with_guard,
)


@dataclass(frozen=True)
class Script:
    """The text of a Python file; `encoding` is how it is written, line ends are those of the file."""

    path: Path
    text: str
    encoding: str

    @classmethod
    def read(cls, path: Path) -> Script:
        """Read a file. Raises UsageError, in one line, for one that is no text or no Python."""
        try:
            data = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(encoding)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {_words(error)}") from None
        try:
            tree_of(text)
        except SyntaxError as error:
            line = f", line {error.lineno}," if error.lineno else ""  # of null bytes there is none
            raise UsageError(f"{path}{line} is not valid Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise UsageError(f"{path} is not valid Python: {_words(error)}") from None
        return cls(path, text, encoding)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.text.encode(self.encoding)

    @property
    def tree(self) -> ast.Module:
        """The file as Python reads it."""
        return tree_of(self.text)

    def place(self, number: int) -> Place | None:
        """The statement at a line."""
        return place_in_file(self.text, self.tree, number)

    def start_of(self, edit: Edit, number: int) -> int | None:
        """The line at which an edit at a line begins; None if it fits nothing there."""
        if isinstance(edit, Guard):
            return guarded_line(self.text)
        place = self.place(number)
        return place.line if place is not None and build(edit, place) is not None else None

    def edited(self, edit: Edit, number: int) -> tuple[Script, tuple[Insert, ...]] | None:
        """The script with an edit of the statement at a line, and what it needs besides; None if it fits nothing."""
        if isinstance(edit, Guard):
            text = with_guard(self.text)
            changed = None if text is None else self.with_text(text)
            return None if changed is None else (changed, ())
        place = self.place(number)
        built = None if place is None else build(edit, place)
        if place is None or built is None:
            return None
        changed = self._spliced(place, built)
        return None if changed is None else (changed, built.inserts)

    def with_inserts(self, inserts: tuple[Insert, ...], line: int) -> Script | None:
        """The script with lines below its imports above a line, those that it does not have."""
        changed = self
        for insert in dict.fromkeys(inserts):
            if changed.has_global(insert.name):
                continue
            found = changed.with_line_below_imports(insert.code, line)
            if found is None:
                return None
            changed = found
        return changed

    def has_global(self, name: str) -> bool:
        """Whether the module gives a name a value outside of functions and classes."""
        names = (node for node in own_nodes(self.tree) if isinstance(node, ast.Name))
        return any(node.id == name and isinstance(node.ctx, ast.Store) for node in names)

    def with_line_below_imports(self, code: str, line: int) -> Script | None:
        """The script with a line of code below the last import of the module above a line."""
        ends = [
            statement.end_lineno or statement.lineno
            for statement in self.tree.body
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and statement.lineno < line
        ]
        if not ends:
            return None
        starts = [*line_starts(self.text), len(self.text)]
        place = starts[ends[-1]]
        end = line_end(self.text[:place])
        before = "" if self.text[:place].endswith(("\n", "\r")) else end
        return self.with_text(f"{self.text[:place]}{before}{end}{code}{end}{self.text[place:]}")

    def with_text(self, text: str) -> Script | None:
        """The script with another text; None if that is no Python."""
        return None if parsed(text) is None else Script(self.path, text, self.encoding)

    def _spliced(self, place: Place, built: Built) -> Script | None:
        start = line_starts(self.text)[place.line - 1] + place.column - 1
        end = start + len(place.code.text)
        code = built.code if "\n" in place.code.text else self._in_margin(built.code, start, place.column - 1)
        return self.with_text(f"{self.text[:start]}{code}{self.text[end:]}")

    def _in_margin(self, code: str, start: int, width: int) -> str:
        """A statement with the margin of its line before each further line of it, in the file's own kind."""
        margin = self.text[start - width : start]
        step = "\t" if "\t" in margin else "    "
        end = line_end(self.text[:start], self.text)
        return code.replace("\n    ", f"\n{step}").replace("\n", f"{end}{margin}")


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or first_line(str(error))
