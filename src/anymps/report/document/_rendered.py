"""A document in the form that a command was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from anymps.report.document._console import DEFAULT_WIDTH, look_of, written_to
from anymps.report.document._html import as_page
from anymps.report.document._markdown import as_markdown
from anymps.report.document._terminal import as_text
from anymps.report.document._tree import Document


def rendered(document: Document, form: str, target: TextIO | None = None) -> Iterator[str]:
    """The pieces of one of `READ_FORMATS`; text as wide and coloured as fits `target`, else 100 columns and plain."""
    if form == "html":
        return as_page(document)
    if form == "markdown":
        return as_markdown(document)
    width, color = look_of(target) if target is not None else (DEFAULT_WIDTH, False)
    return iter((as_text(document, width=width, color=color),))


def print_document(document: Document, target: TextIO) -> None:
    """Write it to `target`, as wide as its terminal and coloured if it is one."""
    written_to(target, "".join(rendered(document, "terminal", target)))
