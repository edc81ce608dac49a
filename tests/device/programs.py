"""Random lines for the two worlds of `worlds`: the patterns of `patterns`, filled by integers that hypothesis draws.

A blank is filled with the CPU world's tensors at hand: most fit in shape and dtype, some do not and raise.
The blanks are the methods of `Blanks`, the words of `patterns.WORDS`, and ranges (`0to9`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any, TypeVar

import torch

from anymps.rules import refused_dtype
from device.patterns import KINDS, WORDS, Suits
from device.worlds import Worlds

T = TypeVar("T")
Draw = Callable[[int, int], int]
"""`draw(low, high)` gives an integer of that range, ends included; the first shrinks best."""

NAMES = 9
LARGEST = 4096


class Blanks(Formatter):
    """Fills the blanks of one pattern. `x`, `y`, `z`, `o`, `same`, `rows` and `d` keep what they got."""

    def __init__(self, draw: Draw, worlds: Worlds, suits: Suits | None = None) -> None:
        self.draw = draw
        self.at = worlds.tensor
        self.names = list(worlds.names())
        self.suits = suits
        self.kept: dict[str, Any] = {}

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> str:
        """The name of the blank, which `format_field` fills."""
        return str(key)

    def format_field(self, value: str, format_spec: str) -> str:
        """What a blank is filled with."""
        if value in ("x", "y", "z", "o", "same", "rows", "d"):
            if value not in self.kept:
                self.kept[value] = getattr(self, value)()
            return str(self.kept[value])
        if "to" in value and value[0] in "-0123456789":
            low, high = value.split("to")
            return str(self.draw(int(low), int(high)))
        words = WORDS.get(value, "")
        return self.one(words.split()) if words else str(getattr(self, value)())

    def one(self, items: Sequence[T]) -> T:
        """One of the items; shrinks to the first."""
        return items[self.draw(0, len(items) - 1)]

    def tensor(self, suits: Suits | None = None) -> str:
        """A tensor that suits, or any if none does."""
        return self.one([name for name in self.names if suits is None or suits(self.at(name))] or self.names)

    @property
    def value_of_x(self) -> torch.Tensor:
        """The CPU world's `x`."""
        return self.at(self.format_field("x", ""))

    @property
    def shape_of_x(self) -> torch.Size:
        """The shape of the pattern's `x`."""
        return self.value_of_x.shape

    def x(self) -> str:
        """The tensor that the pattern is about."""
        return self.tensor(self.suits)

    def y(self) -> str:
        """A tensor that broadcasts with `x`, mostly."""
        shape = self.shape_of_x
        return self.tensor(None if self.draw(0, 7) == 7 else lambda t: _broadcasts(t.shape, shape))

    z = y

    def o(self) -> str:
        """A tensor to be written to. Not over an input: one that is resized reads what nobody wrote."""
        storages = {self.at(name).untyped_storage()._cdata for name in self.kept.values() if isinstance(name, str)}
        return self.tensor(lambda t: t.untyped_storage()._cdata not in storages)

    def same(self) -> str:
        """A tensor of the shape and dtype of `x`."""
        x = self.value_of_x
        return self.tensor(lambda t: t.shape == x.shape and t.dtype == x.dtype)

    def typed(self) -> str:
        """A tensor of the dtype of `x`."""
        return self.tensor(lambda t: t.dtype == self.value_of_x.dtype)

    def rows(self) -> str:
        """A matrix whose rows are as long as those of `x`."""
        x = self.value_of_x
        fits = [n for n in self.names if self.at(n).dim() == 2 and self.at(n).shape[-1:] == x.shape[-1:]]
        return self.one([*fits, f"make((2, {x.shape[-1] if x.dim() else 1}), {x.dtype}, 7)"])

    def grown(self) -> str:
        """A tensor that requires a gradient."""
        return self.tensor(lambda t: t.requires_grad)

    def indices(self) -> str:
        """An int64 tensor to be written to."""
        return self.one(
            [f"torch.tensor({self.draw(0, 9)}, device=DEVICE)", "torch.zeros((2, 3), dtype=torch.int64, device=DEVICE)"]
        )

    def operand(self) -> str:
        """What may stand beside a tensor: another one, a number, a 0-dim CPU tensor."""
        what = self.draw(0, 9)
        return self.y() if what < 6 else self.one(WORDS["number" if what < 8 else "scalar"].split())

    def value(self) -> str:
        """What may be stored in `x`: torch fills with a 0-dim CPU tensor but copies a 0-dim mps one: neither."""
        name = self.operand()
        return "1" if name in self.names and self.at(name).dim() == 0 else name

    def dim(self) -> int:
        """A dimension of `x`; now and then one that it has not."""
        dims = max(len(self.shape_of_x), 1)
        return self.draw(-dims, dims) if self.draw(0, 5) == 5 else self.draw(0, dims - 1)

    def d(self) -> int:
        """A dimension that `x` has."""
        return self.draw(0, max(len(self.shape_of_x), 1) - 1)

    def nth(self) -> int:
        """An index of dimension `d` of `x`."""
        return self.draw(0, max((*self.shape_of_x, 1)[int(self.format_field("d", ""))] - 1, 0))

    def first(self) -> int:
        """An index of the first dimension of `x`."""
        return self.draw(0, max((*self.shape_of_x, 1)[0] - 1, 0))

    def order(self) -> tuple[int, ...]:
        """A permutation of the dimensions of `x`."""
        return tuple(sorted(range(len(self.shape_of_x)), key=lambda _: self.draw(0, 9)))

    def regrouped(self) -> tuple[int, ...]:
        """Another shape for the elements of `x`."""
        numel = math.prod(self.shape_of_x)
        size = self.one([size for size in range(1, 9) if numel % size == 0])
        return self.one(((-1,), (size, -1), (-1, size), (1, -1, size)))

    def image(self) -> str:
        """`x` as one image of one channel."""
        return f"{self.format_field('x', '')}.reshape(1, 1, -1, {self.shape_of_x[-1] if self.shape_of_x else 1})"

    def shape(self) -> tuple[int, ...]:
        """A small shape; now and then one without elements."""
        sizes = [self.draw(1, 5) for _ in range(self.draw(0, 4))]
        if sizes and self.draw(0, 11) == 11:
            sizes[0] = 0
        return tuple(sizes)

    def type(self) -> str:
        """A dtype; now and then one that MPS lacks."""
        return "torch.float64" if self.draw(0, 59) == 59 else f"torch.{self.one(WORDS['dtype'].split())}"

    def bool(self) -> bool:
        """False or True."""
        return self.draw(0, 1) == 1


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(one), reversed(other), strict=False))


