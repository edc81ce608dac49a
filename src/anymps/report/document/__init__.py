"""A report as one document: the tree that builders make, and its forms for people: text, page and Markdown."""

from __future__ import annotations

from anymps.report.document._console import (
    DEFAULT_WIDTH,
    NARROWEST,
    QUIET,
    STATE_STYLES,
    WIDEST,
    fitting,
    indented,
    look_of,
    pairs,
    printed,
    written_to,
)
from anymps.report.document._rendered import print_document, rendered
from anymps.report.document._terminal import as_text
from anymps.report.document._tree import (
    WORDS,
    Block,
    Cell,
    Change,
    Changes,
    Column,
    Cut,
    Document,
    Drawing,
    Facts,
    Form,
    Items,
    Measured,
    Note,
    Prose,
    Section,
    SourceLine,
    Spot,
    State,
    Table,
)
