"""The process that parses shaders: if libclang crashes or takes all memory, only this process ends.

One serves all shaders of a process, because starting it takes longer than parsing. It ends with its input.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from anymps._own_process import SAFE_PATH, without_preloads
from anymps.metal.translation import Refused

SECONDS: Final = 60.0  # of the processor, for one shader
_PATIENCE: Final = 10.0  # times as long on the clock, as others may have the processor
_BYTES: Final = 4 << 30
# Without `site`: neither a program's own hooks nor ours have a place there.
_SERVE: Final = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from anymps.metal.language._parser import serve
from anymps.metal.language._rules import refused_here
serve(refused_here)
"""
_lock = threading.Lock()
_children: dict[int, subprocess.Popen[str]] = {}  # by the process that started it: a fork has none


def ask_parser(text: str, torch_headers: Path) -> list[tuple[int, str]] | None:
    """What is refused of a shader, as offsets and texts; None if libclang gives it up, or needs too much for it."""
    with _lock:
        child = _children.get(os.getpid())
        if child is None or child.poll() is not None:
            child = _start()
        assert child.stdin is not None and child.stdout is not None
        answer = ""
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps([text, str(torch_headers), SECONDS]) + "\n")
            child.stdin.flush()
            if select.select([child.stdout], [], [], SECONDS * _PATIENCE)[0]:
                answer = child.stdout.readline()
        if not answer:
            _stop(child)
            return None
    found = json.loads(answer)
    return None if found is None else [(offset, said) for offset, said in found]


def _start() -> subprocess.Popen[str]:
    path = json.dumps([os.path.abspath(place) for place in sys.path if place])
    child = subprocess.Popen(
        [sys.executable, "-S", "-E", *SAFE_PATH, "-c", _SERVE, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        start_new_session=True,  # a Ctrl-C is for the program
        env=without_preloads(),
    )
    _children.clear()
    _children[os.getpid()] = child
    return child


def _stop(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()
    _children.clear()


@atexit.register
def _end() -> None:
    child = _children.get(os.getpid())
    if child is not None:
        _stop(child)


def serve(refused: Callable[[str, Path], list[Refused] | None]) -> None:
    """Parses what it is given, a line each, until there is no more."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        text, headers, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = refused(text, Path(headers))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found and [(one.offset, one.text) for one in found]), flush=True)
