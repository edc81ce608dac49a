"""Packed rows: what each field of an entry and of an allocation is called, how wide it is, and what it may hold.

Everything else follows from these two tables: how rows are packed, which columns they become, and which numbers a
recording from elsewhere may hold. So everything that a reader accepts can be packed again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from anymps._errors import RecordingError

MOST: Final = 1 << 60
"""Of counts, bytes and times in ns (36 years)."""

_WHOLE: Final = (0, MOST)
_MOMENT: Final = (-MOST, MOST)
_ANY: Final = (-(1 << 63), (1 << 63) - 1)
_NUMBER: Final = (0, (1 << 32) - 1)  # of a row in another table, a step, a thread
_WORD: Final = (0, (1 << 8) - 1)  # of a vocabulary, which says more closely what it may be


class Field(NamedTuple):
    """One field: its column, its code for `struct`, and the least and the most that it may hold."""

    name: str
    code: str
    range: tuple[int, int]
    is_column: bool = True


class Packed:
    """Rows of one table as bytes, little endian and without gaps, filled up to `size`."""

    def __init__(self, table: str, spool: str, size: int, fields: tuple[Field, ...]) -> None:
        """`spool` is the table that holds them until they become rows."""
        columns = [field for field in fields if field.is_column]
        codes = "".join(field.code for field in fields)
        of_columns = "".join(
            field.code if field.is_column else f"{struct.calcsize(f'<{field.code}')}x" for field in fields
        )
        self.table = table
        self.spool = spool
        self.size: Final = size
        self.format: Final = f"<{codes}{_filling(codes, size)}"
        self.columns: Final = tuple(field.name for field in columns)
        self.ranges: Final[Mapping[str, tuple[int, int]]] = {field.name: field.range for field in fields}
        self._fields = fields
        self._struct = struct.Struct(self.format)
        self._rows = struct.Struct(f"<{of_columns}{_filling(of_columns, size)}")

    def pack(self, *values: int) -> bytes:
        """One row. Raises RecordingError for a number that its field does not hold."""
        try:
            return self._struct.pack(*values)
        except struct.error:
            for (name, _, (least, most), _), value in zip(self._fields, values, strict=True):
                if not least <= value <= most:
                    raise RecordingError(f"{name} {value} does not fit a recording: {least} to {most}") from None
            raise

    def check(self, chunk: bytes) -> None:
        """Raise RecordingError unless `chunk` is a whole number of rows."""
        if len(chunk) % self.size:
            raise RecordingError(
                f"packed {self.table} come in multiples of {self.size} bytes, this chunk has {len(chunk)}"
            )

    def iter_unpack(self, chunk: bytes) -> Iterator[tuple[Any, ...]]:
        """The rows of a chunk with all their fields."""
        return self._struct.iter_unpack(chunk)

    def iter_rows(self, chunk: bytes) -> Iterator[tuple[Any, ...]]:
        """The rows of a chunk as the table has them: `columns`."""
        return self._rows.iter_unpack(chunk)

    def iter_field(self, name: str, chunk: bytes) -> Iterator[int]:
        """One field of all rows of a chunk."""
        at, code = self._place(name)
        packed = struct.Struct(f"<{at}x{code}{_filling(f'{at}x{code}', self.size)}")
        return (value for (value,) in packed.iter_unpack(chunk))

    def bytes_of(self, name: str) -> range:
        """Where in a row the bytes of a field lie."""
        at, code = self._place(name)
        return range(at, at + struct.calcsize(f"<{code}"))

    def index(self, name: str) -> int:
        """The place of a field in a row."""
        return [field.name for field in self._fields].index(name)

    def _place(self, name: str) -> tuple[int, str]:
        index = self.index(name)
        before = "".join(field.code for field in self._fields[:index])
        return struct.calcsize(f"<{before}"), self._fields[index].code


def _filling(codes: str, size: int) -> str:
    left = size - struct.calcsize(f"<{codes}")
    return f"{left}x" if left else ""


ENTRY: Final = Packed(
    "entries",
    "spool",
    64,
    (
        Field("start_ns", "q", _MOMENT),
        Field("duration_ns", "q", _WHOLE),
        Field("moved_bytes", "q", _WHOLE),
        Field("sequence", "q", _ANY),  # two numbers of sites in one, or -1
        Field("signature", "I", _NUMBER),
        Field("module", "I", _NUMBER),
        Field("site", "I", _NUMBER),
        Field("step", "I", _NUMBER),
        Field("thread", "I", _NUMBER),
        Field("phase", "B", _WORD),
        Field("wait", "B", _WORD),
        Field("direction", "B", _WORD),
        Field("flags", "B", _WORD),
        Field("refusal", "I", _NUMBER, is_column=False),
        Field("delayed_us", "I", _NUMBER),
    ),
)
"""One entry. `refusal` is no column: a refusal is told its entry instead."""

ALLOCATION: Final = Packed(
    "allocations",
    "allocation_spool",
    96,
    (
        Field("id", "Q", _WHOLE),
        Field("born", "Q", _WHOLE),
        Field("died", "Q", _WHOLE),
        Field("born_ns", "q", _MOMENT),
        Field("died_ns", "q", _MOMENT),
        Field("bytes", "Q", _WHOLE),
        Field("requested", "Q", _WHOLE),
        Field("allocated", "Q", _WHOLE),
        Field("reserved", "Q", _WHOLE),
        Field("signature", "I", _NUMBER),
        Field("module", "I", _NUMBER),
        Field("site", "I", _NUMBER),
        Field("step", "I", _NUMBER),
        Field("died_step", "I", _NUMBER),
        Field("phase", "B", _WORD),
        Field("died_phase", "B", _WORD),
        Field("role", "B", _WORD),
    ),
)
"""One buffer, its columns in their order."""

RANGES: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    ENTRY.table: ENTRY.ranges,
    ALLOCATION.table: ALLOCATION.ranges,
    # What entries name by its number.
    **{table: {key: _NUMBER} for table, key in (("signatures", "id"), ("modules", "id"), ("sites", "id"))},
    "steps": {"step": ENTRY.ranges["step"]},
    "refusals": {"id": ENTRY.ranges["refusal"]},
}
"""By table and column, where a number of a recording lies within narrower bounds than any other."""
