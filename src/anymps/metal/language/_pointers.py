"""Pointers and references that do not say in which address space their memory is.

Only the innermost is checked: `device T*& x`, a reference to a pointer, is in the kernels of MLX, and runs on Macs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anymps.metal.language._tree import SPACES, Node, Tree
from anymps.metal.translation import SPACES as QUALIFIERS
from anymps.metal.translation import Refused, Token, closing, closing_angle

_UNSAID = frozenset({"auto", "decltype", "typename", "operator"})
_DECLARED = frozenset({"VAR_DECL", "PARM_DECL", "FIELD_DECL", "TYPEDEF_DECL", "TYPE_ALIAS_DECL"})
_FUNCTIONS = frozenset({"FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE"})
_CASTS = frozenset({"CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR", "CXX_CONST_CAST_EXPR"})
_SIGNS = {"*": "pointer", "&": "reference"}
_OPEN = frozenset({"(", "[", "{"})


def refused_pointers(tree: Tree) -> Iterator[Refused]:
    """Each `*` and `&` of a declaration or a cast whose type names no address space."""
    seen: set[int] = set()
    for node in tree.nodes:
        for sign in _bare_signs(tree, node):
            if sign.start not in seen:
                seen.add(sign.start)
                yield Refused(f"{_SIGNS[sign.text]} type must have explicit address space qualifier", sign.start)


def _bare_signs(tree: Tree, node: Node) -> list[Token]:
    if node.kind in _DECLARED:
        kind = node.cursor.type
        if node.kind in ("TYPEDEF_DECL", "TYPE_ALIAS_DECL"):
            kind = node.cursor.underlying_typedef_type
        if node.kind == "TYPE_ALIAS_DECL":
            start, end = node.at, node.end
        else:
            start, end = node.start, node.at
    elif node.kind in _FUNCTIONS:
        kind, start, end = node.cursor.result_type, node.start, node.at
    elif node.kind in _CASTS:
        kind, start, end = node.cursor.type, *_written(tree, node)
    else:
        return []
    layers = _layers(kind)
    if not layers or layers[-1]:
        return []
    words = tree.before(start, end)
    if node.kind in _FUNCTIONS:
        words = _behind_template(words)
    signs = _signs(words)
    if len(signs) < len(layers) or any(word.text in _UNSAID for word in words):
        return []  # a typedef's, or what follows from elsewhere
    index, sign = signs[0]
    return [] if any(word.text in QUALIFIERS for word in words[:index]) else [sign]


def _layers(kind: Any) -> list[bool]:
    """For each pointer of a type, from the outermost in, whether it names an address space."""
    from clang.cindex import TypeKind

    layers = []
    while True:
        if kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.DEPENDENTSIZEDARRAY):
            kind = kind.element_type
        elif kind.kind in (TypeKind.ELABORATED, TypeKind.TYPEDEF):
            kind = kind.get_canonical()
        elif kind.kind in (TypeKind.POINTER, TypeKind.LVALUEREFERENCE):
            kind = kind.get_pointee()
            if kind.kind in (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO):
                return []
            layers.append(kind.get_address_space() in SPACES)
        else:
            return layers


def _written(tree: Tree, node: Node) -> tuple[int, int]:
    """Where the type of a cast is written."""
    index = tree.at(node.start)
    if node.kind == "CSTYLE_CAST_EXPR":
        return tree.tokens[index].end, tree.tokens[closing(tree.tokens, index)].start
    close = closing_angle(tree.tokens, index + 1)
    return tree.tokens[index + 1].end, tree.tokens[close].start


def _behind_template(words: list[Token]) -> list[Token]:
    while len(words) > 1 and words[0].text == "template" and words[1].text == "<":
        close = closing_angle(words, 1)
        if close == 1:
            break
        words = words[close + 1 :]
    return words


def _signs(words: list[Token]) -> list[tuple[int, Token]]:
    """The `*` and `&` of a declaration that stand in no brackets, each with its index. Before a comma is another's."""
    found: list[tuple[int, Token]] = []
    index = 0
    while index < len(words):
        text = words[index].text
        if text in _OPEN:
            index = closing(words, index)
        elif text == "<":
            index = max(index, closing_angle(words, index))
        elif text == ",":
            found.clear()
        elif text in _SIGNS:
            found.append((index, words[index]))
        index += 1
    return found
