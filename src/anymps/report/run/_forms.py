"""All forms of a report, by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from anymps._settings import FORMATS
from anymps.findings import Finding, Story
from anymps.report.document import DEFAULT_WIDTH, Form, as_text, print_document, rendered
from anymps.report.run._document import run_document
from anymps.report.run._github import github_pieces
from anymps.report.run._json import json_pieces
from anymps.report.run._junit import junit_pieces
from anymps.report.run._sarif import sarif_pieces
from anymps.report.run._trace import trace_pieces

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


_FOR_PROGRAMS: Final[dict[str, Callable[[Story, Sequence[Finding], str | None], Iterator[str]]]] = {
    "trace": lambda story, findings, _: trace_pieces(story, findings),
    "json": lambda story, findings, _: json_pieces(story, findings),
    "sarif": sarif_pieces,
    "github": github_pieces,
    "junit": lambda story, findings, _: junit_pieces(story, findings),
}


@dataclass(frozen=True)
class Renderer:
    """One form of a report: a function of a run's story and its findings, which needs neither torch nor the script.

    `name` is the word by which a command chooses it. Forms for other programs tell paths from `root`, a directory. A
    page of a run that is still `running` says so, and reloads.
    """

    name: str
    root: str | None = None
    running: Running | None = None

    def pieces(self, story: Story, findings: Sequence[Finding]) -> Iterator[str]:
        """The report as pieces of text that follow each other, so that a long one is never whole in memory.

        Text is 100 columns wide and has no colour.
        """
        if self.name in _FOR_PROGRAMS:
            return _FOR_PROGRAMS[self.name](story, findings, self.root)
        return rendered(run_document(story, findings, forms=_SHOWN[self.name], running=self.running), self.name)


def renderer(name: str, root: str | None = None) -> Renderer:
    """The renderer of the form `name`. Raises KeyError for a name that names none."""
    if name not in FORMATS:
        raise KeyError(name)
    return Renderer(name, root)


def render_terminal(
    story: Story,
    findings: Sequence[Finding],
    *,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    brief: bool = False,
) -> str:
    """The report as text, by default 100 columns wide and without colour."""
    return as_text(run_document(story, findings, forms=Form.TERMINAL, brief=brief), width=width, color=color)


def print_terminal(
    story: Story,
    findings: Sequence[Finding],
    stream: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
    brief: bool = False,
) -> None:
    """Write the report to `stream`, as wide as its terminal and coloured if it is one."""
    document = run_document(story, findings, forms=Form.TERMINAL, brief=brief)
    print_document(document, stream, width=width, color=color)
