"""The statements of a kernel's body, as far as brackets and first words tell them, and loops in which threads meet.

Of those only `for (uint k = 0; k < n; k += 8)` is taken, where the start, the condition and the step follow from
constants, parameters and what else is the same for the whole group, and the body changes none of them. So the head can
be run once for all threads, and the body is cut as a kernel's is. Whatever else a loop is, its threads are fibers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from anymps.metal.translation._brackets import closing, closing_angle, split_commas
from anymps.metal.translation._tokens import Token

ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_CONTROL = frozenset({"if", "for", "while", "do", "switch", "return", "break", "continue", "goto", "else", "case"})
_BEFORE_TYPE = frozenset({"const", "constexpr", "volatile", "device", "constant", "thread", "threadgroup", "unsigned"})
_BEFORE_NAME = frozenset({"*", "&", "const", "device", "thread", "constant", "threadgroup"})
_SCALARS = "bool char uchar short ushort int uint long ulong half float bfloat"
_OTHERS = "unsigned size_t ptrdiff_t int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t"
TYPES = frozenset(
    {*_SCALARS.split(), *_OTHERS.split()}
    | {f"{name}{count}" for name in _SCALARS.split() for count in (2, 3, 4)}
    | {f"{name}{a}x{b}" for name in ("half", "float") for a in (2, 3, 4) for b in (2, 3, 4)}
)
"""Types whose values hold no address."""
_NOT_STATEMENTS = frozenset({"struct", "class", "union", "enum", "using", "typedef", "template", "static", "namespace"})
_LEAVES = frozenset({"return", "goto", "asm", "break", "continue"})


class NeedsFibers(Exception):
    """What a kernel has that a loop over the threads of a group cannot do."""


@dataclass(frozen=True)
class Statement:
    """One statement at the top of a body: its tokens from `first` up to and with `last`, and what it declares."""

    kind: str  # declaration, expression, control
    first: int
    last: int
    tokens: tuple[Token, ...]
    declared: tuple[str, ...] = ()
    plain: bool = True  # what it declares is a value: no array, no reference
    valued: bool = True  # each of them has a value from the start
    shared: bool = False  # threadgroup memory


def read_statements(code: list[Token], opening: int, end: int) -> list[Statement]:
    """The statements between the braces of a body. Raises NeedsFibers."""
    return list(_statements(code, opening + 1, end))


def changed_names(tokens: list[Token], whole: bool = False) -> set[str]:
    """Names that are assigned to, counted up or down, whose address is taken, or that a reference refers to.

    `whole`: those alone that are assigned to or counted as a whole, by their names.
    """
    changed: set[str] = set()
    for index, token in enumerate(tokens):
        if not whole and token.text in ("&", "&&") and _refers(tokens, index):
            end = next((i for i in range(index, len(tokens)) if tokens[i].text == ";"), len(tokens))
            changed.update(one.text for one in tokens[index + 2 : end] if one.kind == "name")
        if not whole and [one.text for one in tokens[index : index + 2]] == ["&", ")"]:  # `(thread int&)a`
            changed.update(one.text for one in tokens[index + 2 : index + 4] if one.kind == "name")
        if token.kind != "name":
            continue
        before = tokens[index - 1].text if index else ""
        if index and ends_type(tokens[index - 1]):
            continue  # its declaration
        taken = before == "&" and tokens[index - 2].kind == "punct" and index > 1
        if before in ("++", "--") or (taken and not whole):
            changed.add(token.text)
        after = index + 1
        while not whole and after < len(tokens) and tokens[after].text in ("[", "."):  # `a[i] = `, `a.x = `
            after = closing(tokens, after) + 1 if tokens[after].text == "[" else after + 2
        if after < len(tokens) and tokens[after].text in (*ASSIGNMENTS, "++", "--"):
            changed.add(token.text)
    return changed


def as_constants(tokens: Sequence[Token]) -> set[int]:
    """Before which tokens of a declaration `const` keeps what it declares as it is: a pointer, not what it leads to."""
    listed = list(tokens)
    index = next(i for i, token in enumerate(listed) if token.text not in _BEFORE_TYPE)
    index = _type_end(listed, index)
    places = set[int]()
    of_type = any(token.text in ("const", "constexpr") for token in listed[:index])
    for part in split_commas(listed[index:-1]):
        signs = list(takewhile(lambda token: token.text in _BEFORE_NAME, part))
        if not any(token.text == "*" for token in signs):
            places |= set() if of_type else {index}
            of_type = True
        elif not any(token.text == "const" for token in signs):
            places.add(listed.index(part[len(signs)]))
    return places


def _refers(tokens: list[Token], index: int) -> bool:
    """Whether the sign at `index` is that of `float& a = b`, whatever brackets `b` stands in."""
    if not 0 < index < len(tokens) - 2 or tokens[index + 1].kind != "name":
        return False
    before, after = tokens[index - 1].text, tokens[index + 2].text
    return after in ("=", "{") or (after == "(" and (before in TYPES or before == "auto"))


def ends_type(token: Token) -> bool:
    return token.text in (">", "*") or (token.kind == "name" and token.text not in _CONTROL)


def _statements(code: list[Token], index: int, end: int) -> Iterator[Statement]:
    while index < end:
        if code[index].text == ";":
            index += 1
            continue
        last = _last(code, index, end)
        tokens = code[index : last + 1]
        first = tokens[0].text
        if first in _NOT_STATEMENTS or (len(tokens) > 1 and tokens[1].text == ":"):
            raise NeedsFibers(first)
        if first in _CONTROL or first == "{":
            yield Statement("control", index, last, tuple(tokens))
        else:
            yield _declaration(index, last, tokens) or Statement("expression", index, last, tuple(tokens))
        index = last + 1


def _last(code: list[Token], index: int, end: int) -> int:
    """The index of the last token of the statement that begins at `index`."""
    text = code[index].text
    if text == "{":
        return closing(code, index)
    if text in ("for", "while", "if", "switch"):
        condition = index + 1
        if condition >= end or code[condition].text != "(":
            raise NeedsFibers(text)
        last = _last(code, closing(code, condition) + 1, end)
        if text == "if" and last + 1 < end and code[last + 1].text == "else":
            last = _last(code, last + 2, end)
        return last
    if text == "do":
        index = _last(code, index + 1, end) + 1
    while index < end and code[index].text != ";":
        index = closing(code, index) + 1 if code[index].text in ("(", "[", "{") else index + 1
    if index >= end:
        raise NeedsFibers(text)
    return index


def _declaration(first: int, last: int, tokens: list[Token]) -> Statement | None:
    """The statement as a declaration, or None if it is none."""
    index = 0
    shared = False
    while tokens[index].text in _BEFORE_TYPE:
        shared = shared or tokens[index].text == "threadgroup"
        index += 1
    index = _type_end(tokens, index)
    declared, plain, valued, pointer = [], True, True, False
    for part in split_commas(tokens[index:-1]):
        signs = [token.text for token in takewhile(lambda token: token.text in _BEFORE_NAME, part)]
        named = part[len(signs) :]
        after = named[1].text if len(named) > 1 else ""
        if not named or named[0].kind != "name" or after not in ("", "=", "[", "{", "("):
            return None
        pointer = pointer or "*" in signs
        plain = plain and "&" not in signs and after != "["
        valued = valued and after != ""
        declared.append(named[0].text)
    if not declared or index == 0:
        return None
    shared = shared and not pointer
    if shared and any(token.text in ("=", "{") for token in tokens):
        raise NeedsFibers(declared[0])  # each thread gives it its value
    return Statement("declaration", first, last, tuple(tokens), tuple(declared), plain, valued, shared)


def _type_end(tokens: list[Token], start: int) -> int:
    """Behind a type: one name, perhaps with `a::b` and `<...>`; another name behind it is what is declared."""
    index = start
    while index < len(tokens) and (tokens[index].kind == "name" or tokens[index].text == "::"):
        if index > start and tokens[index].kind == "name" and tokens[index - 1].text != "::":
            break
        index += 1
    if index < len(tokens) and tokens[index].text == "<" and closing_angle(tokens, index) > index:
        index = closing_angle(tokens, index) + 1
    return index


@dataclass(frozen=True)
class Loop:
    """A loop's counter, the statement that declares it, and the tokens of its parts as (first, last)."""

    name: str
    start: Statement
    condition: tuple[int, int]
    step: tuple[int, int]
    body: tuple[int, int]  # the braces, or what stands around the one statement

    def parts(self, code: list[Token]) -> list[list[Token]]:
        """The tokens behind the start's equals sign, of the condition, and of the step."""
        tokens = list(self.start.tokens)
        behind = next(i for i, token in enumerate(tokens) if token.text == "=") + 1
        return [tokens[behind:], *(code[first : last + 1] for first, last in (self.condition, self.step))]


def read_loop(code: list[Token], statement: Statement) -> Loop | None:
    """The parts of a `for` with one counter that its step alone changes, and that nothing leaves early; else None."""
    first = statement.first
    if code[first].text != "for" or code[first + 1].text != "(":
        return None
    end = closing(code, first + 1)
    stops = [i for i in range(first + 2, end) if code[i].text == ";"]
    if len(stops) != 2 or stops[0] + 1 == stops[1] or stops[1] + 1 == end:
        return None
    starts = read_statements(code, first + 1, stops[0] + 1)
    if len(starts) != 1 or starts[0].kind != "declaration" or len(starts[0].declared) != 1:
        return None
    start, name = starts[0], starts[0].declared[0]
    step = code[stops[1] + 1 : end]
    body = (end + 1, statement.last) if code[end + 1].text == "{" else (end, statement.last + 1)
    inner = code[body[0] + 1 : body[1]]
    if not (start.plain and start.valued and not start.shared and any(token.text == "=" for token in start.tokens)):
        return None
    if changed_names(step) != {name} or name in changed_names(inner) or _LEAVES & {token.text for token in inner}:
        return None
    return Loop(name, start, (stops[0] + 1, stops[1] - 1), (stops[1] + 1, end - 1), body)
