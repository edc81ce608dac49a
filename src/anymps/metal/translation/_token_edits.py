"""What single tokens become in C++: address spaces, attributes, literals, swizzles and vectors of other widths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anymps.metal.translation._brackets import SPACES, closing, is_attribute, split_commas
from anymps.metal.translation._statements import ASSIGNMENTS
from anymps.metal.translation._structure import Structure
from anymps.metal.translation._tokens import Edit, Token, blank

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_PLACES = {letter: str("xyzw".index(letter)) for letter in "xyzw"} | {
    letter: str("rgba".index(letter)) for letter in "rgba"
}
_SPECIFIERS = frozenset({"const", "static", "constexpr", "inline", "volatile", "coherent", *(SPACES - {"constant"})})
_LONG_VECTOR = re.compile(r"(?:bool|u?(?:char|short|int|long)|half|bfloat|float)[34]")  # a list can be shorter
_VECTOR = re.compile(r"(?:packed_|simd_|vector_)?(?:bool|u?(?:char|short|int|long)|half|b?float)[234](?:x[234])?|vec")
_FLOATING = re.compile(r"(?!0[xX])(?:\d*\.\d*|\d+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+")


def token_edits(text: str, tokens: list[Token], structure: Structure) -> list[Edit]:
    """What a token alone tells."""
    edits: list[Edit] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "name":
            made, index = _name_edits(text, tokens, index, structure)
            edits += made
        elif token.kind == "number":
            literal = _literal(token.text)
            if literal != token.text:
                edits.append(Edit(token.start, token.end, literal))
        elif token.text in (".", "->") and _is_swizzle(tokens, index, structure):
            edits.append(_swizzle(tokens, index))
        elif token.text == "{" and tokens[index - 1].text == "=":
            edits += _filled_array(text, tokens, index)
        elif is_attribute(tokens, index):
            close = closing(tokens, index)
            edits.append(_attribute(text, tokens[index : close + 1]))
            index = close
        index += 1
    return edits


def _name_edits(text: str, tokens: list[Token], index: int, structure: Structure) -> tuple[Iterable[Edit], int]:
    """What a name becomes, and the last token that belongs to it."""
    token = tokens[index]
    following = tokens[index + 1] if index + 1 < len(tokens) else token
    if token.text in SPACES:
        bare = token.start in structure.of_constructors  # no constructor can be const
        return [blank(text, token) if bare else _address_space(text, tokens, index)], index
    if token.text == "__attribute__" and (size := _vector_in_front(tokens, index)):
        close = closing(tokens, index + 1)
        element = tokens[close + 1]
        vector = Edit(element.start, element.end, f"::metal::vec<{element.text}, {size}>")
        return [blank(text, token.start, tokens[close].end), vector], close + 1
    if token.text == "volatile" and _is_of_vector(tokens, index):
        return [blank(text, token)], index  # C++ has no operations on such an object of a class
    if token.text == "coherent":
        return _coherent(text, tokens, index), index
    if _LONG_VECTOR.fullmatch(token.text):
        return _short_list(tokens, index), index
    if token.text == "ext_vector_type" and following.text == "(":
        return [Edit(token.start, following.end, f"vector_size({_wide_element(tokens, index)}")], index
    if token.text.strip("_") == "noinline" and _is_gnu_attribute(tokens, index):
        return [blank(text, token)], index  # the checker sees into what is inlined alone
    return [], index


def _is_of_vector(tokens: list[Token], index: int) -> bool:
    """Whether `volatile` stands beside the name of a type of vectors or matrices."""
    before = tokens[index - 1].text if index else ""
    following = (token.text for token in tokens[index + 1 :] if token.text not in _SPECIFIERS | {"constant"})
    return any(_VECTOR.fullmatch(word) for word in (before, next(following, "")))


def _swizzle(tokens: list[Token], index: int) -> Edit:
    """`.xyz` as what takes these elements, or as their place where they are assigned to."""
    names = tokens[index + 1]
    after = tokens[index + 2].text if index + 2 < len(tokens) else ""
    how = "place" if after in ASSIGNMENTS else "take"
    places = ", ".join(_PLACES[letter] for letter in names.text)
    return Edit(names.start, names.end, f"template {how}<{places}>()")


def _attribute(text: str, tokens: list[Token]) -> Edit:
    """An attribute goes, but for that of a kernel, on one line."""
    start, end = tokens[0].start, tokens[-1].end
    if "kernel" in [token.text for token in tokens[:-1]] and "\n" not in text[start:end]:
        return Edit(start, end, "kernel")
    return blank(text, start, end)


def _wide_element(tokens: list[Token], index: int) -> str:
    """The bytes that one element adds to a vector wider than Metal's own, for `typedef T name __attribute__(...)`."""
    start = index
    while start > 0 and tokens[start - 1].text not in (";", "}", "{", "typedef", "="):
        start -= 1
    return f"sizeof({tokens[start].text}) * "


