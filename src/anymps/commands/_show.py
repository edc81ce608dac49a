"""The report and errors, as the commands show them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from anymps._errors import BuildError, UsageError
from anymps._text import clean, tell

if TYPE_CHECKING:
    from anymps.findings import Finding, Story
    from anymps.report import Document, Outputs


def say(problem: object) -> None:
    """Print one line in the name of the program on stderr.

    Control characters, which names of files may contain, are escaped for the terminal.
    """
    text = str(problem).removeprefix("anymps: ")
    lines = text.split("\n") if isinstance(problem, BuildError) else [text]  # that one quotes the compiler
    tell("anymps: " + "\n".join(map(clean, lines)))


def show_document(shown: Document, outputs: Outputs, whole: Document, as_json: Callable[[], str]) -> None:
    """Show a document on stdout, unless a report goes there, and write the reports of the `whole` one.

    Raises UsageError if a file cannot be written.
    """
    from anymps.report import print_document

    if not any(output.to_stdout for output in outputs.items):
        print_document(shown, sys.stdout)
    outputs.write_document(whole, as_json, sys.stdout)
    for output in outputs.items:
        if not output.to_stdout:
            say(f"report: {output.path}")


def show(story: Story, findings: Sequence[Finding], stream: TextIO, *, brief: bool = False) -> None:
    """Write the terminal report to ``stream``. Raises UsageError if it cannot be written."""
    from anymps.report import print_document, run_document

    with _shown(stream):
        print_document(run_document(story, findings, brief=brief), stream)
        stream.flush()


def show_summary(story: Story, findings: Sequence[Finding], whole: str, stream: TextIO) -> None:
    """Write the short report; `whole` says where the whole one is. Raises UsageError if it cannot be written."""
    from anymps.report import print_summary

    with _shown(stream):
        print_summary(story, findings, stream, whole)
        stream.flush()


@contextlib.contextmanager
def _shown(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is sys.stderr:
            return  # beside a script's own output: its status wins, and what cannot be said is not said
        raise UsageError(f"the report cannot be shown: {error.strerror}") from error
