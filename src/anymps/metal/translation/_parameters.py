"""Which parameter of a kernel is a buffer, and which; which are positions; and what cannot be bound."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.metal.translation._brackets import without_attributes
from anymps.metal.translation._structure import Parameter

_VALUES = frozenset(
    (
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "threads_per_grid",
        "threadgroups_per_grid",
        "thread_index_in_threadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_quadgroup",
        "simdgroup_index_in_threadgroup",
        "quadgroup_index_in_threadgroup",
        "threads_per_simdgroup",
        "thread_execution_width",
        "simdgroups_per_threadgroup",
        "quadgroups_per_threadgroup",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_quadgroups_per_threadgroup",
        "grid_origin",
        "grid_size",
    )
)
_UNFIT = {"threadgroup": "threadgroup memory as a parameter, whose size torch.mps.compile_shader cannot set"}


class Unsupported(Exception):
    """A feature of Metal that is not there; `str` names it, `offset` is where it stands in the source."""

    def __init__(self, feature: str, offset: int) -> None:
        super().__init__(feature)
        self.offset = offset

    def sentence(self, place: str) -> str:
        """What is said of it; it stands at `place`."""
        return f"anymps: {self} ({place}) cannot be used on the virtual mps device"


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
