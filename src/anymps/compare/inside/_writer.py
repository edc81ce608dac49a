"""Writes a trace's file: each line of the program, operator, bound and sketch once, then calls that name them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from anymps.compare._trace import Bound, Ending, Site, Sketch

_FLUSHED: Final = 64  # rows after which they are on the disk: the process may be killed


class TraceWriter:
    """Appends rows; from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1 << 16)
        os.register_at_fork(after_in_child=self._forget)
        self._lock = threading.RLock()
        self._rows = 0
        self._sites: dict[Site, int] = {Site(): 0}
        self._operators: dict[str, int] = {}
        self._bounds: dict[Bound, int] = {}
        self._sketches: dict[tuple[str, tuple[int, ...], str], int] = {}

    def _forget(self) -> None:
        """In a process that is forked, such as a loader's worker: nothing of it goes to the file."""
        if not self._file.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())  # also for what is in the buffer
            os.close(nowhere)

    def row(self, kind: str, value: Any) -> None:
        """Append one row."""
        text = json.dumps({kind: value}, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)
                self._rows += 1
                if not self._rows % _FLUSHED:
                    self._file.flush()

    def site(self, site: Site) -> int:
        """The number of a line."""
        with self._lock:
            number = self._sites.get(site)
            if number is None:
                number = self._sites[site] = len(self._sites)
                self.row("site", [site.file, site.line, site.function, site.text])
            return number

    def operator(self, name: str) -> int:
        """The number of an operator."""
        with self._lock:
            number = self._operators.get(name)
            if number is None:
                number = self._operators[name] = len(self._operators)
                self.row("operator", name)
            return number

    def bound(self, bound: Bound) -> int:
        """The number of a bound."""
        with self._lock:
            number = self._bounds.get(bound)
            if number is None:
                number = self._bounds[bound] = len(self._bounds)
                self.row("bound", list(astuple(bound)))
            return number

    def known(self, dtype: str, shape: Sequence[int], digest: str) -> int | None:
        """The number of a sketch that has been written before."""
        return self._sketches.get((dtype, tuple(shape), digest)) if digest else None

    def sketch(self, sketch: Sketch) -> int:
        """The number of a sketch."""
        with self._lock:
            key = (sketch.dtype, sketch.shape, sketch.digest)
            number = self._sketches.get(key)
            if number is None:
                number = self._sketches[key] = len(self._sketches)
                numbers = (sketch.nans, sketch.infinities, sketch.low, sketch.high, sketch.total, sketch.rms)
                self.row("k", [sketch.dtype, sketch.shape, sketch.digest, *numbers, sketch.elements])
            return number

    def flush(self) -> None:
        """Take what is written to the disk, at each step: the process may be killed."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self, ending: Ending) -> None:
        """Write how the run ended, and close the file."""
        site = ending.site
        place = [site.file, site.line, site.function, site.text]
        self.row("end", {**{name: getattr(ending, name) for name in _ENDING}, "site": place})
        with self._lock:
            self._file.close()


_ENDING = ("error", "is_cut", "used", "steps", "calls", "left_out")
