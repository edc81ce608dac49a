"""A shader as libclang's syntax tree: C++ for OpenCL, where the space of memory is part of a pointer's type.

What libclang reads has the columns and lines of the text: Metal's own words are left out by blanks, not rewritten.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anymps.metal._shim import METAL_MACROS, SHIM
from anymps.metal.translation import Token, closing, is_attribute, tokenize

LIBRARY = Path(__file__).with_name("library.h")
SPACES = {1: "device", 2: "threadgroup", 3: "constant", 4: "thread"}  # as clang_getAddressSpace counts them
_FOLDER = "/anymps-metal"  # of files that are in memory alone
_MAIN = f"{_FOLDER}/program_source.cl"
_ARGUMENTS = (
    *("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-nostdinc", "-target", "x86_64-linux-gnu", "-w"),
    *("-ferror-limit=0", "-cl-single-precision-constant", "-Xclang", "-cl-ext=+all", "-fno-exceptions", "-fno-rtti"),
    *("-include", str(LIBRARY), f"-I{_FOLDER}", *METAL_MACROS),
)
_UNKNOWN = (
    *("unknown type name", "a type specifier", "no template named", "no type named", "use of undeclared identifier"),
    "expected",
)
_BESIDE = frozenset({"const", "volatile"})
_OTHERS = frozenset({"device", "constant", "threadgroup"})
_KINDS = (
    *("VAR_DECL", "PARM_DECL", "FIELD_DECL", "TYPEDEF_DECL", "TYPE_ALIAS_DECL", "FUNCTION_DECL", "CXX_METHOD"),
    *("FUNCTION_TEMPLATE", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION", "STRUCT_DECL", "CLASS_DECL"),
    *("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR", "CXX_CONST_CAST_EXPR"),
    *("GOTO_STMT", "INDIRECT_GOTO_STMT"),
)
_FUNCTIONS = (
    *("FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION"),
    "LAMBDA_EXPR",
)


class Unparsed(Exception):
    """libclang has given a shader up, as it does where it fails itself."""


@dataclass(frozen=True)
class Said:
    """An error of libclang in the shader's own text, with its notes."""

    offset: int
    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A declaration, cast or statement of the shader. `cursor` is libclang's; offsets are those of the text."""

    kind: str
    start: int
    end: int
    at: int  # a declaration's name
    cursor: Any
    inside: Any = None  # the function that it stands in, as a cursor


@functools.cache
def has_parser() -> bool:
    """Whether libclang is installed and can be loaded."""
    try:
        from clang.cindex import Index, LibclangError
    except ImportError:
        return False
    try:
        Index.create()
    except LibclangError:
        return False
    return True