def _vector_in_front(tokens: list[Token], index: int) -> str:
    """The number of elements where `__attribute__((ext_vector_type(4)))` stands before a type; else empty."""
    words = [token.text.strip("_") for token in tokens[index + 1 : index + 9]]
    if len(words) < 8 or [*words[:4], *words[5:8]] != ["(", "(", "ext_vector_type", "(", ")", ")", ")"]:
        return ""
    named = tokens[index + 9].kind == "name" if index + 9 < len(tokens) else False
    return words[4] if named and words[4] in ("2", "3", "4") else ""


def _is_gnu_attribute(tokens: list[Token], index: int) -> bool:
    """Whether a word stands by itself in `__attribute__((...))`."""
    while index > 2 and tokens[index - 1].text == ",":
        index -= 2
    return index > 2 and [token.text for token in tokens[index - 3 : index]] == ["__attribute__", "(", "("]


def _address_space(text: str, tokens: list[Token], index: int) -> Edit:
    token = tokens[index]
    if token.text != "constant":
        return blank(text, token)
    return blank(text, token) if _is_const_already(tokens, index) else Edit(token.start, token.end, "const   ")


def _is_const_already(tokens: list[Token], index: int) -> bool:
    """Whether `const` stands among the specifiers around a token."""
    for step in (-1, 1):
        at = index + step
        while 0 <= at < len(tokens) and tokens[at].text in _SPECIFIERS:
            if tokens[at].text == "const":
                return True
            at += step
    return False


def _literal(text: str) -> str:
    match = _FLOATING.match(text)
    if match is None or (match.end() == len(text) and text.isdigit()):
        return text
    number, suffix = match.group(), text[match.end() :]
    return number + {"": "f", "h": "_h", "H": "_h", "bf": "_bf", "BF": "_bf", "F": "f", "f": "f"}.get(suffix, suffix)


def _is_swizzle(tokens: list[Token], index: int, structure: Structure) -> bool:
    if index + 1 >= len(tokens) or tokens[index + 1].kind != "name":
        return False
    name = tokens[index + 1].text
    if _SWIZZLE.fullmatch(name) is None or name in structure.members:
        return False
    return index + 2 >= len(tokens) or tokens[index + 2].text != "("


def _coherent(text: str, tokens: list[Token], index: int) -> list[Edit]:
    """Without `coherent` or `coherent(system)`, which say who sees what is written; a name like others stays."""
    following = [token.text for token in tokens[index + 1 : index + 4]]
    if following[:1] == ["("] and following[2:] == [")"] and following[1] in ("device", "system", "threadgroup"):
        return [blank(text, tokens[index].start, tokens[index + 3].end)]
    names = bool(tokens[index + 1 : index + 2]) and tokens[index + 1].kind == "name"
    return [blank(text, tokens[index])] if names else []


def _short_list(tokens: list[Token], index: int) -> Iterable[Edit]:
    """`uint4 v = {a, b, c};`: what the list lacks is zero, as of an array. `uint4(a, b, c)` stays wrong."""
    if [token.text for token in tokens[index + 2 : index + 4]] != ["=", "{"]:
        return
    close = closing(tokens, index + 3)
    parts = split_commas(tokens[index + 4 : close])
    if 1 < len(parts) < int(tokens[index].text[-1]) and all(part[0].text != "{" for part in parts):
        opening = tokens[index + 3]
        yield Edit(opening.start, opening.end, f"::anymps_vectors::listed<{tokens[index].text}>(")
        yield Edit(tokens[close].start, tokens[close].end, ")")


def _filled_array(text: str, tokens: list[Token], index: int) -> Iterable[Edit]:
    """`float a[N] = {[0 ... N - 1] = x};`, which clang has from C: a loop does it."""
    close = closing(tokens, index)
    if [token.text for token in tokens[index + 1 : index + 4]] != ["[", "0", "..."] or tokens[index - 2].text != "]":
        return
    end = closing(tokens, index + 1)
    opening = next((at for at in range(index - 2, 0, -1) if tokens[at].text == "["), 1)
    if tokens[end + 1].text != "=" or len(split_commas(tokens[index + 1 : close])) != 1:
        return
    loop = "{}; for (int anymps_i = 0; anymps_i <= ("
    kept = text.count("\n", tokens[index].start, tokens[index + 3].end) * "\n"
    yield Edit(tokens[index].start, tokens[index + 3].end, loop + kept)
    yield Edit(tokens[end].start, tokens[end].end, f"); ++anymps_i) {tokens[opening - 1].text}[anymps_i]")
    yield blank(text, tokens[close])


def erased(tokens: Iterable[Token]) -> str:
    """Tokens as C++ text without address spaces and attributes."""
    tokens = list(tokens)
    words: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if is_attribute(tokens, index):
            index = closing(tokens, index) + 1
            continue
        if token.text == "constant":
            if words[-1:] != ["const"] and tokens[index + 1 : index + 2] and tokens[index + 1].text != "const":
                words.append("const")
        elif token.kind == "number":
            words.append(_literal(token.text))
        elif token.text not in SPACES:
            words.append(token.text)
        index += 1
    return " ".join(words)
