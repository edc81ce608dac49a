"""All forms of a report, by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anymps.report._github import GithubRenderer
from anymps.report._json import JsonRenderer
from anymps.report._junit import JunitRenderer
from anymps.report._renderer import Renderer
from anymps.report._sarif import SarifRenderer
from anymps.report._terminal import TerminalRenderer
from anymps.report._trace import TraceRenderer


def _html(root: str | None) -> Renderer:
    # Imported when a page is asked for: jinja2 takes longer to load than the other reports to write.
    from anymps.report._html import HtmlRenderer

    return HtmlRenderer()


_MAKERS: Final[dict[str, Callable[[str | None], Renderer]]] = {
    "terminal": lambda root: TerminalRenderer(),
    "html": _html,
    "trace": lambda root: TraceRenderer(),
    "json": lambda root: JsonRenderer(),
    "sarif": SarifRenderer,
    "github": GithubRenderer,
    "junit": lambda root: JunitRenderer(),
}

FORMATS: Final = tuple(_MAKERS)
"""The name of each form."""


def renderer(name: str, root: str | None = None) -> Renderer:
    """The renderer of the form `name`. Forms for other programs tell paths from `root`, a directory.

    Raises KeyError for a name that is not in `FORMATS`.
    """
    return _MAKERS[name](root)
