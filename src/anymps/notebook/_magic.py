"""`%load_ext anymps`: the cell magic `%%mps`, and recordings that are shown as their page, in a frame."""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, NoReturn

from anymps._errors import AnympsError, UsageError
from anymps._setting_row import Row
from anymps._settings import Settings, rows
from anymps.capture import ending_of, record
from anymps.findings import Finding, Story, find, read_settings, roots, select
from anymps.notebook._cells import cell_number, watch
from anymps.record import Recording
from anymps.report import render_summary, report_pieces


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mps: {message}")


def _form(row: Row) -> dict[str, Any]:
    """How argparse reads the setting."""
    if row.kind == "flag":
        return {"action": "store_true"}
    form: dict[str, Any] = {"choices": row.words} if row.words and not row.other else {}
    if row.other:
        form["type"] = _word_of(row)
    return {**form, "nargs": "?", "const": row.bare} if row.bare else form


def _word_of(row: Row) -> Callable[[str], str]:
    def word(text: str) -> str:
        if not row.takes(text):
            raise argparse.ArgumentTypeError(f"{text!r} is not {row.choices}")
        return text

    return word


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext anymps`: there is `%%mps`, and recordings show their pages."""
    one_line = importlib.import_module("IPython.core.error").UsageError  # IPython shows it without a traceback
    words = _Words("%%mps", add_help=False)
    for row in rows():
        if row.notebook:
            words.add_argument(row.flag, dest=row.name, default=None, **_form(row))
    words.add_argument("--record", metavar="FILE")

    def mps(line: str, cell: str) -> Recording:
        """Run the cell on the mps device, record it, and show what happened: `%%mps --mac "M2 16GB" --record FILE`.

        The first cell chooses the Mac and, by `--substrate`, what computes, for all; with `--record` the recording is
        kept in a file. With `--cuda-as-mps` mps answers for CUDA, in this cell and all that follow. `--check-numbers`
        compares the numbers of this cell with the CPU's.
        """
        try:
            try:
                asked = words.parse_args(shlex.split(line))
            except ValueError as error:
                raise UsageError(f"%%mps: {error}") from None
            path = vars(asked).pop("record")
            return _recorded(shell, cell, Settings(**vars(asked)), path)
        except AnympsError as error:
            raise one_line(error.reason) from None

    watch(shell)
    register(shell.display_formatter)
    shell.register_magic_function(mps, "cell")


def _recorded(shell: Any, cell: str, asked: Settings, path: str | None) -> Recording:
    from anymps.device import enable, state

    if state() is None or any(value is not None for value in asked.device().values()):
        enable(**{**asked.device(), "start_method": "system"})
    capture = record(path, script=f"cell {cell_number(shell)}", argv=[])
    capture.__enter__()
    numbers = None
    if asked.check_numbers is not None:
        from anymps.numerics import start_checking

        numbers = start_checking(asked.check_numbers)
    ending: dict[str, object] = {"status": 0}
    try:
        result = shell.run_cell("# line 1 is the magic\n" + cell)
        error = result.error_in_exec or result.error_before_exec
        if error is not None:
            ending = ending_of(error)
    finally:
        if numbers is not None:
            from anymps.numerics import stop_checking

            stop_checking(capture.note_fact)
        capture.close(ending)
    return capture.recording


# Scripts of the page itself run, and reach nothing of the notebook.
_STYLE = "width: 100%; height: 640px; border: 1px solid #8884"
_FRAME = '<iframe srcdoc="{}" sandbox="allow-scripts" style="' + _STYLE + '"></iframe>'


def html(recording: Recording) -> str:
    """The page of a recording as a frame for a notebook."""
    return _FRAME.format(escape(_whole(recording, "html")))


def markdown(recording: Recording) -> str:
    """The same as Markdown, for viewers that show no frames."""
    return _whole(recording, "markdown")


def text(recording: Recording) -> str:
    """The short report, for a terminal."""
    return render_summary(Story.of(recording), _findings(recording)).rstrip("\n")


def register(formatter: Any) -> None:
    """Show recordings so, wherever this IPython `DisplayFormatter` shows something."""
    formatter.formatters["text/html"].for_type(Recording, html)
    formatter.formatters["text/markdown"].for_type(Recording, markdown)
    formatter.formatters["text/plain"].for_type(Recording, lambda thing, printer, _: printer.text(text(thing)))


def _whole(recording: Recording, form: str) -> str:
    return "".join(report_pieces(form, Story.of(recording), _findings(recording)))


def _findings(recording: Recording) -> tuple[Finding, ...]:
    settings = read_settings(Path.cwd())
    return select(find(recording), settings, roots(recording, settings)).findings
