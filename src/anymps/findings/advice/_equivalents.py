"""What to write instead of an operator without an MPS kernel.

The replacements use only operators with an MPS kernel since 2.11; the tests hold each against the operator it replaces.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Equivalent:
    """`instead` computes the same as `call`, with MPS kernels only. Both are Python expressions."""

    call: str
    instead: str


EQUIVALENTS: dict[str, Equivalent] = {
    "channel_shuffle": Equivalent("F.channel_shuffle(x, g)", "x.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2)"),
    "heaviside": Equivalent("torch.heaviside(x, v)", "torch.where(x == 0, v, (x > 0).to(x.dtype))"),
    "logspace": Equivalent("torch.logspace(a, b, n)", "10.0 ** torch.linspace(a, b, n)"),
    "put_": Equivalent("x.put_(i, v)", "x.view(-1)[i] = v"),
    "take": Equivalent("torch.take(x, i)", "x.flatten()[i]"),
}
"""By the operator's base name; an out variant has the same name."""


def base_name(operator: str) -> str:
    """`heaviside` of `aten::heaviside.out`."""
    return operator.rpartition("::")[2].partition(".")[0]


def equivalent(operator: str) -> Equivalent | None:
    """What to write instead of `operator` (`aten::heaviside.out`), if something is known."""
    return EQUIVALENTS.get(base_name(operator))
