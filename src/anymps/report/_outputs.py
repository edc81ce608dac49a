"""Where reports go: forms and files, checked before the work and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from anymps._atomic import check_writable, replace_text
from anymps._errors import UsageError
from anymps._settings import Settings

if TYPE_CHECKING:
    from anymps.findings import Finding, Story
    from anymps.report.document import Document

STDOUT: Final = "-"
_SQLITE = b"SQLite format 3\x00"  # how a recording begins


@dataclass(frozen=True)
class Output:
    """One report: its form, as the settings name it, and its file; `-` is standard output."""

    form: str
    path: str

    @classmethod
    def parse(cls, text: str, forms: Sequence[str]) -> Output:
        """`html=report.html`. Raises UsageError for a text that is none or names none of the `forms`."""
        form, mark, path = text.partition("=")
        if not mark or not path:
            raise UsageError(f"{text!r} names no file: write FORMAT=FILE, such as html=report.html")
        if form not in forms:
            raise UsageError(f"there is no format {form!r}; the formats are {', '.join(forms)}")
        return cls(form, path)

    @property
    def to_stdout(self) -> bool:
        """Whether it goes to standard output."""
        return self.path == STDOUT

    def write(self, pieces: Iterable[str], stdout: TextIO) -> None:
        """Write a report there, to a file whole or not at all. Raises UsageError if that cannot be."""
        if self.to_stdout:
            write_stream(pieces, stdout)
        else:
            write_file(pieces, Path(self.path))


@dataclass(frozen=True)
class Outputs:
    """The reports that a command was asked for. `root` is the directory that forms for programs tell paths from."""

    items: tuple[Output, ...] = ()
    root: str | None = None

    @classmethod
    def of(cls, asked: Settings) -> Outputs:
        """Those of a command's settings. Raises UsageError for a report that the command cannot make."""
        try:
            return cls(tuple(Output.parse(text, asked.formats) for text in asked.reports), asked.root)
        except UsageError as error:
            raise UsageError(f"--report: {error}") from None

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def pages(self) -> tuple[Output, ...]:
        """Those that are pages in files."""
        return tuple(output for output in self.items if output.form == "html" and not output.to_stdout)

    def check(self, recording: Path | None = None) -> None:
        """Find out before the work that a report cannot be written, or would replace a recording.

        Raises UsageError.
        """
        taken: set[str] = set() if recording is None else {os.path.realpath(recording)}
        for output in self.items:
            if output.to_stdout:
                place = STDOUT
            else:
                check_file(Path(output.path))
                place = os.path.realpath(output.path)
            if place in taken:
                where = "standard output" if output.to_stdout else output.path
                raise UsageError(f"{where} is named twice: give each report a file of its own")
            # What is no regular file (/dev/null, a pipe) may take any number of them.
            if output.to_stdout or not os.path.exists(place) or os.path.isfile(place):
                taken.add(place)

    def write(self, story: Story, findings: Sequence[Finding], stdout: TextIO) -> None:
        """Write every report; one that fails does not keep the others from being written.

        Raises UsageError for the first that could not be written.
        """
        from anymps.report.run import report_pieces  # which takes its time to load

        self._write(lambda form: report_pieces(form, story, findings, self.root), stdout)

    def write_document(self, document: Document, as_json: Callable[[], str], stdout: TextIO) -> None:
        """The same for another document than the report of a run; its formats are fewer."""
        from anymps.report.document import rendered

        self._write(lambda form: [as_json()] if form == "json" else rendered(document, form), stdout)

    def _write(self, pieces: Callable[[str], Iterable[str]], stdout: TextIO) -> None:
        tried = (_failure(output, pieces(output.form), stdout) for output in self.items)
        failures = [failure for failure in tried if failure is not None]
        if failures:
            raise failures[0]


def _failure(output: Output, pieces: Iterable[str], stdout: TextIO) -> UsageError | None:
    """Write a report; what kept it from being written, if anything did."""
    try:
        output.write(pieces, stdout)
    except UsageError as error:
        return error
    return None


def check_file(path: Path) -> None:
    """Find out before the work that a file of results cannot be written, or would replace a recording.

    Raises UsageError.
    """
    try:
        check_writable(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    if is_recording(path):
        raise UsageError(f"{path} is a recording and will not be overwritten: name another file")


def write_file(pieces: Iterable[str], path: Path) -> None:
    """Write text to a file that is there whole or as it was before; raises UsageError if it cannot be written."""
    try:
        replace_text(path, pieces, errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def write_stream(pieces: Iterable[str], stream: TextIO) -> None:
    """Write text to a stream, in UTF-8 whatever the locale says; raises UsageError if it takes no more.

    A reader that has gone (`| head`) is no error.
    """
    try:
        binary = getattr(stream, "buffer", None)
        stream.flush()
        for piece in pieces:
            if binary is None:
                stream.write(piece)
            else:
                binary.write(piece.encode("utf-8", "backslashreplace"))
        stream.flush()
    except BrokenPipeError:
        # Python's own flush at exit must not fail a second time (docs.python.org/3/library/signal.html, "Note on
        # SIGPIPE").
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        raise UsageError(f"standard output cannot be written: {error.strerror}") from error


def is_recording(path: Path) -> bool:
    """Whether a file is a database, as recordings are."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
