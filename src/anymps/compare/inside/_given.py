"""What a call was given beside tensors: the program's own numbers, and the known bugs whose conditions it meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from anymps.device import known_hazards, native
from anymps.rules.faults import ELSEWHERE


def numbers_of(args: Any, kwargs: Any) -> list[float]:
    """The numbers of Python among the arguments, in order."""
    return [item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, (int, float))]


class FaultsMet:
    """Tells which of the faults in force on mps a call meets; on another device none is in force."""

    def __init__(self) -> None:
        self._operators = {name for fault in known_hazards() for name in fault.operators}

    def of(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """The ids of those that the call meets, before it is made."""
        schema = func._schema
        if schema.name.rpartition("::")[2] not in self._operators:
            return []
        tensors = pytree.tree_leaves((args, kwargs))
        if not any(isinstance(item, torch.Tensor) and item.device.type == "mps" for item in tensors):
            return []
        named = {said.name: value for said, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
        values = (named.get(said.name, said.default_value) for said in schema.arguments)
        given = tuple(list(value) if isinstance(value, tuple) else value for value in values)
        try:
            met = native().hazards_of(func.name(), given)
        except RuntimeError:  # mps has no kernel of this overload: it calls another one
            return []
        return [identity for identity in met if not identity.startswith(ELSEWHERE)]
