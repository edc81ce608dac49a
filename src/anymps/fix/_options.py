"""Options of a script that name a device, read from its syntax tree; a changed script must still obey them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from anymps.fix._imports import source_files
from anymps.fix._lines import tree_of
from anymps.fix._program import Program

_DECLARES: Final = ("add_argument", "option", "Option")  # argparse; click; typer
_NAMES_DEVICE: Final = re.compile(r"(?:^|[-_])(?:no|use|disable|enable)?[-_]?(?:device|cuda|gpus?|cpu|mps|accelerator)")
_GPU: Final = re.compile(r"gpu|cuda")
_COUNTS: Final = re.compile(r"(?:^|[-_])(?:n|num|count|per|memory|mem|limit)(?:[-_]|$)|ngpu|gpus$")
_DEVICES: Final = ("cpu", "mps")


def device_options(program: Program, given: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """What to add to the command line, one after the other, so that each option that names a device is asked for.

    A switch alone, `--device cpu`, and for a number of a GPU the -1 that scripts take for none. Options of argparse,
    click and typer are read, in the script and the modules of the project that it imports. What is in `given` already
    is left out.
    """
    found: dict[tuple[str, ...], None] = {}
    for file in source_files(program):
        for node in ast.walk(tree_of(program.text_of(str(file)))):
            if isinstance(node, ast.Call) and _last_name(node.func) in _DECLARES:
                found |= dict.fromkeys(_of_call(node))
    return [words for words in found if not _holds(given, words)]


def _holds(given: Sequence[str], words: tuple[str, ...]) -> bool:
    return any(tuple(given[at : at + len(words)]) == words for at in range(len(given))) or "=".join(words) in given


def _of_call(call: ast.Call) -> Iterator[tuple[str, ...]]:
    texts = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    flags = [text for text in texts if text.startswith("--")] or [text for text in texts if text.startswith("-")]
    if not flags:
        return
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    flag, _, other = flags[0].partition("/")  # click: --cuda/--no-cuda
    name = flag.lstrip("-").lower()
    if not _NAMES_DEVICE.search(name) or _COUNTS.search(name):
        return
    action = _constant(named.get("action"))
    if other:
        yield (flag,)
        yield (other,)
    elif action in ("store_true", "store_false") or _constant(named.get("is_flag")) is True:
        yield (flag,)
    elif _last_name(named.get("action")) == "BooleanOptionalAction":
        yield (flag,)
        yield (f"--no-{flag.lstrip('-')}",)
    elif action in (None, "store"):
        yield from ((flag, value) for value in _values(name, named))


def _values(name: str, named: dict[str, ast.expr]) -> Iterator[str]:
    kind, default = named.get("type"), _constant(named.get("default"))
    choices = _choices(named)
    if choices:
        yield from (choice for choice in choices if choice in _DEVICES)
    elif _last_name(kind) == "int" or (_GPU.search(name) and _is_number(default)):
        yield "-1"
    elif _last_name(kind) in ("", "str"):
        yield "cpu"


def _is_number(default: object) -> bool:
    """Whether a default names GPUs by number: `0`, `"0,1"`, or nothing."""
    return default is None or str(default).replace(",", "").strip("-").isdigit()


def _choices(named: dict[str, ast.expr]) -> list[str]:
    """`choices=["cpu", "cuda"]` of argparse, `type=click.Choice([...])` of click."""
    kind = named.get("type")
    given = named.get("choices")
    if given is None and isinstance(kind, ast.Call) and _last_name(kind.func) == "Choice" and kind.args:
        given = kind.args[0]
    if not isinstance(given, (ast.List, ast.Tuple, ast.Set)):
        return []
    return [str(value) for value in map(_constant, given.elts) if isinstance(value, str)]


def _last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.expr | None) -> object:
    """The value of a constant, without its sign; None of anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return node.value if isinstance(node, ast.Constant) else None