_BY_WEIGHT = tuple(kind for kind in KINDS for _ in range(kind.weight))


def step(draw: Draw, worlds: Worlds) -> None:
    """Draws one line and runs it; the oldest names go when there are too many."""
    names = list(worlds.names())
    refusal = None
    if len(names) < 2:
        kind = KINDS[0]
    else:
        kind = _BY_WEIGHT[draw(0, len(_BY_WEIGHT) - 1)]
        if kind.suits is not None and not any(kind.suits(worlds.tensor(name)) for name in names):
            kind = KINDS[2]
    blanks = Blanks(draw, worlds, kind.suits)
    pattern = blanks.one([line.strip() for line in kind.patterns.strip().splitlines()])
    line = blanks.format(pattern)
    if kind.one_on_mps:
        dtype = str(worlds.tensor(blanks.kept["x"]).dtype).removeprefix("torch.")
        refusal = refused_dtype(kind.one_on_mps, dtype, torch.__version__)
    worlds.run(f"t{len(worlds.program)} = {line}", refusal)
    if not worlds.ended:
        worlds.forget(NAMES, LARGEST)


def run(draw: Draw, steps: int) -> Worlds:
    """Runs a random program of at most so many lines, and gives the worlds that it made."""
    worlds = Worlds()
    for _ in range(steps):
        step(draw, worlds)
        if worlds.ended:
            break
    return worlds
