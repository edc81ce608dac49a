"""Tensors and calls as a recording writes them: `float32[8, 3, 32, 32]`, `aten::relu`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from anymps._errors import CostError
from anymps._numbers import digits, whole
from anymps._text import base_name

ITEM_SIZES: Final[dict[str, int]] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of one element, by the dtype's name."""

_TEXT: Final = re.compile(r"(\w+)\[((?:\d+(?:, ?\d+)*)?)\]( on cpu)?")
_CALL: Final = re.compile(r"([\w:.]+)\(([^()]*)\) -> \(([^()]*)\)(?: \{([^{}]*)\})?")
_LISTED: Final = re.compile(r"\w+\[[^\]]*\](?: on cpu)?")


class Tensor(NamedTuple):
    """What is known of one tensor of a call."""

    dtype: str
    shape: tuple[int, ...]
    on_cpu: bool = False

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of its elements."""
        return self.elements * ITEM_SIZES[self.dtype]


_VALUES_AND_PLACES = frozenset({"values", "values_stable", "dim_values", "dim_max", "dim_min"})
"""Overloads of `sort`, `topk`, `median`, `max` and `min` that write to two tensors, numbers and their places."""

_WORDS: Final = ("transposed", "blit", "strided")


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator, written as in a recording.

    `operator` is a name with or without overload (`aten::add.Tensor`); `inputs` and `outputs` are tensors as text, in
    the order of the operator's schema, as `Signature` has them. Facts that a recording lacks may be added: `axis`, the
    axis that is reduced, sorted or normalised (negative: from the end), and `transposed`, whether an input is a
    transposed view. `blit` is a copy by the blit encoder, `strided` one that takes each number from another row.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    axis: int | None = None
    transposed: bool = False
    blit: bool = False
    strided: bool = False

    @classmethod
    def parse(cls, text: str) -> OperatorCall:
        """Read a call written as `aten::sum.dim_IntList(float32[4, 3]) -> (float32[3]) {axis=0}`.

        Raises CostError for other texts.
        """
        match = _CALL.fullmatch(text.strip())
        if match is None:
            raise CostError(f"anymps: not a call of an operator: {text!r}")
        axis = None
        words = (match[4] or "").split()
        for word in words:
            if word.startswith("axis="):
                axis = _axis(word.removeprefix("axis="))
            elif word not in _WORDS:
                raise CostError(f"anymps: not a property of a call: {word!r}")
        inputs, outputs = (tuple(_LISTED.findall(part)) for part in (match[2], match[3]))
        return cls(match[1], inputs, outputs, axis, **{word: word in words for word in _WORDS})

    @property
    def text(self) -> str:
        """The call as `parse` reads it, and as the files of timings have it."""
        words = [f"axis={self.axis}"] if self.axis is not None else []
        words += [word for word in _WORDS if getattr(self, word)]
        text = f"{self.operator}({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"
        return f"{text} {{{' '.join(words)}}}" if words else text

    @property
    def outs(self) -> int:
        """How many of its last inputs are the tensors that results are written to: 1 of `aten::mm.out`."""
        overload = self.operator.partition(".")[2]
        return 2 if overload in _VALUES_AND_PLACES else int(overload.endswith("out"))

    @property
    def in_place(self) -> bool:
        """Whether it writes an input: `aten::add_.Tensor`, `aten::_fused_adam_`, a Metal kernel."""
        return self.operator.startswith("metal::") or self.operator.rpartition("::")[2].partition(".")[0].endswith("_")

    @property
    def name(self) -> str:
        """The operator without namespace, overload and the underscore of the in-place form."""
        return base_name(self.operator)


def _axis(text: str) -> int:
    """An axis such as `-1`. Raises CostError for other texts."""
    number = whole(text.removeprefix("-"))
    if number is None:
        raise CostError(f"anymps: not an axis: {text!r}")
    return -number if text.startswith("-") else number


@lru_cache(maxsize=65536)
def read_tensor(text: str) -> Tensor:
    """Read `float32[8, 3]`, or `int64[] on cpu`. Raises CostError for other texts and unknown dtypes."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        hint = ": its sizes were not recorded" if text.strip().endswith("[...]") else ""
        raise CostError(f"anymps: not a tensor: {text!r}{hint}")
    if match[1] not in ITEM_SIZES:
        raise CostError(f"anymps: not a dtype of a tensor: {match[1]!r}")
    return Tensor(match[1], tuple(digits(size.strip()) for size in match[2].split(",") if size), bool(match[3]))
