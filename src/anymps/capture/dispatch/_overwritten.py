"""Tensors on mps that a casting copy to the CPU has overwritten on a Mac (MPS601), until something reads them.

native/recorder/overwritten.cpp again, in Python: the copy itself gives the right values, and most such tensors are
dropped right after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anymps.capture.dispatch._tape import PythonTape

_FILLING = ("aten::zero_", "aten::fill_.Scalar")


@dataclass
class _Copied:
    storage: weakref.ref[torch.UntypedStorage]  # while it lives, its address is no other's
    mark: str
    site: int


class Overwritten:
    """Those of one recording."""

    def __init__(self, tape: PythonTape) -> None:
        self._tape = tape
        self._copied: dict[int, _Copied] = {}

    def __bool__(self) -> bool:
        return bool(self._copied)

    def remember(self, source: torch.Tensor, mark: str, site: int) -> None:
        """A casting copy at this line has been made of `source`; `mark` names it if its memory is read again."""
        self._copied = {address: it for address, it in self._copied.items() if it.storage() is not None}
        if source.layout is torch.strided:
            storage = source.untyped_storage()
            self._copied[storage._cdata] = _Copied(weakref.ref(storage), mark, site)

    def look(self, operator: str, inputs: Sequence[torch.Tensor]) -> None:
        """Write a mark, at the copy's line, if this operator reads what the copy has overwritten."""
        for tensor in inputs:
            if tensor.layout is not torch.strided:
                continue
            address = tensor.untyped_storage()._cdata
            known = self._copied.pop(address, None)
            if known is not None and known.storage() is not None and not _writes_anew(operator, inputs, address):
                self._tape.hazard(known.mark, known.site)


def _writes_anew(operator: str, inputs: Sequence[torch.Tensor], address: int) -> bool:
    """Whether the call gives all of the memory new values, and reads none of the old ones."""
    if operator == "aten::copy_":
        source, target = inputs
        if source.layout is torch.strided and source.untyped_storage()._cdata == address:
            return False
    elif operator in _FILLING:
        (target,) = inputs
    else:
        return False
    storage = target.untyped_storage()
    return storage._cdata == address and target.numel() * target.element_size() == storage.nbytes()
