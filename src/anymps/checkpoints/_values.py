"""float64 made float32, piece by piece, with a count of the values that float32 cannot hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from anymps._threads import torch_threads
from anymps.checkpoints._dtypes import Dtype

_EXACT: Final = float(1 << 24)
"""float32 holds every whole number up to here."""


@dataclass
class Loss:
    """Values that were finite in float64 and are not the same in float32."""

    overflowed: int = 0
    """Beyond float32's range: they became inf."""
    integers: int = 0
    """Whole numbers (step counts, indices) that float32 rounds to another one; exact up to 2**24."""


def converted(pieces: Iterable[bytes], dtype: Dtype, loss: Loss) -> Iterator[bytes | bytearray]:
    """The bytes of elements of `dtype` as mps takes them; what is lost is added to `loss`."""
    if dtype.becomes is None:
        yield from pieces
        return
    for piece in pieces:
        yield _narrowed(piece, loss)


def _narrowed(piece: bytes, loss: Loss) -> bytearray:
    """float64 elements as float32 ones; a complex128 is two of them."""
    import torch

    if not piece:
        return bytearray()
    # Pieces are too small to share: several threads take seven times the processor time, most of it waiting.
    with torch_threads(1):
        wide = torch.frombuffer(bytearray(piece), dtype=torch.float64)
        result = bytearray(len(piece) // 2)
        narrow = torch.frombuffer(result, dtype=torch.float32).copy_(wide)
        low, high = torch.aminmax(wide)
        # Nothing that is counted lies within these bounds. A NaN is not within them, and is looked at below.
        if not (low >= -_EXACT and high <= _EXACT):
            changed = (narrow.double() != wide) & wide.isfinite()
            infinite = changed & narrow.isinf()
            loss.overflowed += int(infinite.sum())
            loss.integers += int((changed & ~infinite & (wide == wide.trunc())).sum())
    return result
