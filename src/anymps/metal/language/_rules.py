"""Checks all rules of the language on one tree of a shader; without libclang, a warning."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

from anymps.metal.language._conversions import refused_conversions
from anymps.metal.language._kernels import refused_kernels
from anymps.metal.language._parser import ask_parser
from anymps.metal.language._pointers import refused_pointers
from anymps.metal.language._tree import Tree, Unparsed, has_parser
from anymps.metal.language._unsupported import refused_language
from anymps.metal.translation import Refused

_RULES = (refused_pointers, refused_conversions, refused_language, refused_kernels)


def refused_by_language(text: str, torch_headers: Path) -> list[Refused]:
    """All that Metal's compiler refuses of a shader, in the order of the text. Without libclang nothing is.

    `torch_headers` is the folder that has `c10/metal`.
    """
    if not has_parser():
        return []
    found = ask_parser(text, torch_headers)
    if found is None:
        _warn("a Metal shader is not checked against the rules of Metal's language, because libclang cannot parse it")
        return []
    return [Refused(said, offset) for offset, said in found]


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
