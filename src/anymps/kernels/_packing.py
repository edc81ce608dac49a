"""Python values as the bytes that a compiled kernel reads, by the types and field names that it describes itself."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from anymps.kernels._metadata import BufferArgument, StructField

_CODES = {"char": "b", "uchar": "B", "bool": "?", "short": "h", "ushort": "H", "int": "i", "uint": "I"}
_CODES |= {"long": "q", "ulong": "Q", "float": "f", "half": "e", "size_t": "Q"}
_TYPE = re.compile(r"(?:packed_)?([a-z_]+?)([234]?)(?:_t)?")


def pack(argument: BufferArgument, value: Any) -> bytes:
    """The bytes of a number, a sequence of numbers, or a struct given as a mapping of field names.

    Raises TypeError for a type or a field that the kernel does not describe, and for a field that is missing.
    """
    if argument.fields:
        size = argument.size if argument.size is not None else max(one.offset + one.bytes for one in argument.fields)
        return _struct(argument.type, argument.fields, value, size)
    data = _elements(argument.name, argument.type, value)
    if argument.size is not None and len(data) < argument.size:
        data += bytes(argument.size - len(data))  # a vector of three has the room of four
    return data


def _struct(name: str, fields: Sequence[StructField], value: Any, size: int) -> bytes:
    value = _by_name(name, fields, value)
    data = bytearray(size)
    for one in fields:
        given = value[one.name]
        if not one.fields:
            packed = _elements(one.name, one.type, given)
        elif one.length:
            packed = b"".join(_struct(one.type, one.fields, item, one.size) for item in given)
        else:
            packed = _struct(one.type, one.fields, given, one.size)
        if len(packed) > one.bytes:
            raise TypeError(f"{name}.{one.name} has room for {one.bytes} bytes, and {len(packed)} were given")
        data[one.offset : one.offset + len(packed)] = packed
    return bytes(data)


def _by_name(name: str, fields: Sequence[StructField], value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        if len(fields) != 1:
            raise TypeError(f"{name} is a struct: pass it as a dict of {', '.join(one.name for one in fields)}")
        return {fields[0].name: value}  # an array in a struct of its own
    known = {one.name for one in fields}
    for problem, names in (("has no field", value.keys() - known), ("needs the field", known - value.keys())):
        if names:
            raise TypeError(f"{name} {problem} {min(names)}: it has {', '.join(one.name for one in fields)}")
    return value


def _elements(name: str, type_: str, value: Any) -> bytes:
    match = _TYPE.fullmatch(type_)
    base = match[1] if match else type_
    items = list(value) if isinstance(value, (Sequence, bytes, bytearray)) else [value]
    if type_ in ("float2", "half2"):  # complex numbers are pairs
        items = [part for item in items for part in ((item.real, item.imag) if isinstance(item, complex) else (item,))]
    try:
        if base == "bfloat":
            return b"".join(_bfloat(float(item)) for item in items)
        code = _CODES.get(base)
        if code is None:
            raise TypeError(f"{name} is of type {type_}, which cannot be made from a number")
        number = float if code in "fe" else int
        return struct.pack(f"<{len(items)}{code}", *(number(item) for item in items))
    except (struct.error, ValueError, OverflowError) as error:
        raise TypeError(f"{name} is of type {type_}, and {value!r} does not fit: {error}") from None


def _bfloat(value: float) -> bytes:
    """Rounds to nearest even."""
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    if word & 0x7FFFFFFF <= 0x7F800000:
        word += 0x7FFF + (word >> 16 & 1)
    return struct.pack("<H", word >> 16 & 0xFFFF)
