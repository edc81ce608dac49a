"""What all launches of a kernel share, for a kernel that is compiled for it: numbers, and the sizes of the grid.

A kernel that finds its way through strides, or meets in loops whose length is given, becomes a small part of itself so.
Its results are the same: integers have no other, and arithmetic on floats that the compiler does is the kernel's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from anymps.metal.kernels._metadata import BufferArgument, Signature, StructField

Sizes3 = tuple[int, int, int]

_INTEGER = re.compile(r"(?:packed_)?(?:bool|u?(?:char|short|int|long)|size_t|u?int64_t)[234]?")
# Functions of which LLVM has values of its own where it knows the arguments.
_INEXACT = re.compile(r"(?:a?(?:cos|sin|tan)|exp|log|pow)")
_FLUSHED = '"denormal-fp-math"="preserve-sign,preserve-sign"'


@dataclass(frozen=True)
class Fixed:
    """The bytes of constants by slot, and the sizes of the grid and of a group."""

    buffers: tuple[tuple[int, bytes], ...]
    grid: Sizes3
    group: Sizes3

    @property
    def groups(self) -> Sizes3:
        """How many groups there are along each axis."""
        x, y, z = (-(-grid // group) for grid, group in zip(self.grid, self.group, strict=True))
        return x, y, z

    @property
    def has_whole_groups(self) -> bool:
        """Whether all groups are of one size."""
        return all(grid % group == 0 for grid, group in zip(self.grid, self.group, strict=True))

    def operands(self) -> dict[int, str]:
        """What stands for each constant in the kernel's text, by slot."""
        return {slot: f"ptr @anymps_fixed{slot}" for slot, _ in self.buffers}

    def globals(self) -> str:
        """The constants themselves."""
        return "".join(
            f"@anymps_fixed{slot} = private unnamed_addr constant [{len(data)} x i8] "
            f'c"{"".join(f"{chr(92)}{byte:02X}" for byte in data)}", align 16\n'
            for slot, data in self.buffers
        )

    def of(self, signature: Signature, functions: Iterable[str]) -> Fixed:
        """The same without what must be read anew: constants that are written, and floats of inexact `functions`."""
        exact = not any(_INEXACT.search(name) for name in functions)
        arguments = {one.slot: one for one in signature.buffers}
        kept = [
            (slot, data)
            for slot, data in self.buffers
            if slot in arguments and not arguments[slot].written and (exact or _is_whole(arguments[slot]))
        ]
        return Fixed(tuple(kept), self.grid, self.group)


def flushing(text: str) -> str:
    """The module's text with the promise that subnormal floats are zero, which they are while a kernel runs."""
    lines = (
        f"{line[:-1]}{_FLUSHED} {{" if line.startswith("define ") and line.endswith("{") else line
        for line in text.split("\n")
    )
    return "\n".join(lines)


def _is_whole(argument: BufferArgument | StructField) -> bool:
    """Whether it holds integers alone."""
    if argument.fields:
        return all(map(_is_whole, argument.fields))
    return _INTEGER.fullmatch(argument.type) is not None
