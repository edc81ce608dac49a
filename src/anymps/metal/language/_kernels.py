"""What a kernel may return and take: buffers, positions and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anymps.metal.language._conversions import type_words
from anymps.metal.language._tree import Node, Tree
from anymps.metal.translation import INDICES, MAX_BUFFERS, POSITIONS, Refused


def refused_kernels(tree: Tree) -> Iterator[Refused]:
    """What is wrong with the signatures of the kernels."""
    parameters: dict[int, list[Node]] = {}
    for node in tree.nodes:
        if node.kind == "PARM_DECL" and node.inside is not None:
            parameters.setdefault(node.inside.location.offset, []).append(node)
    for node in tree.nodes:
        if node.kind in ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD") and tree.is_kernel(node.at):
            yield from _kernel(tree, node, parameters.get(node.at, []))


def _kernel(tree: Tree, node: Node, parameters: list[Node]) -> Iterator[Refused]:
    from clang.cindex import TypeKind

    returned = node.cursor.result_type
    if node.kind == "CXX_METHOD":
        yield Refused("kernel function cannot be a member function", node.at)
    if returned.get_canonical().kind not in (TypeKind.VOID, TypeKind.AUTO, TypeKind.UNEXPOSED, TypeKind.INVALID):
        yield Refused(f"invalid return type {type_words(returned)} for kernel function", node.at)
    taken: set[int] = set()
    sizes: set[int] = set()
    if not node.cursor.is_definition():
        return  # PyTorch's headers declare kernels without attributes
    for parameter in parameters:
        attributes = tree.attributes(parameter.at)
        known = not tree.is_doubtful(parameter.start, parameter.at)
        kind = parameter.cursor.type
        if "buffer" in attributes:
            argument, word = attributes["buffer"]
            if argument.isdigit():
                yield from _buffer(int(argument), word.start, parameter.at, taken)
        name = next((attribute for attribute in attributes if attribute in POSITIONS or attribute in INDICES), "")
        if name and known:
            size = _size(kind)
            if size == 0 or (name in INDICES and size != 1) or size > 3:
                yield Refused(f"type {type_words(kind)} is not valid for attribute '{name}'", attributes[name][1].start)
            elif size > 0 and name in POSITIONS:
                sizes.add(size)
        elif known and not attributes and _is_number(kind):
            yield Refused(f"invalid type {type_words(kind)} for input declaration in a kernel function", parameter.at)
    if len(sizes) > 1:
        yield Refused(
            "expecting input declarations with either all scalar types or all vector types with the same number of "
            "elements",
            node.at,
        )


def _buffer(index: int, stated_at: int, parameter_at: int, taken: set[int]) -> Iterator[Refused]:
    """What is wrong with `[[buffer(index)]]`; `taken` are the indices of the parameters before, and gets this one."""
    if index >= MAX_BUFFERS:
        limit = MAX_BUFFERS - 1
        yield Refused(f"'buffer' attribute parameter is out of bounds: must be between 0 and {limit}", stated_at)
        return
    if index in taken:
        yield Refused(f"cannot reserve 'buffer' resource location at index {index}", parameter_at)
    taken.add(index)


def _size(kind: Any) -> int:
    """How many elements a position's type has; 0 if Metal takes none of it, -1 if it is not known here."""
    from clang.cindex import TypeKind

    kind = kind.get_canonical()
    if kind.kind in (TypeKind.UINT, TypeKind.USHORT):
        return 1
    if kind.kind == TypeKind.EXTVECTOR:
        return kind.element_count if kind.element_type.kind in (TypeKind.UINT, TypeKind.USHORT) else 0
    return -1 if kind.kind in (TypeKind.UNEXPOSED, TypeKind.INVALID, TypeKind.DEPENDENT, TypeKind.RECORD) else 0


def _is_number(kind: Any) -> bool:
    from clang.cindex import TypeKind

    numbers = (TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.FLOAT, TypeKind.HALF, TypeKind.BOOL)
    return kind.get_canonical().kind in numbers
