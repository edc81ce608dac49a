"""Compiled Metal kernels: how one is called, as a document, and those of a release at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from anymps.report._text import plural
from anymps.report.document import Column, Document, Facts, Form, Section, Table, look_of

if TYPE_CHECKING:
    from anymps.kernels import Signature, StoredKernel, StructField

_BETWEEN = 3  # blanks


def kernel_document(
    kernel: StoredKernel, signature: Signature, operators: Sequence[str], release: str, threads: str
) -> Document:
    """A kernel of a release of torch; `threads` says what those of a group need of each other."""
    language = ".".join(map(str, kernel.language))
    facts = Facts((("operator", ", ".join(operators) or "unknown (its name does not say)"), ("threads", threads)))
    sections = [Section("kernel", "The kernel", (facts,), folded=False, headed=Form.PAGE), *_tables(signature)]
    return Document(
        title=f"anymps kernels: {kernel.name}",
        kind="kernel",
        made_from="from a macOS wheel",
        eyebrow=("anymps kernels", f"torch {release}"),
        state="clean",
        verdict=f"{kernel.name}: a kernel of torch {release}, Metal {language}, {kernel.size:,} bytes of bitcode",
        sections=tuple(sections),
        dense=True,
    )


def _tables(signature: Signature) -> Iterator[Section]:
    number, type_ = Column("slot", "number"), Column("type", "path")
    rows: list[tuple[str, ...]] = []
    fields: list[tuple[str, ...]] = []
    columns: tuple[Column, ...]
    for buffer in signature.buffers:
        kind = "&" if buffer.size is not None else "*"
        access = "read and written" if buffer.written else "read"
        size = plural(buffer.size, "byte") if buffer.size is not None else ""
        rows.append((str(buffer.slot), buffer.name, f"{buffer.space} {buffer.type}{kind}", access, size))
        fields += _fields(buffer.fields, buffer.name, 0)
    if rows:
        columns = (number, Column("name"), type_, Column("access"), Column("size", "number"))
        yield Section("buffers", "Buffers", (Table("buffer-table", columns, tuple(rows), head=1),), folded=False)
    if fields:
        columns = (Column("offset", "number"), Column("field"), type_)
        remark = "offsets from the start of the buffer, in bytes"
        table = Table("field-table", columns, tuple(fields), caption=remark, head=1)
        yield Section("fields", "Fields", (table,), remark=remark, folded=False)
    if signature.positions:
        positions = tuple((position.name, position.type, position.attribute) for position in signature.positions)
        columns = (Column("name"), type_, Column("what"))
        yield Section("positions", "Positions", (Table("position-table", columns, positions),), folded=False)


def _fields(fields: Sequence[StructField], of: str, start: int) -> Iterator[tuple[str, ...]]:
    """Fields, those of their structs behind them."""
    for field in fields:
        name = f"{of}.{field.name}" + (f"[{field.length}]" if field.length else "")
        at = start + field.offset
        yield str(at), name, f"{field.type}{'*' if field.is_pointer else ''}"
        yield from _fields(field.fields, f"{of}.{field.name}", at)


def kernel_families(families: Mapping[str, int], dtypes: Mapping[str, int], release: str, target: TextIO) -> str:
    """The families, by a pattern each, and the dtypes, with their numbers of kernels: as wide as fits `target`.

    The last line says how to see names.
    """
    width, _ = look_of(target)
    left, right = max(map(len, families)), max(len(f"{count:,}") for count in families.values())
    cells = [f"{pattern:<{left}}  {count:>{right},}" for pattern, count in families.items()]
    columns = max((width + _BETWEEN) // (left + 2 + right + _BETWEEN), 1)
    rows = -(-len(cells) // columns)
    lines = [(" " * _BETWEEN).join(cells[row::rows]) for row in range(rows)]  # from top to bottom
    told = ", ".join(f"{name} {count:,}" for name, count in dtypes.items()) or "none in the names"
    return "\n".join(
        (
            f"torch {release} has {plural(sum(families.values()), 'Metal kernel')}; by the first word of the name:",
            "",
            *lines,
            "",
            *wrap(f"dtypes: {told}", width),
            f"names: anymps kernels list '{next(iter(families))}', or --all for every one",
        )
    )
