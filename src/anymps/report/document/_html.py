"""A document as one HTML page: no network, no other file, readable on a phone, in print, in the dark and by ear.

What comes from a program is escaped; the page's policy allows its own style and script by their hashes and nothing
else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from anymps._version import __version__
from anymps.report._text import shorten
from anymps.report.document._tree import HEAT, WORDS, Column, Document, Form

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_SENTENCE: Final = 4000  # characters: an error's message may be as long as it likes


def as_page(document: Document) -> Iterator[str]:
    """The page, in the pieces of its template."""
    template = _templates().get_template("document.html.j2")
    sections = sorted(document.shown(Form.PAGE), key=lambda pair: pair[0].folded)
    return template.generate(document=document, sections=sections, version=__version__, words=WORDS, **_assets())


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """The templates of this package; everything that they are given is escaped."""
    # Here: jinja2 takes longer to load than the other forms to write.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("anymps.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["marked"] = _marked
    environment.filters["breakable"] = _breakable
    environment.filters["looks"] = _looks
    environment.filters["heat"] = lambda verdict: HEAT.get(str(verdict).partition(" ")[0], "")
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


@lru_cache(maxsize=1)
def _assets() -> dict[str, str]:
    """Style and script, and the hashes by which the page's policy lets them in (www.w3.org/TR/CSP3)."""
    folder = resources.files("anymps.report") / "templates"
    found: dict[str, str] = {}
    for name, file in (("style", "report.css"), ("script", "report.js")):
        content = (folder / file).read_text(encoding="utf-8")
        found[name] = Markup(content)  # ours, from the package: nothing of a script's is in it
        found[f"{name}_hash"] = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return found


def _looks(column: Column, *, head: bool = False) -> str:
    """The classes of a cell, or of its column's head; those that are `less` important a phone leaves out."""
    kinds = {"number": "num", **({} if head else {"path": "path", "remark": "remark"})}
    return " ".join(filter(None, (kinds.get(column.kind, ""), "less" if 0 < column.left_out < 5 else "")))


def _breakable(path: str) -> Markup:
    """A text that a narrow screen breaks behind the slashes of its paths, before it breaks a name."""
    return Markup("/<wbr>").join(path.split("/"))


def _marked(sentence: str) -> Markup:
    """A sentence with what stands between backquotes as code; all of it escaped."""
    sentence = shorten(sentence, _LONGEST_SENTENCE)
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # a backquote without a partner: the sentence as it is
        return escape(sentence)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
