"""Which parameter of a kernel is a buffer, and which; which are positions; what cannot be bound; too many buffers.

Metal's compiler refuses more than 31 buffers. Its texts are those on public logs: pytorch issue 141287 for arguments in
`constant` (a kernel of torch.compile), tinygrad issue 6732 for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anymps.metal.translation._brackets import without_attributes
from anymps.metal.translation._structure import Function, Parameter

MAX_BUFFERS = 31
POSITIONS = frozenset(  # attributes of vectors or numbers
    {
        *("thread_position_in_grid", "threads_per_grid", "thread_position_in_threadgroup", "threads_per_threadgroup"),
        *("dispatch_threads_per_threadgroup", "threadgroup_position_in_grid", "threadgroups_per_grid"),
    }
)
INDICES = frozenset(  # of numbers
    {
        *("thread_index_in_threadgroup", "thread_index_in_simdgroup", "thread_index_in_quadgroup"),
        *("simdgroup_index_in_threadgroup", "quadgroup_index_in_threadgroup", "threads_per_simdgroup"),
        *("simdgroups_per_threadgroup", "quadgroups_per_threadgroup", "thread_execution_width"),
        *("dispatch_simdgroups_per_threadgroup", "dispatch_quadgroups_per_threadgroup"),
    }
)
_VALUES = POSITIONS | INDICES | {"grid_origin", "grid_size"}
_UNFIT = {"threadgroup": "threadgroup memory as a parameter, whose size torch.mps.compile_shader cannot set"}


class Unsupported(Exception):
    """What is not there: `str` names it, `offset` is where it stands in the source, `why` ends the sentence."""

    def __init__(self, what: str, offset: int, why: str = " cannot be used on the virtual mps device") -> None:
        super().__init__(what)
        self.offset, self.why = offset, why

    def sentence(self, place: str) -> str:
        """What is said of it; it stands at `place`."""
        return f"anymps: {self} ({place}){self.why}"


def buffer_places(parameters: Sequence[Parameter]) -> list[int | None]:
    """The buffer of each parameter: the one it names, else the next that nobody names; None for a position."""
    named = {int(p.argument) for p in parameters if p.attribute == "buffer" and p.argument.isdigit()}
    places: list[int | None] = []
    following = 0
    for parameter in parameters:
        if parameter.attribute == "buffer" and parameter.argument.isdigit():
            places.append(int(parameter.argument))
        elif parameter.attribute in _VALUES:
            places.append(None)
        elif parameter.attribute in ("", "buffer"):
            while following in named:
                following += 1
            places.append(following)
            following += 1
        else:
            feature = _UNFIT.get(parameter.attribute, f"the attribute [[{parameter.attribute}]]")
            raise Unsupported(feature, parameter.tokens[0].start)
    return places


def buffer_kind(parameter: Parameter) -> str:
    """How the shim holds it: what lies in `device` is read where it is."""
    return "device_buffer" if any(token.text == "device" for token in parameter.tokens) else "buffer"


def parameter_name(parameter: Parameter) -> str:
    """The name of a kernel's parameter."""
    return [token.text for token in without_attributes(list(parameter.tokens)) if token.kind == "name"][-1]


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
