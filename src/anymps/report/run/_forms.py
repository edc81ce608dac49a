"""All forms of a report, by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from anymps.findings import Finding
from anymps.record import Recording
from anymps.report.document import DEFAULT_WIDTH, Form, as_text, print_document, rendered
from anymps.report.run._document import run_document
from anymps.report.run._github import GithubRenderer
from anymps.report.run._json import JsonRenderer
from anymps.report.run._junit import JunitRenderer
from anymps.report.run._renderer import Renderer
from anymps.report.run._sarif import SarifRenderer
from anymps.report.run._trace import TraceRenderer

_SHOWN: Final = {"terminal": Form.TERMINAL, "html": Form.PAGE, "markdown": Form.MARKDOWN}


@dataclass(frozen=True)
class Running:
    """How far a run is of which a page tells while it goes on: its `step`, the time so far, and when to look again."""

    step: int
    elapsed: str
    refresh_s: int

    @property
    def words(self) -> str:
        """What the page says at its top."""
        step = f"step {self.step:,}, " if self.step else ""
        return f"Still running: {step}{self.elapsed}. This page reloads until the run ends."


@dataclass(frozen=True)
class DocumentRenderer:
    """A form that people read; a page of a run that goes on says so, and reloads."""

    name: str
    running: Running | None = None

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The document of the run in this form; text of 100 columns without colour."""
        return rendered(run_document(recording, findings, forms=_SHOWN[self.name], running=self.running), self.name)


_MAKERS: Final[dict[str, Callable[[str | None], Renderer]]] = {
    "terminal": lambda root: DocumentRenderer("terminal"),
    "html": lambda root: DocumentRenderer("html"),
    "markdown": lambda root: DocumentRenderer("markdown"),
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
    return DocumentRenderer("html", running)


def render_terminal(
    recording: Recording, findings: Sequence[Finding], *, width: int = DEFAULT_WIDTH, color: bool = False
) -> str:
    """The report as text, by default 100 columns wide and without colour."""
    return as_text(run_document(recording, findings, forms=Form.TERMINAL), width=width, color=color)


def print_terminal(
    recording: Recording,
    findings: Sequence[Finding],
    stream: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
) -> None:
    """Write the report to `stream`, as wide as its terminal and coloured if it is one."""
    print_document(run_document(recording, findings, forms=Form.TERMINAL), stream, width=width, color=color)
