"""The text of one statement, or of the head of a block, as a syntax tree whose parts are found in the text again."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from anymps.source._files import NO_PYTHON, line_starts
from anymps.source._nodes import names_in
from anymps.source._statements import BLOCKS

# What makes a statement of a head of a block, and of a decorator: text before it, and after it.
_FRAMES = (("", ""), ("", " pass"), ("if 0: pass\n", " pass"), ("", "\ndef _(): pass"))
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_READABLE = 240  # characters
_LAST_COMMA = re.compile(r",\s*([)\]}])")


class Splice(NamedTuple):
    """New text for a part of a code, by offsets in characters."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Code:
    """`text` of a statement without its margin and comment; `before` and `after` make it parse."""

    text: str
    before: str
    after: str
    statement: ast.stmt

    @classmethod
    def of(cls, text: str) -> Code | None:
        """Read a text; None where it is no single statement, such as a line of a call over several."""
        text = text.strip()
        for before, after in _FRAMES:
            if (after == " pass" and not text.endswith(":")) or (before and not text.startswith("elif")):
                continue
            if after.startswith("\n") and not text.startswith("@"):
                continue
            try:
                body = ast.parse(before + text + after).body
            except NO_PYTHON:
                continue
            if len(body) == 1:
                inner = body[0].orelse[0] if before and isinstance(body[0], ast.If) else body[0]
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Tuple) and text.endswith(","):
                    return None  # an argument of a call: `model.parameters(),`
                return cls(text, before, after, inner)
        return None

    @property
    def is_head(self) -> bool:
        """Whether it is the head of a block, whose body stands elsewhere."""
        return bool(self.after)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the text, the outer ones first; not those that only complete it."""
        return tuple(self._walk(self.statement))

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """What each node lies in."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def _walk(self, node: ast.AST) -> Iterator[ast.AST]:
        yield node
        if isinstance(node, ast.JoinedStr):
            return  # up to Python 3.11 its parts do not know their places
        for name, value in ast.iter_fields(node):
            if node is self.statement and self.is_head and name in BLOCKS:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node stands in the text: offsets in characters."""
        whole = self.before + self.text + self.after
        first, last = _offset(whole, node, "lineno", "col_offset"), _offset(whole, node, "end_lineno", "end_col_offset")
        return first - len(self.before), last - len(self.before)

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def spliced(self, splices: Iterable[Splice]) -> str:
        """The text with its parts replaced."""
        return spliced(self.text, splices)

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in it, without attributes."""
        return names_in(*(node for node in self.nodes if isinstance(node, (ast.Name, ast.JoinedStr))))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls in it, the outer ones first."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """A text with parts replaced; what is put at one place comes in the order given."""
    for _, splice in sorted(enumerate(splices), key=lambda numbered: (-numbered[1].start, -numbered[0])):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


def _offset(text: str, node: ast.AST, line: str, column: str) -> int:
    row, place = int(getattr(node, line)), int(getattr(node, column))
    start = line_starts(text)[row - 1]
    return start + (place if text.isascii() else len(text[start:].encode()[:place].decode()))


def in_one_line(text: str) -> str:
    """Code over several lines as one, without comments.

    Empty where it is several statements, where a text in it has lines, and where it would be too long for a sentence.
    """
    whole = Code.of(text)
    if whole is None:
        return ""
    words: list[tokenize.TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if "\n" in token.string.strip("\r\n"):
                return ""
            if token.type not in _LAYOUT:
                words.append(token)
    except (tokenize.TokenError, SyntaxError):
        return ""
    line = ""
    for before, word in zip([None, *words], words, strict=False):
        if before is not None and before.end[0] == word.start[0]:
            line += " " * (word.start[1] - before.end[1])
        elif before is not None and before.string not in _OPENING and word.string not in _CLOSING:
            line += " "
        line += word.string
    for shorter in (_LAST_COMMA.sub(r"\1", line), line):
        code = Code.of(shorter)
        if code is not None and ast.dump(code.statement) == ast.dump(whole.statement):
            return shorter if len(shorter) <= _READABLE else ""
    return ""
