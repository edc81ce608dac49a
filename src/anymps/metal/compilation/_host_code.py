"""Refuses what Metal lacks and C++ compilers accept: host code, host files, and inline assembly.

A shader's text may come from anywhere. It is refused here before a C++ compiler sees it. The compiler refuses names
that macros build (`POISONED`), and the check of the compiled file refuses the rest (`_elf.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anymps.metal._shim import SHIM
from anymps.metal.translation import Edit, Refused, Token, apply, closing, names_a_class, tokenize

_ASSEMBLER = frozenset({"asm", "__asm", "__asm__"})
_ASKS = frozenset({"__has_include", "__has_include_next", "__has_embed"})
POISONED = f"#pragma GCC poison {' '.join(sorted(_ASSEMBLER | _ASKS))}"
"""A line behind which no source may have these words, however its macros make them."""

_ATTRIBUTES = frozenset(
    {
        *("aligned", "always_inline", "const", "deprecated", "ext_vector_type", "flatten", "hot", "cold", "may_alias"),
        *("maybe_unused", "noinline", "nodebug", "nonnull", "noreturn", "optnone", "overloadable", "packed", "pure"),
        *("unused", "vector_size", "warn_unused_result", "annotate", "convergent", "diagnose_if", "enable_if"),
    }
)
_VENDORS = frozenset({"gnu", "__gnu__"})
_PRAGMAS = re.compile(
    r"\s*(?:once|unroll|nounroll|unused|mark|region|endregion|METAL|clang|STDC|anymps|message|GCC\s+(?:unroll|ivdep|diagnostic))\b|\s*$"
)
_DIRECTIVE = re.compile(r"^[ \t\f\v]*(?P<mark>\#|%:)[ \t\f\v]*(?P<name>\w*)[ \t\f\v]*(?P<rest>[^\n]*)", re.MULTILINE)
_NAMED = re.compile(r'(?:<(?P<angle>[^>\n]*)>|"(?P<quote>[^"\n]*)")\s*$')
_COMMENT = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|(?P<kept>(?:u8|[uUL])?R\"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\"|\"(?:[^\"\\\n]|\\.)*\""
    r"|'(?:[^'\\\n]|\\.)+'|\w+|[^\w])",
    re.DOTALL,
)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")


def refused_host_code(text: str, torch_headers: Path) -> Refused | None:
    """The first thing in a source that would reach this machine beside the compiler's own work; None if there is none.

    `torch_headers` is the folder that has `c10/metal`.
    """
    found = [*_directives(text, torch_headers), *_words(tokenize(text))]
    flat = _SPLICE.sub("", text)
    if flat != text:  # words may be cut in two; where they stand is no longer known
        found += [Refused(one.text, 0) for one in _words(tokenize(flat))]
    return min(found, key=lambda one: one.offset, default=None)


def without_foreign_includes(text: str, torch_headers: Path) -> str:
    """The source with an `#error` in the place of each `#include` of a file that is not Metal's.

    Between `#if` and `#endif` it may never be reached, as in headers that other languages share.
    """
    edits = []
    for line in _lines(text):
        if (absent := _absent(line, torch_headers)) is not None:
            ends = "\n" * text.count("\n", line.start, line.end)
            edits.append(Edit(line.start, line.end, f"#error {absent.text}{ends}"))
    return apply(text, edits).text if edits else text


@dataclass(frozen=True)
class _Line:
    """A line of the preprocessor: its sign, its name, what follows; where it stands; whether within an `#if`."""

    mark: str
    name: str
    rest: str
    start: int
    argument: int
    end: int
    conditional: bool


def _lines(text: str) -> Iterator[_Line]:
    """Lines of the preprocessor, found as it finds them: lines are joined first, and comments are spaces."""
    kept, places = [], []
    for match in re.finditer(r"(?s)\\[ \t]*\r?\n|.", text):
        if match.end() - match.start() == 1:
            kept.append(match.group())
            places.append(match.start())
    joined = "".join(kept)
    bare = _COMMENT.sub(lambda match: match["kept"] or re.sub(r"[^\n]", " ", match.group()), joined)
    places.append(len(text))
    depth = 0
    for match in _DIRECTIVE.finditer(bare):
        depth += match["name"].startswith("if") - (match["name"] == "endif")
        start, argument, end = places[match.start("mark")], places[match.start("rest")], places[match.end()]
        yield _Line(match["mark"], match["name"], match["rest"], start, argument, end, depth > 0)


def _absent(line: _Line, torch_headers: Path) -> Refused | None:
    """What is said of an `#include` of a file that is not there for shaders."""
    named = _NAMED.match(line.rest)
    if line.name not in ("include", "import") or named is None:
        return None
    wanted = named["angle"] or named["quote"] or ""
    return None if _is_ours(wanted, torch_headers) else Refused(f"{wanted}: No such file or directory", line.argument)


def _directives(text: str, torch_headers: Path) -> Iterator[Refused]:
    for line in _lines(text):
        name, rest, at = line.name, line.rest, line.start
        if line.mark == "%:":
            yield Refused("a digraph begins a line of the preprocessor", at)
        elif name in ("include", "import", "include_next", "embed", "include_alias"):
            absent = _absent(line, torch_headers)
            if name not in ("include", "import") or _NAMED.match(rest) is None:
                yield Refused(f"#{name} does not name a header of Metal's", at)
            elif absent is not None and not line.conditional:
                yield absent
        elif name == "pragma" and _PRAGMAS.match(rest) is None:
            yield Refused(f"#pragma {rest.strip()} is not one of Metal's", at)
        elif name in ("ident", "sccs", "assert", "unassert"):
            yield Refused(f"invalid preprocessing directive #{name}", at)


def _is_ours(name: str, torch_headers: Path) -> bool:
    if re.fullmatch(r"c10/metal/\w+\.h", name):
        return (torch_headers / name).is_file()
    if re.fullmatch(
        r"metal_\w+|MetalPerformancePrimitives/\w+\.h", name
    ):  # those that are not here: features are named
        return True
    return re.fullmatch(r"\w+|simd/simd\.h", name) is not None and (SHIM / name).is_file()


def _words(tokens: Sequence[Token]) -> Iterator[Refused]:
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else token
        if token.kind == "punct" and following.start == token.end and _is_digraph(tokens, index):
            yield Refused("digraphs are not supported", token.start)
        if token.kind != "name":
            continue
        if token.text in _ASSEMBLER:
            yield Refused("inline assembly is not supported", token.start)
        elif token.text in _ASKS:
            yield Refused(f"{token.text} asks for files of this machine", token.start)
        elif token.text == "extern" and following.kind == "string" and not names_a_class(tokens, index):
            yield Refused("a language linkage specification is not allowed", token.start)
        elif token.text in ("__attribute__", "__attribute") and following.text == "(":
            close = closing(list(tokens), index + 1)
            yield from _attributes(tokens[index + 2 : close])
        elif token.text in _VENDORS and following.text in (":", "::"):  # [[gnu::name]] and [[using gnu: name, ...]]
            yield from (Refused(f"unknown attribute '{name.text}'", name.start) for name in _unknown(tokens, index + 1))
        elif token.text == "__declspec":
            yield Refused("__declspec is not supported", token.start)
        elif token.text == "_Pragma" and following.text == "(" and index + 2 < len(tokens):
            said = tokens[index + 2]
            if said.kind != "string" or _PRAGMAS.match(said.text[said.text.find('"') + 1 : -1]) is None:
                yield Refused("_Pragma is not one of Metal's", token.start)


def _is_digraph(tokens: Sequence[Token], index: int) -> bool:
    """Whether `%:`, `<:` or `:>` stands here. `<::` is `<` and `::`, unless `:` or `>` follows."""
    text = "".join(token.text for token in tokens[index : index + 3])[:4]
    if text.startswith("<::"):
        after = tokens[index + 2] if tokens[index + 1].text == "::" else tokens[index + 3]
        return after.text[:1] in (":", ">")
    return text.startswith(("%:", "<:", ":>"))


def _unknown(tokens: Sequence[Token], index: int) -> Iterator[Token]:
    """The attributes from here to the end of `[[...]]` that are not known."""
    depth = 0
    for token in tokens[index:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth < 0:
            return
        if depth == 0 and token.kind == "name" and token.text.strip("_") not in _ATTRIBUTES:
            yield token


def _attributes(inside: Sequence[Token]) -> Iterator[Refused]:
    depth = 0
    for index, token in enumerate(inside):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        first = index == 0 or inside[index - 1].text in ("(", ",")
        if depth == 1 and first and token.kind == "name" and token.text.strip("_") not in _ATTRIBUTES:
            yield Refused(f"unknown attribute '{token.text}'", token.start)