class Tree:
    """The declarations, casts and statements of a shader, and what libclang said of it. Raises Unparsed."""

    def __init__(self, text: str, torch_headers: Path) -> None:
        self.text = text
        self._all = tokenize(text)
        self.tokens = [token for token in self._all if not token.directive]
        self._starts = [token.start for token in self.tokens]
        files = [(f"{_FOLDER}/{name}", "") for name in _headers()]
        files.append((_MAIN, self._readable()))
        options = 0x200  # what cannot be parsed is left out, not given up
        from clang.cindex import Index, TranslationUnitLoadError

        arguments = [*_ARGUMENTS, f"-I{torch_headers}"]
        try:
            self._unit = Index.create().parse(_MAIN, args=arguments, unsaved_files=files, options=options)
        except TranslationUnitLoadError:
            raise Unparsed from None
        self.said = list(self._errors())
        self._unknown = [one.offset for one in self.said if one.text.startswith(_UNKNOWN)]
        self.nodes = list(self._nodes())

    def at(self, offset: int) -> int:
        """The index of the first token that begins there or later."""
        return bisect_left(self._starts, offset)

    def before(self, start: int, end: int) -> list[Token]:
        """The tokens from one offset up to another."""
        return self.tokens[self.at(start) : self.at(end)]

    def is_doubtful(self, start: int, end: int) -> bool:
        """Whether libclang did not understand what stands there: a type that it knows not is an `int` to it."""
        return any(start <= offset < end for offset in self._unknown)

    def is_kernel(self, name_at: int) -> bool:
        """Whether the function whose name stands there is a kernel."""
        return _is_declared(self.tokens, self.at(name_at) - 1, "kernel")

    def attributes(self, name_at: int) -> dict[str, tuple[str, Token]]:
        """The attributes behind a parameter's name, each with its argument and the token of its own name."""
        found: dict[str, tuple[str, Token]] = {}
        index = self.at(name_at)
        while index < len(self.tokens) and self.tokens[index].text not in (",", ")", ";", "="):
            close = closing(self.tokens, index) if self.tokens[index].text in ("(", "[", "{") else index
            if is_attribute(self.tokens, index):
                inside = self.tokens[index + 2 : close - 1]
                if inside:
                    argument = " ".join(token.text for token in inside[2:-1])
                    found[inside[0].text] = (argument, inside[0])
            index = close + 1
        return found

    def _readable(self) -> str:
        """The text as C++ for OpenCL, with every character in its place."""
        letters = list(re.sub(r"[^\x00-\x7f]", "?", self.text))

        def blank(start: int, end: int) -> None:
            letters[start:end] = [letter if letter == "\n" else " " for letter in letters[start:end]]

        tokens = self._all
        index = 0
        while index < len(tokens):
            token = tokens[index]
            end = index
            if token.kind == "include" and "c10/metal/" not in token.text:
                blank(token.start, token.end)
            elif is_attribute(tokens, index) and not token.directive:
                end = closing(tokens, index)
                blank(token.start, tokens[end].end)
                # OpenCL has no templates of kernels.
                if tokens[index + 2].text == "kernel" and not _is_declared(tokens, index, "template"):
                    letters[token.start : token.start + len("kernel")] = "kernel"
            elif token.text == "kernel" and (token.directive or _is_declared(tokens, index, "template")):
                blank(token.start, token.end)
            elif token.text == "coherent" and index + 1 < len(tokens):
                if tokens[index + 1].text == "(":
                    end = closing(tokens, index + 1)
                blank(token.start, tokens[end].end)
            elif token.text == "thread" and self._is_beside_another(tokens, index):
                blank(token.start, token.end)
            index = end + 1
        return "".join(letters)

    def _is_beside_another(self, tokens: list[Token], index: int) -> bool:
        """`thread const device T* p[4]`: an array of pointers, and Metal's compiler takes the word."""
        index += 1
        while index < len(tokens) and tokens[index].text in _BESIDE:
            index += 1
        return index < len(tokens) and tokens[index].text in _OTHERS

    def _errors(self) -> Iterator[Said]:
        for one in self._unit.diagnostics:
            if one.severity >= 3 and one.location.file is not None and one.location.file.name == _MAIN:
                yield Said(one.location.offset, one.spelling, tuple(note.spelling for note in one.children))

    def _nodes(self) -> Iterator[Node]:
        kinds, functions = _kind_numbers(*_KINDS), _kind_numbers(*_FUNCTIONS)
        tops = (cursor for cursor in self._unit.cursor.get_children() if cursor.location.file is not None)
        waiting = [(cursor, None) for cursor in tops if cursor.location.file.name == _MAIN][::-1]
        while waiting:
            cursor, inside = waiting.pop()
            number = cursor._kind_id  # `kind` raises for one that the library has, and its Python does not know
            if number in kinds:
                extent, at = cursor.extent, cursor.location.offset
                yield Node(kinds[number], extent.start.offset, extent.end.offset, at, cursor, inside)
            if number in functions:
                inside = cursor
            waiting += [(child, inside) for child in cursor.get_children()][::-1]


def _is_declared(tokens: list[Token], index: int, word: str) -> bool:
    """Whether a word stands in a declaration, at `index` or before."""
    while index >= 0 and tokens[index].text not in (";", "{", "}"):
        if tokens[index].text == word:
            return True
        index -= 1
    return False


@functools.cache
def _kind_numbers(*names: str) -> dict[int, str]:
    from clang import cindex

    return {getattr(cindex.CursorKind, name).value: name for name in names}


@functools.cache
def _headers() -> tuple[str, ...]:
    """Metal's headers, which are empty here: what they declare is in `library.h`."""
    return tuple(
        path.relative_to(SHIM).as_posix()
        for path in sorted(SHIM.rglob("*"))
        if path.is_file() and path.parent.name != "msl"
    )
