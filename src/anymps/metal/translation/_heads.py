"""What the tokens of a declaration say before its body or its semicolon: names and parameters."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.metal.translation._brackets import closing, closing_angle, is_attribute, without_attributes
from anymps.metal.translation._tokens import Token


def declared_name(tokens: Sequence[Token]) -> str:
    """What a declaration without braces declares: the last name before a value, an array's size or parameters."""
    end = next((i for i, token in enumerate(tokens) if token.text in ("(", "=", "{", "[") and i), len(tokens))
    return next((token.text for token in reversed(tokens[:end]) if token.kind == "name"), "")


def makes(head: list[Token], name: str) -> bool:
    """Whether a declaration is of a constructor of the class of that name."""
    opening = parameters_at(head)
    before = [token.text for token in head[:opening]]
    return bool(opening) and name in before and "operator" not in before and before[-1] in (name, ">")


def class_name(tokens: list[Token]) -> str:
    rest = without_attributes(tokens)
    index = 0
    while index < len(rest) and rest[index].text in ("alignas", "__attribute__", "METAL_ALIGN"):
        index = closing(rest, index + 1) + 1
    return rest[index].text if index < len(rest) and rest[index].kind == "name" else ""


def parameters_at(head: list[Token]) -> int:
    """The index of the bracket that opens the parameters; 0 if there is none."""
    index = 0
    while index < len(head):
        text = head[index].text
        if is_attribute(head, index):
            index = closing(head, index) + 1
        elif text in ("__attribute__", "alignas", "decltype", "noexcept") and index + 1 < len(head):
            index = closing(head, index + 1) + 1
        elif text == "operator":
            index += 1
            while index < len(head) and head[index].text != "(":
                index += 1
            return index + 2 if [t.text for t in head[index : index + 3]] == ["(", ")", "("] else index
        elif text == "<":
            index = closing_angle(head, index) + 1
        elif text == "(":
            return index
        else:
            index += 1
    return 0


def template_parameter(tokens: list[Token]) -> str:
    """The name of a template's parameter, with dots for a pack; empty if it has none."""
    before = []
    for token in tokens:
        if token.text == "=":
            break
        before.append(token)
    for index in range(len(before) - 3):  # `void (*f)(float)`
        if [token.text for token in before[index : index + 2]] == ["(", "*"] and before[index + 3].text == ")":
            return before[index + 2].text
    names = [token.text for token in before if token.kind == "name"]
    if len(names) < 2:
        return ""
    return names[-1] + ("..." if any(token.text == "..." for token in before) else "")
