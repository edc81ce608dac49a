"""Checks all rules of the language on one tree of a shader, in a process of its own; without libclang, a warning.

If libclang crashes or takes all memory, only this process ends. One serves all shaders of a process, because starting
it takes longer than parsing. It ends with its input.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Final

from anymps._own_process import SAFE_PATH, without_preloads
from anymps.metal.language._conversions import refused_conversions
from anymps.metal.language._kernels import refused_kernels
from anymps.metal.language._pointers import refused_pointers
from anymps.metal.language._tree import Tree, Unparsed, has_parser
from anymps.metal.language._unsupported import refused_language
from anymps.metal.translation import Refused

SECONDS: Final = 60.0  # of the processor, for one shader
_PATIENCE: Final = 10.0  # times as long on the clock, as others may have the processor
_BYTES: Final = 4 << 30
# Without `site`: neither a program's own hooks nor ours have a place there.
_SERVE: Final = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from anymps.metal.language._rules import serve
serve()
"""
_lock = threading.Lock()
_children: dict[int, subprocess.Popen[str]] = {}  # by the process that started it: a fork has none
_RULES = (refused_pointers, refused_conversions, refused_language, refused_kernels)


def refused_by_language(text: str, torch_headers: Path) -> list[Refused]:
    """All that Metal's compiler refuses of a shader, in the order of the text. Without libclang nothing is.

    `torch_headers` is the folder that has `c10/metal`.
    """
    if not has_parser():
        return []
    found = _ask(text, torch_headers)
    if found is None:
        _warn("a Metal shader is not checked against the rules of Metal's language, because libclang cannot parse it")
        return []
    return found


def refused_here(text: str, torch_headers: Path) -> list[Refused] | None:
    """The same, parsed in this process; None if libclang gives up."""
    try:
        tree = Tree(text, torch_headers)
    except Unparsed:
        return None
    found = {one.offset: one for rule in reversed(_RULES) for one in rule(tree)}
    return sorted(found.values(), key=lambda one: one.offset)


@functools.cache
def warn_without_parser() -> None:
    """Says once in a process that shaders are not held to the rules, if libclang is missing."""
    if has_parser():
        return
    _warn(
        "Metal shaders are not checked against the rules of Metal's language, because libclang is not installed: what "
        "compiles here may be refused on a Mac (pip install libclang)"
    )


def _warn(text: str) -> None:
    warnings.warn(f"anymps: {text}", RuntimeWarning, stacklevel=3)


def _ask(text: str, torch_headers: Path) -> list[Refused] | None:
    """What is refused of a shader; None if libclang gives it up, or needs too much for it."""
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
    return None if found is None else [Refused(*one) for one in found]


def _start() -> subprocess.Popen[str]:
    path = json.dumps([os.path.abspath(place) for place in sys.path if place])
    child = subprocess.Popen(
        [sys.executable, "-S", "-E", *SAFE_PATH, "-c", _SERVE, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        start_new_session=True,  # Ctrl-C belongs to the program
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


def serve() -> None:
    """Parses what it is given, a line each, until there is no more."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        text, headers, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = refused_here(text, Path(headers))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found), flush=True)
