"""The report and errors, as the commands show them."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from anymps._errors import BuildError, UsageError
from anymps._text import tell

if TYPE_CHECKING:
    from anymps.findings import Finding, Story
    from anymps.report import Document

_FORMS: Final = {".html": "html", ".htm": "html", ".md": "markdown"}  # by a file's ending


def say(problem: object, stream: TextIO | None = None) -> None:
    """Print one line in the name of the program, on stderr if no stream is named.

    What comes from files or names in it reaches no terminal as it is: control characters are written out.
    """
    from anymps.report import clean

    text = str(problem).removeprefix("anymps: ")
    lines = text.split("\n") if isinstance(problem, BuildError) else [text]  # that one quotes the compiler
    tell("anymps: " + "\n".join(map(clean, lines)), stream)


def show_document(document: Callable[[], Document], path: Path | None, as_json: Callable[[], str]) -> None:
    """Show a document on stdout, or write it to `path` in the form that its ending names: HTML, Markdown, JSON or text.

    Raises UsageError if the file cannot be written.
    """
    from anymps.report import print_document, rendered, write_file

    if path is None:
        print_document(document(), sys.stdout)
        return
    pieces = [as_json()] if path.suffix == ".json" else rendered(document(), _FORMS.get(path.suffix, "terminal"))
    write_file(pieces, path)


def show(story: Story, findings: Sequence[Finding], path: Path | None, stream: TextIO) -> None:
    """Write the terminal report to a file, or to ``stream`` if no file is named.

    Raises UsageError if the file or the stream cannot be written.
    """
    from anymps.report import print_terminal, write_file

    with _shown(stream):
        if path is None:
            print_terminal(story, findings, stream)
            stream.flush()
        else:
            text = io.StringIO()
            print_terminal(story, findings, text)
            write_file([text.getvalue()], path)


def show_summary(story: Story, findings: Sequence[Finding], whole: str, stream: TextIO) -> None:
    """Write the short report; `whole` says where the whole one is. Raises UsageError if it cannot be written."""
    from anymps.report import print_summary

    with _shown(stream):
        print_summary(story, findings, stream, whole=whole)
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
