"""Where a program chose its device, read from its source: for a run in which nothing reached mps."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from anymps.capture._file_owner import is_library

_OURS: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_FILES: Final = 200
_LARGEST: Final = 1 << 20


@dataclass(frozen=True)
class _Choice:
    """A line that chooses a device; of several the one with the lowest `rank` counts."""

    rank: int
    line: int
    better: str = ""


def device_choice(script: str) -> dict[str, object]:
    """The line of the program that chose its device.

    `file`, `line`, `source`, and `better`, the line with mps in the choice, empty where it cannot be rewritten safely.
    `chosen` is false where no line chooses, and the one that imports torch is given. Empty if there is none either.
    """
    found: list[tuple[int, int, str, _Choice]] = []
    for number, file in enumerate(_files(script)):
        tree = _tree(file)
        if tree is not None:
            found += [(choice.rank, number, file, choice) for choice in _choices(tree, file)]
    if not found:
        return {}
    _, _, file, choice = min(found, key=lambda it: (it[0], it[1], it[3].line))
    return {
        "file": file,
        "line": choice.line,
        "source": linecache.getline(file, choice.line).strip(),
        "better": choice.better,
        "chosen": choice.rank < _IMPORT,
    }


def _files(script: str) -> Iterator[str]:
    """The script, then the program's own modules."""
    seen: set[str] = set()
    modules = [sys.modules.get("__main__"), *list(sys.modules.values())]
    for file in [os.path.abspath(script) if script else "", *(getattr(it, "__file__", None) or "" for it in modules)]:
        own = file.endswith(".py") and not is_library(file) and not file.startswith(_OURS)
        if own and file not in seen and len(seen) < _MOST_FILES:
            seen.add(file)
            yield file


def _tree(file: str) -> ast.Module | None:
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _LARGEST:
            return None
        return ast.parse("".join(linecache.getlines(file)))
    except (OSError, SyntaxError, ValueError):
        return None


_ASKED, _NAMED, _GIVEN, _IMPORT = range(4)


def _choices(tree: ast.Module, file: str) -> Iterator[_Choice]:
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and _asks_for_cuda(node.test):
            yield _Choice(_ASKED, node.lineno, _with_mps(node, linecache.getline(file, node.lineno)))
        elif isinstance(node, ast.If) and _asks_for_cuda(node.test):
            yield _Choice(_ASKED, node.lineno)
        elif isinstance(node, ast.Assign):
            if _is_other(node.value) and "device" in ast.unparse(node.targets[0]).lower():
                yield _Choice(_NAMED, node.lineno)
        elif isinstance(node, ast.Call):
            if _is_device(node) and node.args and _is_other(node.args[0]):
                yield _Choice(_NAMED, node.lineno)
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            for keyword in node.keywords:
                named = "--device" in words if keyword.arg == "default" else keyword.arg == "device"
                if named and _is_other(keyword.value):
                    yield _Choice(_GIVEN, node.lineno)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            if "torch" in [name.partition(".")[0] for name in names]:
                yield _Choice(_IMPORT, node.lineno)


def _asks_for_cuda(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "is_available" and ast.unparse(node.value).endswith("cuda")
        for node in ast.walk(test)
    )


def _is_device(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] == "device"


def _is_other(value: ast.expr) -> bool:
    """Whether a value is the name of a device that is not mps."""
    name = value.value if isinstance(value, ast.Constant) else None
    return isinstance(name, str) and name.split(":")[0] in ("cpu", "cuda")


def _with_mps(choice: ast.IfExp, line: str) -> str:
    """The line with mps between CUDA and the CPU, where the choice is plainly between these two."""
    test, other = ast.unparse(choice.test), choice.orelse
    root = test.removesuffix(".cuda.is_available()")
    if root == test or not root.isidentifier() or other.lineno != other.end_lineno or other.lineno != choice.lineno:
        return ""
    if isinstance(other, ast.Constant) and other.value == "cpu" and isinstance(choice.body, ast.Constant):
        mps = '"mps"'
    elif isinstance(other, ast.Call) and _is_device(other) and [ast.unparse(it) for it in other.args] == ["'cpu'"]:
        mps = f'{ast.unparse(other.func)}("mps")'
    else:
        return ""
    code = line.encode()
    start = other.col_offset
    better = (
        (code[:start] + f"{mps} if {root}.backends.mps.is_available() else ".encode() + code[start:]).decode().strip()
    )
    try:
        ast.parse(better)
    except SyntaxError:
        return ""
    return better
