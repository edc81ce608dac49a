"""Where a program takes each device but CUDA for the CPU, `"cuda" if "cuda" in device else "cpu"`, before autocast.

Read from the source when the run has ended: on mps autocast is then left out, or is one for the CPU, and nothing calls.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from anymps.capture._core import Core, note_facts
from anymps.capture._device_choice import program_files, source_of
from anymps.source import contains, function_around, last_name, parsed, text_in

_CALLS: Final = ("autocast", "GradScaler")


class _Choice(NamedTuple):
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
        for choice in _choices(tuple(ast.walk(tree))) if tree is not None else ():
            if tree is not None and _is_cpu(file, choice.name):
                chosen, used = (
                    core.site(file, line, function_around(tree, line), "") for line in (choice.line, choice.used)
                )
                note_facts(core, "device_type", chosen, used, {"name": choice.name, "call": choice.call})


def _choices(nodes: Sequence[ast.AST]) -> Iterator[_Choice]:
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
            yield _Choice(node.lineno, name, *used)


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
