"""What a compiled kernel says about its arguments: enough to call it without any header.

Each module names its kernel and one node for each parameter, in order: buffers with their slot, access, type and, for
structs, every field; and positions, which are plain values here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anymps._errors import KernelsError
from anymps._text import printable

_NODE = re.compile(r"^!(\d+) = (?:distinct )?!\{(.*)\}$", re.MULTILINE)
_KERNEL = re.compile(r"^!air\.kernel = !\{!(\d+)\}$", re.MULTILINE)
_ITEM = re.compile(
    r'!"((?:[^"\\]|\\[0-9A-Fa-f]{2})*)"|!(\d+)|\bi\d+ (-?\d+)|\bi1 (true|false)|ptr @("[^"]*"|[\w.$-]+)|null'
)
_SPACES = {1: "device", 2: "constant", 3: "threadgroup"}

_Item = str | int | tuple[str, int]  # a word, a number, or a reference to another node


@dataclass(frozen=True)
class StructField:
    """A field of a struct: where it lies, in bytes, and how many elements an array of it has (0: none).

    A field that is itself a struct has `fields`.
    """

    name: str
    type: str
    offset: int
    size: int
    length: int
    fields: tuple[StructField, ...] = ()

    @property
    def bytes(self) -> int:
        """All elements of it."""
        return self.size * max(self.length, 1)


@dataclass(frozen=True)
class BufferArgument:
    """A buffer that a kernel takes at `slot`. `size` is that of a single value (a reference); None for an array."""

    name: str
    type: str
    slot: int
    space: str
    written: bool
    size: int | None
    element: int | None
    fields: tuple[StructField, ...]


@dataclass(frozen=True)
class PositionArgument:
    """A value that tells a thread where it is, such as ``thread_position_in_grid``."""

    name: str
    type: str
    attribute: str


@dataclass(frozen=True)
class Signature:
    """The name of a kernel in its module, its parameters in order, and how many threads a group of it may have."""

    function: str
    parameters: tuple[BufferArgument | PositionArgument, ...]
    max_threads: int

    @property
    def buffers(self) -> tuple[BufferArgument, ...]:
        """Those that a caller binds."""
        return tuple(one for one in self.parameters if isinstance(one, BufferArgument))

    @property
    def positions(self) -> tuple[PositionArgument, ...]:
        """Those that the launch gives."""
        return tuple(one for one in self.parameters if isinstance(one, PositionArgument))


def read_signature(text: str) -> Signature:
    """The signature of the kernel in a module's text. Raises KernelsError if it cannot be read."""
    nodes = {int(number): list(_items(body)) for number, body in _NODE.findall(text)}
    kernel = _KERNEL.search(text)
    try:
        if kernel is None:
            raise ValueError("it names no kernel")
        function, _, arguments, *attributes = nodes[int(kernel[1])]
        assert isinstance(function, str) and isinstance(arguments, tuple)
        parameters = tuple(_parameter(nodes, nodes[number]) for _, number in _references(nodes[arguments[1]]))
        return Signature(function, parameters, _most_threads(nodes, attributes))
    except (ValueError, KeyError, AssertionError, IndexError) as error:
        raise KernelsError(
            f"the metadata of a compiled kernel cannot be read ({error or type(error).__name__})"
        ) from None


def _most_threads(nodes: dict[int, list[_Item]], attributes: list[_Item]) -> int:
    """What the kernel's own attribute allows; 1024, as on every Apple GPU, where it has none."""
    for reference in attributes:
        words = nodes[reference[1]] if isinstance(reference, tuple) else [reference]
        if "air.max_work_group_size" in words:
            limit = words[words.index("air.max_work_group_size") + 1]
            if isinstance(limit, int):
                return limit
    return 1024


def _items(body: str) -> Iterator[_Item]:
    for match in _ITEM.finditer(body):
        word, reference, number, truth, function = match.groups()
        if word is not None:
            yield printable(re.sub(r"\\([0-9A-Fa-f]{2})", lambda hexadecimal: chr(int(hexadecimal[1], 16)), word))
        elif reference is not None:
            yield ("node", int(reference))
        elif number is not None:
            yield int(number)
        elif truth is not None:
            yield int(truth == "true")
        elif function is not None:
            yield function.strip('"')


def _references(node: list[_Item]) -> list[tuple[str, int]]:
    return [item for item in node if isinstance(item, tuple)]


def _parameter(nodes: dict[int, list[_Item]], node: list[_Item]) -> BufferArgument | PositionArgument:
    kind = node[1]
    assert isinstance(kind, str)
    values = {item: node[at + 1] for at, item in enumerate(node[:-1]) if isinstance(item, str)}
    name, type_ = values.get("air.arg_name", ""), values.get("air.arg_type_name", "")
    assert isinstance(name, str) and isinstance(type_, str)
    if kind == "air.indirect_buffer":
        raise ValueError("it takes a table of addresses, which nothing fills here")
    if kind != "air.buffer":
        return PositionArgument(name, type_, kind.removeprefix("air."))
    slot, space = values["air.location_index"], values["air.address_space"]
    size, element = values.get("air.buffer_size"), values.get("air.arg_type_size")
    struct = values.get("air.struct_type_info")
    assert isinstance(slot, int) and isinstance(space, int)
    return BufferArgument(
        name,
        type_,
        slot,
        _SPACES.get(space, "thread"),
        any(word in node for word in ("air.write", "air.read_write")),
        size if isinstance(size, int) else None,
        element if isinstance(element, int) else None,
        _fields(nodes, nodes[struct[1]]) if isinstance(struct, tuple) else (),
    )


def _fields(nodes: dict[int, list[_Item]], node: list[_Item]) -> tuple[StructField, ...]:
    found = []
    at = 0
    while at < len(node):
        inner: tuple[StructField, ...] = ()
        if node[at] == "air.struct_type_info":
            reference = node[at + 1]
            assert isinstance(reference, tuple)
            inner = _fields(nodes, nodes[reference[1]])
            at += 2
        offset, size, length, type_, name = node[at : at + 5]
        assert isinstance(offset, int) and isinstance(size, int) and isinstance(length, int)
        assert isinstance(type_, str) and isinstance(name, str)
        at += 5
        found.append(StructField(name, type_, offset, size, length, inner))
    return tuple(found)
