"""The lexer of Metal source: tokens with their places, and edits that keep track of columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<include>(?m:^)[ \t]*\#[ \t]*(?:include|import|error|warning|line)\b[^\n]*)
  | (?P<linemark>(?m:^)\#[ \t]+\d[^\n]*)
  | (?P<comment>//(?:[^\\\n]|\\\n|\\.)*|/\*.*?(?:\*/|\Z))
  | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.]|'(?=\w))*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<join>\\\n)
  | (?P<newline>\n)
  | (?P<space>[ \t\r\f\v]+)
  | (?P<punct>::|->\*?|\+\+|--|<<=|>>=|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SKIPPED = frozenset({"comment", "join", "newline", "space"})


@dataclass(frozen=True)
class Token:
    """A word, number, string or sign of the source. `directive`: it stands in a line of the preprocessor's."""

    kind: str
    text: str
    start: int
    directive: bool

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.start + len(self.text)


def tokenize(text: str) -> list[Token]:
    """The tokens of a source, without comments and white space. Lines such as `#include` are one token each."""
    tokens = []
    directive = False
    at_start = True
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "mark":  # a group inside of a raw string
            kind = "string"
        if kind == "newline":
            directive, at_start = False, True
            continue
        if kind in _SKIPPED:
            continue
        if kind == "punct" and match.group() == "#" and at_start:
            directive = True
        at_start = False
        tokens.append(Token(kind, match.group(), match.start(), directive or kind in ("include", "linemark")))
    return tokens


@dataclass(frozen=True)
class Edit:
    """Text that takes the place of a part of the source. It has as many line ends as what it replaces."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Rewritten:
    """A source after its edits, with the way back from its columns to the source's."""

    text: str
    moves: dict[int, list[tuple[int, int]]]  # line: (column from which, by how much the source's columns are smaller)

    def source_column(self, line: int, column: int) -> int:
        """The column of the source (from 1) that became this column of that line (from 1)."""
        moves = self.moves.get(line)
        if not moves:
            return column
        index = bisect_right(moves, (column, 1 << 30)) - 1
        return max(1, column - moves[index][1]) if index >= 0 else column


def apply(text: str, edits: Iterable[Edit]) -> Rewritten:
    """Makes the edits, which must not overlap."""
    pieces: list[str] = []
    moves: dict[int, list[tuple[int, int]]] = {}
    at, line, moved = 0, 1, 0
    line_start = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at:
            continue  # within what another one has already replaced
        before = text[at : edit.start]
        pieces += (before, edit.text)
        newlines = before.count("\n")
        if newlines:
            line += newlines
            line_start = at + before.rfind("\n") + 1
            moved = 0
        gone = text[edit.start : edit.end]
        newlines = gone.count("\n")
        if newlines:
            line += newlines
            line_start = edit.start + gone.rfind("\n") + 1
            moved = 0
        elif len(gone) != len(edit.text):
            moved += len(edit.text) - len(gone)
            moves.setdefault(line, []).append((edit.end - line_start + moved + 1, moved))
        at = edit.end
    pieces.append(text[at:])
    return Rewritten("".join(pieces), moves)


def blank(text: str, token_or_start: Token | int, end: int | None = None) -> Edit:
    """Spaces in the place of a token or of a part of the source, with its line ends."""
    if isinstance(token_or_start, Token):
        start, end = token_or_start.start, token_or_start.end
    else:
        start = token_or_start
    return Edit(start, end or start, re.sub(r"[^\n]", " ", text[start:end]))
