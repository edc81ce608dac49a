"""All forms of a report, by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anymps.report.run._github import GithubRenderer
from anymps.report.run._html import HtmlRenderer, Running
from anymps.report.run._json import JsonRenderer
from anymps.report.run._junit import JunitRenderer
from anymps.report.run._markdown import MarkdownRenderer
from anymps.report.run._renderer import Renderer
from anymps.report.run._sarif import SarifRenderer
from anymps.report.run._terminal import TerminalRenderer
from anymps.report.run._trace import TraceRenderer

_MAKERS: Final[dict[str, Callable[[str | None], Renderer]]] = {
    "terminal": lambda root: TerminalRenderer(),
    "html": lambda root: HtmlRenderer(),
    "markdown": lambda root: MarkdownRenderer(),
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


def page_renderer(running: Running | None = None) -> Renderer:
    """The renderer of the page, of a run that has ended or one that goes on."""
    return HtmlRenderer(running)
