"""Brackets among the tokens of a source: where each closes, attributes in `[[ ]]`, and the parts between commas."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.metal.translation._tokens import Token

SPACES = frozenset({"device", "thread", "constant", "threadgroup", "threadgroup_imageblock", "ray_data", "object_data"})
CLASSES = frozenset({"struct", "class", "union"})
OPENING, _CLOSING = {"(": ")", "[": "]", "{": "}"}, frozenset(")]}")


def closing(tokens: list[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`, or the last index."""
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if tokens[index].kind != "punct":
            continue
        if text in OPENING:
            depth += 1
        elif text in _CLOSING:
            depth -= 1
            if depth == 0:
                return index
    return len(tokens) - 1


def closing_angle(tokens: list[Token], opening: int) -> int:
    """The index of the `>` for the `<` at `opening`, or `opening` if there is none. `>>` are two tokens here."""
    depth = 0
    index = opening
    while index < len(tokens):
        text = tokens[index].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        elif text in OPENING:
            index = closing(tokens, index)
        elif text == ";":
            break
        index += 1
    return opening


def is_attribute(tokens: list[Token], index: int) -> bool:
    """Whether `[[` stands at `index`."""
    return (
        tokens[index].text == "["
        and index + 1 < len(tokens)
        and tokens[index + 1].text == "["
        and tokens[index + 1].start == tokens[index].end
    )


def names_a_class(tokens: Sequence[Token], index: int) -> bool:
    """Whether `extern "C" struct A {` stands at `index`, where the first two words mean nothing."""
    words = [token.text for token in tokens[index + 1 : index + 5]]
    return len(words) == 4 and words[0] == '"C"' and words[1] in CLASSES and words[3] == "{"


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """The parts between commas that no bracket holds."""
    parts: list[list[Token]] = [[]]
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        end = index
        if text in OPENING:
            end = closing(tokens, index)
        elif text == "<":
            end = closing_angle(tokens, index)
        if text == ",":
            parts.append([])
        else:
            parts[-1] += tokens[index : end + 1]
        index = end + 1
    return [part for part in parts if part]


def top_level(tokens: list[Token]) -> list[str]:
    """The texts outside of brackets; of a pair of brackets the opening one alone."""
    texts = []
    index = 0
    while index < len(tokens):
        texts.append(tokens[index].text)
        if is_attribute(tokens, index):
            texts.pop()
        if tokens[index].text == "operator":
            index += 1
            while index < len(tokens) and tokens[index].text != "(":
                index += 1
            if [t.text for t in tokens[index : index + 3]] == ["(", ")", "("]:
                index += 2
            continue
        index = closing(tokens, index) + 1 if tokens[index].text in OPENING else index + 1
    return texts


def attributes_of(tokens: list[Token]) -> dict[str, str]:
    """Names of the attributes among tokens, with the texts of their arguments."""
    found = {}
    for index in range(len(tokens)):
        if not is_attribute(tokens, index):
            continue
        close = closing(tokens, index)
        for part in split_commas(tokens[index + 2 : close - 1]):
            inner = part[2:-1] if len(part) > 2 and part[1].text == "(" else []
            if inner and all(token.kind == "string" for token in inner):
                found[part[0].text] = "".join(token.text[1:-1] for token in inner)
            else:
                found[part[0].text] = " ".join(token.text for token in inner)
    return found


def without_attributes(tokens: list[Token]) -> list[Token]:
    rest = []
    index = 0
    while index < len(tokens):
        if is_attribute(tokens, index):
            index = closing(tokens, index) + 1
        else:
            rest.append(tokens[index])
            index += 1
    return rest
