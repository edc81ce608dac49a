"""What C++ has and Metal's language lacks: types, statements, storage classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from anymps.metal.language._tree import Node, Tree
from anymps.metal.translation import Refused, Token, closing, is_attribute

_FUNCTIONS = frozenset({"FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE", "CONSTRUCTOR", "DESTRUCTOR"})
_NEW = re.compile(r"'default (new|delete)' is not supported in C\+\+ for OpenCL")
_SIZE = "array size is not a constant expression"
_QUALIFIED = {  # what libclang says of an address space that is not behind a pointer: what Metal's compiler does
    "parameter may not be qualified with an address space": "parameter may not be qualified with an address space",
    "field may not be qualified with an address space": "field may not be qualified with an address space",
    "return type cannot be qualified with address space": "return type cannot be qualified with address space",
    "function scope variable cannot be declared in global address space": (
        "automatic variable qualified with an address space"
    ),
}
_UNSET = "variable in constant address space must be initialized"
_CHANGES = ("function parameter '", "read of non-const variable '")  # what such a size is made from


def refused_language(tree: Tree) -> Iterator[Refused]:
    """Every such thing in a shader."""
    yield from _words(tree)
    for said in tree.said:
        if match := _NEW.match(said.text):
            yield Refused(f"'{match[1]}' is not supported in Metal", said.offset)
        elif said.text == _SIZE and any(note.startswith(_CHANGES) for note in said.notes):
            bracket = tree.tokens[tree.at(said.offset) - 1]
            yield Refused("variable length arrays are not supported in Metal", bracket.start)
        elif said.text in _QUALIFIED:
            yield Refused(_QUALIFIED[said.text], said.offset)
        elif said.text == _UNSET and _is_bare(tree, said.offset):
            yield Refused(_UNSET, said.offset)
    for node in tree.nodes:
        if node.kind in ("GOTO_STMT", "INDIRECT_GOTO_STMT"):
            yield Refused("'goto' is not supported in Metal", node.start)
        elif node.kind == "VAR_DECL":
            yield from _variable(tree, node)
        elif node.kind == "CXX_METHOD" and node.cursor.is_virtual_method():
            yield Refused("virtual member functions are not supported in Metal", node.at)
        elif node.kind == "FUNCTION_DECL" and node.cursor.spelling == "main" and not tree.is_kernel(node.at):
            yield Refused("non-qualified function cannot be called 'main'", node.at)


def _is_bare(tree: Tree, name_at: int) -> bool:
    """Whether nothing follows a variable's name but its sizes: no value, and no attribute of a function constant."""
    index = tree.at(name_at)
    if tree.tokens[index - 1].text == "::":
        return False  # a member, which has its value in the class
    index += 1
    while tree.tokens[index].text == "[" and not is_attribute(tree.tokens, index):
        index = closing(tree.tokens, index) + 1
    return tree.tokens[index].text in (";", ",")


def _words(tree: Tree) -> Iterator[Refused]:
    """Types and storage that a word alone names: keywords, which can be nothing else."""
    tokens = tree.tokens
    for index, token in enumerate(tokens):
        if token.kind != "name":
            continue
        around = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text == "double":
            name = "long double" if index and tokens[index - 1].text == "long" else "double"
            start = tokens[index - 1].start if name == "long double" else token.start
            yield Refused(f"'{name}' is not supported in Metal", start)
        elif token.text == "long" and around == "long":
            unsigned = index > 0 and tokens[index - 1].text == "unsigned"
            start = tokens[index - 1].start if unsigned else token.start
            yield Refused(f"'{'unsigned ' if unsigned else ''}long long' is not supported in Metal", start)
        elif token.text == "thread_local":
            yield Refused("'thread_local' is not supported in Metal", token.start)
        elif token.text == "register" and (around[:1].isalpha() or around[:1] == "_"):
            yield Refused("Metal does not support the 'register' storage class specifier", token.start)


def _variable(tree: Tree, node: Node) -> Iterator[Refused]:
    from clang.cindex import CursorKind, StorageClass

    kind = node.cursor.type
    if tree.is_doubtful(node.start, node.at + 1):
        return
    parent = node.cursor.semantic_parent.kind
    if parent in (CursorKind.TRANSLATION_UNIT, CursorKind.NAMESPACE):
        if _space(kind) != 3 and not _is_function(tree, node.at) and not _is_template(tree, node):
            where = "extern" if node.cursor.storage_class == StorageClass.EXTERN else "program scope"
            yield Refused(f"{where} variable must reside in constant address space", node.at)
        return
    if node.inside is None:
        return  # a member
    if node.cursor.storage_class == StorageClass.STATIC:
        yield Refused("variables in function scope cannot be declared static", node.at)
        return
    if _space(kind) == 2 and node.inside is not None and node.inside.kind.name in _FUNCTIONS:
        name = node.inside.location.offset
        if not tree.is_kernel(name):
            yield Refused(
                "variables in the threadgroup address space cannot be declared in a non-qualified function", node.start
            )


def _is_function(tree: Tree, name_at: int) -> bool:
    """Whether it may be a function with a parameter whose type libclang does not know."""
    index = tree.at(name_at) + 1
    if tree.tokens[index].text != "(":
        return False
    return tree.is_doubtful(name_at, tree.tokens[closing(tree.tokens, index)].end)


def _space(kind: Any) -> int:
    """The address space of a variable's own memory."""
    from clang.cindex import TypeKind

    while kind.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.DEPENDENTSIZEDARRAY):
        kind = kind.element_type
    return int(kind.get_address_space())


def _is_template(tree: Tree, node: Node) -> bool:
    """Whether it is a variable template: whether Metal asks the same of these is not known."""
    words: list[Token] = tree.before(node.start, node.at)
    return any(word.text == "template" for word in words)
