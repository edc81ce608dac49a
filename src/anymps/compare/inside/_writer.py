"""Writes a trace's file: each line of the program, operator, bound and sketch once, then calls that name them."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import astuple
from pathlib import Path
from typing import Any

from anymps.compare._trace import NOWHERE, Ending, Sketch


class TraceWriter:
    """Appends rows; from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)  # by rows: the process may be killed
        os.register_at_fork(after_in_child=self._forget)
        self._lock = threading.RLock()
        self._numbers: dict[str, dict[Any, int]] = {"site": {NOWHERE: 0}, "operator": {}, "bound": {}, "k": {}}

    def _forget(self) -> None:
        """In a process that is forked, such as a loader's worker: nothing of it goes to the file."""
        if not self._file.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)

    def row(self, kind: str, value: Any) -> None:
        """Append one row."""
        text = json.dumps({kind: value}, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)

    def number(self, kind: str, value: Any) -> int:
        """The number of a `site`, an `operator`, a `bound` or a sketch (`k`), which is written once."""
        key = (value.dtype, value.shape, value.digest) if isinstance(value, Sketch) else value
        with self._lock:
            known = self._numbers[kind]
            if key not in known:
                known[key] = len(known)
                self.row(kind, value if isinstance(value, str) else astuple(value))
            return known[key]

    def known(self, dtype: str, shape: tuple[int, ...], digest: str) -> int | None:
        """The number of a sketch that has been written before."""
        return self._numbers["k"].get((dtype, shape, digest)) if digest else None

    def close(self, ending: Ending) -> None:
        """Write how the run ended, and close the file."""
        self.row("end", astuple(ending))
        with self._lock:
            self._file.close()
