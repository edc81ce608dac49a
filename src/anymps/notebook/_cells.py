"""Runs inside a notebook's kernel: names cells by their numbers, and records a whole run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from anymps.capture import ending_of, name_cell, record

if TYPE_CHECKING:
    from anymps.capture import Capture

_running: Capture | None = None


def watch(shell: Any) -> None:
    """From now on code of this IPython shell is named by its cell, `cell 3`; what has run already is, too."""
    compiler = shell.compile
    if getattr(compiler.get_code_name, "names_cells", False):
        return
    original = compiler.get_code_name
    history = shell.history_manager

    def get_code_name(raw_code: str, transformed_code: str, number: int) -> str:
        name = str(original(raw_code, transformed_code, number))
        name_cell(name, f"cell {cell_number(shell)}")
        return name

    get_code_name.names_cells = True  # type: ignore[attr-defined]
    compiler.get_code_name = get_code_name
    for number, codes in enumerate(zip(history.input_hist_raw, history.input_hist_parsed, strict=False)):
        name_cell(str(original(*codes, number)), f"cell {number}")


def cell_number(shell: Any) -> int:
    """The number beside the cell that runs: `execution_count` may be that of the next one already."""
    return len(shell.history_manager.input_hist_raw) - 1


def begin(shell: Any, device: dict[str, Any], recording: dict[str, Any]) -> None:
    """Switch the device on and record until `finish`; the arguments are those of `anymps.enable` and `anymps.record`.

    Raises AnympsError as they do.
    """
    global _running
    from anymps.device import enable

    watch(shell)
    recording["steps"] = tuple(recording["steps"]) if recording["steps"] is not None else None  # JSON has lists
    enable(**device)
    _running = record(**recording).__enter__()


def finish(failed: bool) -> None:
    """End the recording; of a notebook whose last cell has failed with that exception."""
    capture = _running
    assert capture is not None
    error = getattr(sys, "last_value", None) if failed else None
    capture.close(ending_of(error) if error is not None else {"status": int(failed)})
