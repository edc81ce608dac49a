"""The option by which a script is asked for the CPU, read from its syntax tree; a changed script must still obey it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Final

from anymps.source._files import tree_of
from anymps.source._nodes import argument, choices_of, elements, last_name, name_of, text_in

_DECLARES: Final = ("add_argument", "option", "Option")  # argparse; click; typer
_NAMES_DEVICE: Final = re.compile(r"(?:^|[-_])(?:no|use|disable|enable)?[-_]?(?:device|cuda|gpus?|cpu|mps|accel)")
_GPU: Final = re.compile(r"gpu|cuda|mps|accel")
_NOT: Final = re.compile(r"^(?:no|disable|without)[-_]?")
_COUNTS: Final = re.compile(r"(?:^|[-_])(?:n|num|count|per|memory|mem|limit)(?:[-_]|$)|ngpu|gpus$")


def cpu_option(texts: Iterable[str], given: Sequence[str] = ()) -> tuple[str, ...]:
    """What to add to the command line to ask a program for the CPU, by the first of its options that does; else ().

    A switch such as `--no-cuda` or `--cpu`, `--device cpu`, and for a GPU's number the -1 that scripts take for none.
    Options of argparse, click and typer are read in the `texts` of its files. Those that are `given` already are left
    out.
    """
    for text in texts:
        for node in ast.walk(tree_of(text)):
            if isinstance(node, ast.Call) and last_name(node) in _DECLARES:
                words = _of_call(node)
                if words and not any(word.partition("=")[0] == words[0] for word in given):
                    return words
    return ()


def _of_call(call: ast.Call) -> tuple[str, ...]:
    texts = [text for text in map(text_in, call.args) if text]
    flags = [text for text in texts if text.startswith("--")] or [text for text in texts if text.startswith("-")]
    if not flags:
        return ()
    flag, _, other = flags[0].partition("/")  # click: --cuda/--no-cuda
    name = flag.lstrip("-").lower()
    if not _NAMES_DEVICE.search(name) or _COUNTS.search(name):
        return ()
    action = argument(call, "action")
    if other:
        return next(((each,) for each in (flag, other) if _asks_for_cpu(each)), ())
    if text_in(action) in ("store_true", "store_false") or _constant(argument(call, "is_flag")) is True:
        return (flag,) if _asks_for_cpu(flag) else ()
    if name_of(action) == "BooleanOptionalAction":
        return (flag if _asks_for_cpu(flag) else f"--no-{flag.lstrip('-')}",)
    value = _value(name, call) if _constant(action) in (None, "store") else ""
    return (flag, value) if value else ()


def _asks_for_cpu(flag: str) -> bool:
    name = flag.lstrip("-").lower()
    without = _NOT.sub("", name)
    return "cpu" in name if without == name else _GPU.search(without) is not None


def _value(name: str, call: ast.Call) -> str:
    kind, default = name_of(argument(call, "type")), _constant(argument(call, "default"))
    choices = [text for text in map(text_in, elements(choices_of(call))) if text]
    if choices:
        return "cpu" if "cpu" in choices else ""
    if kind == "int" or (_GPU.search(name) and _is_number(default)):
        return "-1"
    return "cpu" if kind in ("", "str") else ""


def _is_number(default: object) -> bool:
    """Whether a default names GPUs by number: `0`, `"0,1"`, or nothing."""
    return default is None or str(default).replace(",", "").strip("-").isdigit()


def _constant(node: ast.expr | None) -> object:
    """The value of a constant, without its sign; None of anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return node.value if isinstance(node, ast.Constant) else None
