"""`%load_ext anymps`, and the cell magic `%%mps`."""

from __future__ import annotations

import argparse
import importlib
import shlex
from typing import Any, NoReturn

from anymps._errors import AnympsError, UsageError
from anymps.capture import ending_of, record
from anymps.notebook._cells import cell_number, watch
from anymps.notebook._display import register
from anymps.notebook._original_python import as_it_was, remember
from anymps.record import Recording


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%mps: {message}")


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext anymps`: there is `%%mps`, and recordings, plans and comparisons show their pages."""
    one_line = importlib.import_module("IPython.core.error").UsageError  # IPython shows it without a traceback
    words = _Words("%%mps", add_help=False)
    words.add_argument("--mac")
    words.add_argument("--record", metavar="FILE")
    words.add_argument("--cuda-as-mps", action="store_true", default=None)

    def mps(line: str, cell: str) -> Recording:
        """Run the cell on the mps device, record it, and show what happened: `%%mps --mac "M2 16GB" --record FILE`.

        The first cell chooses the Mac for all; with `--record` the recording is kept in a file. With `--cuda-as-mps`
        mps answers for CUDA, in this cell and all that follow.
        """
        try:
            try:
                asked = words.parse_args(shlex.split(line))
            except ValueError as error:
                raise UsageError(f"%%mps: {error}") from None
            return _recorded(shell, cell, asked.mac, asked.record, asked.cuda_as_mps)
        except AnympsError as error:
            raise one_line(str(error).removeprefix("anymps: ")) from None

    watch(shell)
    remember()
    register(shell.display_formatter)
    shell.register_magic_function(mps, "cell")


def _recorded(shell: Any, cell: str, mac: str | None, path: str | None, cuda_as_mps: bool | None) -> Recording:
    from anymps.device import enable, state

    if state() is None or mac is not None or cuda_as_mps:
        enable(mac, start_method="system", cuda_as_mps=cuda_as_mps)
    capture = record(path, script=f"cell {cell_number(shell)}", argv=[])
    capture.__enter__()
    ending: dict[str, object] = {"status": 0}
    try:
        result = shell.run_cell("# line 1 is the magic\n" + cell)
        error = result.error_in_exec or result.error_before_exec
        if error is not None:
            ending = ending_of(error)
    finally:
        with as_it_was():
            capture.close(ending)
    return capture.recording
