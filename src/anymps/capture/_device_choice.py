"""The line where a program chose its device, and what depends on it, read from the source after the run.

For a run that never used mps: the line that chose. For every run: code before autocast
that takes any device but CUDA for the CPU, `"cuda" if "cuda" in device else "cpu"`. On mps the program then skips
autocast, or uses the CPU's, and no call shows it.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from anymps._paths import is_library
from anymps.capture._core import Core, note_facts
from anymps.source import (
    contains,
    function_around,
    imported,
    last_name,
    parsed,
    quote_text,
    text_in,
    text_of,
)

_OURS: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_FILES: Final = 200
_LARGEST: Final = 1 << 20  # characters of a file that is read


_Choice = tuple[int, int]
"""The rank of a line that chooses a device, and its number: of several the lowest counts."""


def device_choice(script: str) -> dict[str, object]:
    """The line of the program that chose its device.

    Of the line `file`, `line`, `source`, and the lines `around` it from line `first` on. `chosen` is false where no
    line chooses, and the one that imports torch is given; empty if there is none either.
    """
    file, line, best = "", 0, _NONE
    sources: dict[str, str] = {}
    for each in program_files(script):
        source = sources[each] = source_of(each)
        if _may_choose(source, best):
            rank, at = min(_choices(source), default=(_NONE, 0))
            if rank < best:
                file, line, best = each, at, rank
    if best == _NONE:
        return {}
    quote, chosen = quote_text(sources[file], line), best < _IMPORT
    facts = {"file": file, "line": line, "source": quote.source, "chosen": chosen}
    return facts | {"first": quote.first, "around": quote.around}


def _may_choose(source: str, rank: int) -> bool:
    """Whether a source has the words of a choice of a lower rank: a program of 200 files is not parsed for nothing."""
    asks = rank > _ASKED and "is_available" in source
    names = rank > _NAMED and ("cpu" in source or "cuda" in source)
    return asks or names or (rank > _IMPORT and "torch" in source)


def program_files(script: str) -> Iterator[str]:
    """The script, then the program's own modules."""
    seen: set[str] = set()
    modules = [sys.modules.get("__main__"), *list(sys.modules.values())]
    for file in [
        script,
        *(getattr(module, "__file__", None) or "" for module in modules),
    ]:
        own = file.endswith(".py") and not is_library(file) and not file.startswith(_OURS)
        if own and file not in seen and len(seen) < _MOST_FILES:
            seen.add(file)
            yield file


def source_of(file: str) -> str:
    """A file's text; empty if it is none of a program, or cannot be read."""
    text = text_of(file) if os.path.isfile(file) else ""
    return text if len(text) <= _LARGEST else ""


def nodes_of(source: str) -> Sequence[ast.AST]:
    """All nodes of a source's tree; none if it is no Python."""
    tree = parsed(source)
    return () if tree is None else tuple(ast.walk(tree))


_ASKED, _NAMED, _GIVEN, _IMPORT, _NONE = range(5)


@lru_cache(maxsize=_MOST_FILES)  # a notebook or a suite of tests ends many recordings of the same modules
def _choices(source: str) -> tuple[_Choice, ...]:
    return tuple(choice for node in nodes_of(source) for choice in _choices_at(node))


def _choices_at(node: ast.AST) -> Iterator[_Choice]:
    match node:
        case ast.If(test=asked) | ast.IfExp(test=asked) | ast.Assign(value=asked) if _asks_for_cuda(asked):
            yield _ASKED, node.lineno
        case ast.Assign() if _is_other(node.value) and "device" in ast.unparse(node.targets[0]).lower():
            yield _NAMED, node.lineno
        case ast.Call():
            yield from _choices_in_call(node)
        case ast.Import() | ast.ImportFrom() if any(name.partition(".")[0] == "torch" for _, name in imported(node)):
            yield _IMPORT, node.lineno


