"""How many buffers a kernel may take: Metal's compiler refuses more than 31.

The texts are those of Metal's compiler on public logs: pytorch issue 141287 for arguments in `constant` (a kernel of
torch.compile), tinygrad issue 6732 for others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anymps.metal.translation._parameters import Unsupported, buffer_places
from anymps.metal.translation._structure import Function, Parameter

MAX_BUFFERS = 31


class Refused(NamedTuple):
    """What Metal's compiler says, and where in the source."""

    text: str
    offset: int


def refused_buffers(kernels: Iterable[Function]) -> Refused | None:
    """What Metal's compiler says of the first kernel with too many buffers; None if no kernel has."""
    for function in kernels:
        parameters = function.parameters
        try:
            found = buffer_places(parameters)
        except Unsupported:
            continue  # it is refused by itself
        constants = [
            constant for constant in parameters if constant.attribute in ("", "buffer") and _is_constant(constant)
        ]
        if len(constants) > MAX_BUFFERS:
            name = next(token for token in function.head if token.text == function.name)
            return Refused(f"number of constant buffers exceeds maximum supported ({MAX_BUFFERS})", name.start)
        for parameter, place in zip(parameters, found, strict=True):
            if place is not None and place >= MAX_BUFFERS and parameter.attribute == "":
                name = next(token for token in reversed(parameter.tokens) if token.kind == "name")
                return Refused(f"no 'buffer' resource location available for '{name.text}'", name.start)
    return None


def _is_constant(parameter: Parameter) -> bool:
    return any(token.text == "constant" for token in parameter.tokens)
