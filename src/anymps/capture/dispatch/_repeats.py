"""CPU tensors that a line copies to mps in step after step unchanged: native/recorder/repeats.cpp again, in Python."""

from __future__ import annotations

import weakref
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import torch

from anymps.capture.dispatch._roundtrip import fingerprint

_MOST_SOURCES: Final = 16
_STEPS: Final = 3


@dataclass
class _Source:
    tensor: weakref.ref[torch.Tensor]
    version: int
    print: int
    step: int
    steps: int = 1


class Repeats:
    """What each line has copied before."""

    def __init__(self) -> None:
        self._lines: defaultdict[int, list[_Source]] = defaultdict(list)

    def is_third(self, source: torch.Tensor, site: int, step: int) -> bool:
        """True once, in the third step that copies the very same values at that line."""
        if source.is_inference() or source.layout is not torch.strided:
            return False
        owner = source if source._base is None else source._base
        known = self._lines[site]
        for it in known:
            if it.tensor() is not owner:
                continue
            if it.step == step:
                return False
            # What is no operator may have written to it: a loader fills the array that it wraps.
            look = fingerprint(owner.untyped_storage())
            same = it.version == owner._version and (it.steps == 1 or it.print == look)
            it.version, it.print, it.step, it.steps = owner._version, look, step, it.steps + 1 if same else 1
            return it.steps == _STEPS
        del known[: max(len(known) + 1 - _MOST_SOURCES, 0)]
        known.append(_Source(weakref.ref(owner), owner._version, 0, step))  # most never return
        return False
