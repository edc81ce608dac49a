"""How a run ended: the exception that nothing caught, the program's line that it came from, and who raised it."""

from __future__ import annotations

import dis
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Final

from anymps._paths import is_library
from anymps.device import written_by_torch
from anymps.source import quote_file

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count

_OURS: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_RAISES: Final = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap}
_IN_WORKER: Final = re.compile(r"Caught \w+ in (?:DataLoader worker process|replica)")


def ending_of(error: BaseException) -> dict[str, object]:
    """What a recording keeps of the exception that ended its run.

    `status`, `exception` (the class's name) and `message`; `raised_by` is `torch`, `program` (a `raise` statement of
    anyone else's) or empty; `place` has `file`, `line`, `function` and `source` of the innermost line of the program's
    own, of an installed package's where there is none. Without such a line there is no `place`. `compared` is the
    comparison that the program raised by, if it takes `mps:0` for another device than `mps`.
    """
    facts: dict[str, object] = {
        "status": INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1,
        "exception": type(error).__name__,
        "message": str(error),
        "raised_by": _raised_by(error),
    }
    entries = [entry for entry in _entries(error.__traceback__) if not _is_internal(entry.tb_frame.f_code.co_filename)]
    own = [entry for entry in entries if not is_library(entry.tb_frame.f_code.co_filename)]
    for entry in (own or entries)[-1:]:
        code = entry.tb_frame.f_code
        facts["place"] = {
            "file": shown_file(code.co_filename),
            "line": entry.tb_lineno,
            "function": code.co_name,
            "source": quote_file(code.co_filename, entry.tb_lineno).source,
        }
        if facts["raised_by"] == "program" and (compared := _compared_devices(entry)):
            facts["compared"] = compared
    return facts


def _compared_devices(entry: types.TracebackType) -> str:
    if "torch" not in sys.modules:
        return ""
    from anymps.capture._device_comparisons import compared_without_index

    return compared_without_index(entry.tb_frame, entry.tb_lineno)


def _raised_by(error: BaseException) -> str:
    *_, last = (None, *_entries(error.__traceback__))
    if last is None:
        return ""
    if _of_torch(last.tb_frame.f_code.co_filename):
        return "" if _IN_WORKER.match(str(error)) else "torch"  # torch raises again what a worker raised
    code = last.tb_frame.f_code.co_code
    return "program" if 0 <= last.tb_lasti < len(code) and code[last.tb_lasti] in _RAISES else ""


def _entries(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_internal(file: str) -> bool:
    return file.startswith((_OURS, "<frozen", *written_by_torch())) or _of_torch(file)


def _of_torch(file: str) -> bool:
    torch = sys.modules.get("torch")
    home = getattr(torch, "__file__", None)
    return home is not None and file.startswith(os.path.dirname(home) + os.sep)


_names: dict[str, str] = {}


def name_cell(file: str, name: str) -> None:
    """In recordings the code of `file` has this name, as `cell 3`."""
    _names[file] = name


def shown_file(file: str) -> str:
    """A file's name in a recording."""
    return _names.get(file, file)
