"""What a kernel's name shows: the operator that launches it, and its family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A name is the operator's, then how memory lies, then types: `gelu_backward_dense_broadcast_half_half`.
_LAYOUT = re.compile(r"_(?:dense|strided|reduction)(?:_|$)")
_TYPE = r"(?:float|half|bfloat|double|u?int|u?long|u?short|u?char|bool|void|float2|half2|u?int\d+_t|[iu]?(?:32|64))"
_TYPES = re.compile(rf"(?:_{_TYPE})+$")
_ELEMENTS = frozenset(("float", "half", "bfloat", "float2", "half2", "long", "int", "short", "char", "uchar", "bool"))
_WORD = re.compile(r".[^_A-Z]*_?")
# Endings that say how the operator computes, and names that differ from it. Source: the names of torch 2.13's kernels.
_MANNERS = ("_forward", "_alpha", "_scalar", "_tensor", "_identity", "_decimals", "_trunc", "_floor", "_true", "_tanh")
_OTHERS = {"copy_conj": "copy_", "copy_conj_neg": "copy_", "copy_neg": "copy_", "copy": "copy_", "fill": "fill_"}


def operator_of(kernel: str) -> list[str]:
    """Names that the operator of a kernel may have, the likeliest first: `abs` of `abs_dense_float_float`.

    They are guesses from the name alone: look each up among torch's operators.
    """
    layout = _LAYOUT.search(kernel)
    base = kernel[: layout.start()] if layout else _TYPES.sub("", kernel)
    found = [base]
    for manner in _MANNERS:
        if base.endswith(manner):
            found.append(base.removesuffix(manner))
        if manner in base:
            found.append(base.replace(manner, ""))
    found = [_OTHERS.get(name, name) for name in found]
    return list(dict.fromkeys(form for name in found for form in (name, f"special_{name}", f"_{name}", f"{name}_")))


def families_of(kernels: Iterable[str]) -> dict[str, int]:
    """How many kernels begin with the same word, by a pattern that matches these, in alphabetic order.

    A word ends before an underscore or a capital letter: `abs_*` of `abs_dense_float_float`, `apply*` of `applyPivots`.
    """
    return dict(sorted(Counter(map(_family, kernels)).items()))


def _family(kernel: str) -> str:
    word = _WORD.match(kernel)
    return kernel if word is None or word[0] == kernel else f"{word[0]}*"


def dtypes_of(kernels: Iterable[str]) -> dict[str, int]:
    """How many kernels name each type of elements, as Metal calls it, the commonest first; many name several."""
    found = Counter(word for kernel in kernels for word in set(kernel.split("_")) & _ELEMENTS)
    return dict(found.most_common())
