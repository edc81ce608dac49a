"""Tells a program's optimizers apart: one that is made anew for the same parameters is the same. Needs torch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection

import torch
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary


class OptimizerNumbers:
    """A number for each optimizer, by its first parameters: how many there are, and which is first.

    One that is made anew in each round keeps its number, and so does one that is given further groups. Optimizers of
    other parts of the same modules have others.
    """

    def __init__(self) -> None:
        self._by_parameter = WeakTensorKeyDictionary()
        self._without: weakref.WeakKeyDictionary[Optimizer, dict[int, int]] = weakref.WeakKeyDictionary()
        self._older: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._count = 0

    def number(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, from 1 on."""
        parameters = optimizer.param_groups[0]["params"]
        # A wrapper may say that it has another's parameters, which are no tensors then.
        has_one = bool(parameters) and isinstance(parameters[0], torch.Tensor)
        known, key = (self._by_parameter, parameters[0]) if has_one else (self._without, optimizer)
        numbers: dict[int, int] = known.setdefault(key, {})
        if len(parameters) not in numbers:
            self._count += 1
            numbers[len(parameters)] = self._count
        return numbers[len(parameters)]

    def leave_out_older(self) -> None:
        """Have `existing` leave out the optimizers made so far: most are left over from what ran before."""
        self._older.update(_made())

    def existing(self) -> Collection[int]:
        """The numbers of the optimizers that there are in this process, whether they have stepped or not."""
        made = (found for found in _made() if found not in self._older)
        return {self.number(optimizer) for optimizer in made if getattr(optimizer, "param_groups", None)}


def _made() -> list[Optimizer]:
    return [found for found in gc.get_objects() if issubclass(type(found), Optimizer)]  # asks no proxy what it is