def _choices_in_call(call: ast.Call) -> Iterator[_Choice]:
    """`torch.device("cpu")`, `f(device="cpu")`, and the default of an option `--device`."""
    if last_name(call) == "device" and call.args and _is_other(call.args[0]):
        yield _NAMED, call.lineno
    is_option = "--device" in map(text_in, call.args)
    for keyword in call.keywords:
        names = is_option if keyword.arg == "default" else keyword.arg == "device"
        if names and _is_other(keyword.value):
            yield _GIVEN, call.lineno


def _asks_for_cuda(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "is_available" and ast.unparse(node.value).endswith("cuda")
        for node in ast.walk(test)
    )


def _is_other(value: ast.expr) -> bool:
    """Whether a value is the name of a device that is not mps."""
    return text_in(value).partition(":")[0] in ("cpu", "cuda")


_CALLS: Final = ("autocast", "GradScaler")


class _OfType(NamedTuple):
    """A statement that gives a name the type of a device, and the first line below that hands it to a call."""

    line: int
    name: str
    used: int
    call: str


def note_device_types(core: Core, script: str) -> None:
    """Write a mark for each such line of the program; not where the module's name holds another device in the end."""
    for file in program_files(script):
        source = source_of(file)
        if "cuda" not in source or not any(call in source for call in _CALLS):
            continue
        tree = parsed(source)
        for choice in _types_chosen(tuple(ast.walk(tree))) if tree is not None else ():
            if tree is not None and _is_cpu(file, choice.name):
                chosen, used = (
                    core.site(file, line, function_around(tree, line), "") for line in (choice.line, choice.used)
                )
                note_facts(core, "device_type", chosen, used, {"name": choice.name, "call": choice.call})


def _types_chosen(nodes: Sequence[ast.AST]) -> Iterator[_OfType]:
    for node in nodes:
        name = _name_given(node)
        if not name or not isinstance(node, ast.stmt):
            continue
        uses = (
            (part.lineno, call)
            for part in nodes
            if isinstance(part, (ast.Assign, ast.Call, ast.With)) and part.lineno > node.lineno
            for call in _called_with(part, name)
        )
        used = min(uses, default=None)
        if used is not None:
            yield _OfType(node.lineno, name, *used)


def _name_given(node: ast.AST) -> str:
    """The name that is "cuda" or "cpu" by a test for CUDA alone; empty for another statement."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
        test, chosen = node.value.test, (node.value.body, node.value.orelse)
        target: ast.expr | None = node.targets[0]
    elif isinstance(node, ast.If) and len(node.body) == len(node.orelse) == 1:
        there, otherwise = node.body[0], node.orelse[0]
        if not isinstance(there, ast.Assign) or not isinstance(otherwise, ast.Assign):
            return ""
        test, chosen = node.test, (there.value, otherwise.value)
        target = there.targets[0] if ast.dump(there.targets[0]) == ast.dump(otherwise.targets[0]) else None
    else:
        return ""
    if not isinstance(target, ast.Name) or [getattr(value, "value", None) for value in chosen] != ["cuda", "cpu"]:
        return ""
    words = [text for text in map(text_in, ast.walk(test)) if text]
    by_cuda = bool(words) and all(word.startswith("cuda") for word in words)
    turned = any(isinstance(part, (ast.Not, ast.NotIn, ast.NotEq)) for part in ast.walk(test))
    return target.id if by_cuda and not turned else ""


def _called_with(statement: ast.AST, name: str) -> Iterator[str]:
    """Which of the calls a statement makes with a name, in its arguments or in a test for it; of a block its head."""
    parts: Sequence[ast.AST] = statement.items if isinstance(statement, ast.With) else (statement,)
    if any(contains(part, name) for part in parts):
        called = {last_name(node) for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)}
        yield from (call for call in _CALLS if call in called)


def _is_cpu(file: str, name: str) -> bool:
    """Whether a name of the file's module is the CPU's in the end, or is none of the module's."""
    modules = (vars(module) for module in [*sys.modules.values()] if hasattr(module, "__dict__"))
    given = [known[name] for known in modules if name in known and os.path.abspath(known.get("__file__") or "") == file]
    return not given or "cpu" in given
