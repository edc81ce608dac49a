"""What every HTML page is made of: templates that escape, and the page's own style and script with their hashes."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from anymps._own_imports import own_imports
from anymps.report import _text as text

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_SENTENCE: Final = 4000  # characters: an error's message may be as long as it likes


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The templates of this package; everything that they are given is escaped."""
    # Here: jinja2 takes longer to load than the other forms to write.
    with own_imports():
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
    return environment


@lru_cache(maxsize=1)
def assets() -> dict[str, str]:
    """Style and script, and the hashes by which the page's policy lets them in (www.w3.org/TR/CSP3)."""
    folder = resources.files("anymps.report") / "templates"
    found: dict[str, str] = {}
    for name, file in (("style", "report.css"), ("script", "report.js")):
        content = (folder / file).read_text(encoding="utf-8")
        found[name] = Markup(content)  # ours, from the package: nothing of a script's is in it
        found[f"{name}_hash"] = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return found


def _marked(sentence: str) -> Markup:
    """A sentence with what stands between backquotes as code; all of it escaped."""
    sentence = text.shorten(sentence, _LONGEST_SENTENCE)
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # a backquote without a partner: the sentence as it is
        return escape(sentence)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
