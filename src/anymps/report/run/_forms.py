"""All forms of the report of a run, by the names that commands know them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from anymps.findings import Finding, Story
from anymps.report.document import DEFAULT_WIDTH, Form, as_text, rendered
from anymps.report.run._code_hosts import github_pieces, sarif_pieces
from anymps.report.run._document import run_document
from anymps.report.run._json import json_pieces

_SHOWN: Final = {"terminal": Form.TERMINAL, "html": Form.PAGE, "markdown": Form.MARKDOWN}
_FOR_PROGRAMS: Final[dict[str, Callable[[Story, Sequence[Finding], str | None], Iterator[str]]]] = {
    "json": json_pieces,
    "sarif": sarif_pieces,
    "github": github_pieces,
}


def report_pieces(form: str, story: Story, findings: Sequence[Finding], root: str | None = None) -> Iterator[str]:
    """The report of a run as pieces of text that follow each other, so that a long one is never whole in memory.

    Text is 100 columns wide and has no colour. Forms for other programs tell paths from `root`, a directory. Needs
    neither torch nor the script.
    """
    if form in _FOR_PROGRAMS:
        return _FOR_PROGRAMS[form](story, findings, root)
    return rendered(run_document(story, findings, forms=_SHOWN[form]), form)


def render_terminal(
    story: Story,
    findings: Sequence[Finding],
    *,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    brief: bool = False,
) -> str:
    """The report as text, by default 100 columns wide and without colour."""
    return as_text(run_document(story, findings, brief=brief), width=width, color=color)
