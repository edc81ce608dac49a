"""Compiles the shaders that a generated module is about to ask for in parallel.

Inductor of torch 2.11 and 2.12 gives each kernel a library of its own, some thirty in the graph of a small transformer;
later releases put them into one. The module that it writes asks for them in its first lines. With the first one the
others are begun, on as many cores as there are. What fails here is compiled again, and said, where it is asked for.
"""

from __future__ import annotations

import ast
import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Final

from anymps.metal._check_setting import checks_shaders
from anymps.metal.compilation._compile import compile_shader

_ASKS: Final = "compile_mps_shader"
"""The function by which a generated module asks: torch/_inductor/runtime/runtime_utils.py, torch 2.11 to 2.15."""

_FARTHEST: Final = 8  # callers between a library and the module that asks for it

_begun: dict[str, Future[Path]] = {}  # by source
_seen: set[str] = set()
_pools: list[ThreadPoolExecutor] = []


def compile_ahead(caller: FrameType | None) -> None:
    """Begin the other shaders of the generated module that asked for one, if it is one; `caller` is who asked."""
    module = _generated_module(caller)
    if module is None or module in _seen:
        return
    _seen.add(module)
    cores = len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    if cores < 2 or checks_shaders():
        return
    sources = _sources(module)[1:]  # the first is there
    if len(sources) < 2:
        return
    if not _pools:
        # The module itself waits for the one that it asks for, and takes no core.
        _pools.append(ThreadPoolExecutor(cores, "anymps compiles ahead"))
    with contextlib.suppress(RuntimeError):  # there is no room for another thread
        for source in sources:
            if source not in _begun:
                _begun[source] = _pools[0].submit(compile_shader, source)


def compiled_shader(source: str, checked: bool) -> Path:
    """As `compile_shader`; takes what was begun, and begins nothing twice."""
    begun = None if checked else _begun.pop(source, None)
    if begun is not None and not begun.cancel():
        with contextlib.suppress(Exception):
            return begun.result()
    try:
        return compile_shader(source, checked)
    except BaseException:
        _drop()  # the module goes no further
        raise


def _generated_module(frame: FrameType | None) -> str | None:
    """The file of the generated module that is being loaded, among the callers."""
    for _ in range(_FARTHEST):
        if frame is None:
            return None
        if frame.f_code.co_name == "<module>":
            return frame.f_code.co_filename if _ASKS in frame.f_globals else None
        frame = frame.f_back
    return None


def _sources(module: str) -> list[str]:
    """The sources that a module asks for, in its order; none if it cannot be read."""
    try:
        tree = ast.parse(Path(module).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    given = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == _ASKS and call.args)
    return [
        argument.value for argument in given if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _drop() -> None:
    for begun in _begun.values():
        begun.cancel()
    _begun.clear()


def _forget() -> None:
    """A child has none of the threads that compile."""
    _begun.clear()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
