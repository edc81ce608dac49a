"""What to write instead of an operator without an MPS kernel, and the release in which it got one.

The releases come from `native_functions.yaml` of the macOS wheels, torch 2.7 to 2.15. The replacements use only
operators with an MPS kernel since 2.11; the tests hold each against the operator it replaces.
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

NATIVE_SINCE: dict[str, tuple[int, int]] = {
    "_ctc_loss": (2, 14),
    "_ctc_loss_backward": (2, 14),
    "_int_mm": (2, 15),
    "_linalg_eigh": (2, 14),
    "_linalg_svd": (2, 14),
    "_scaled_mm_v2": (2, 15),
    "_upsample_bicubic2d_aa_backward": (2, 14),
    "_upsample_bilinear2d_aa_backward": (2, 14),
    "binomial": (2, 14),
    "frexp": (2, 15),
    "geqrf": (2, 14),
    "heaviside": (2, 15),
    "linalg_lstsq": (2, 14),
    "linalg_matrix_exp": (2, 14),
    "linalg_svd": (2, 14),
    "logspace": (2, 15),
    "poisson": (2, 14),
    "put_": (2, 15),
    "special_laguerre_polynomial_l": (2, 15),
    "take": (2, 15),
}
"""First release with an MPS kernel, by the operator's base name, for those that came after 2.13."""


def base_name(operator: str) -> str:
    """`heaviside` of `aten::heaviside.out`."""
    return operator.rpartition("::")[2].partition(".")[0]


def equivalent(operator: str) -> Equivalent | None:
    """What to write instead of `operator` (`aten::heaviside.out`), if something is known."""
    return EQUIVALENTS.get(base_name(operator))


def native_since(operator: str) -> tuple[int, int] | None:
    """The first release in which `operator` has an MPS kernel, if it is known and later than 2.13."""
    return NATIVE_SINCE.get(base_name(operator))
