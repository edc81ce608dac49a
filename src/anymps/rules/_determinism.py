"""What `torch.use_deterministic_algorithms(True)` alerts about on mps, by release, and where only other devices alert.

Source: all callers of `at::Context::alertNotDeterministic` in `libtorch_cpu.dylib` of the macOS arm64 wheels of torch
2.11 to 2.15, with the conditions before the call. Everything else with atomic additions runs without an alert.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anymps.rules._readings import Reading, Release, in_force
from anymps.rules._versions import OLDEST, TorchVersion, check_supported

READING: Final = Reading(
    "determinism", "callers of alertNotDeterministic in libtorch_cpu.dylib, macOS arm64 wheels", (2, 11), (2, 15)
)


class Alert(NamedTuple):
    """Operators (base names: all overloads) that alert under `name`.

    `floating`: only if the first tensor is of floating or complex type. `argument`: only if it has one of `values`; of
    a mask (`output_mask`) the first element counts. `until` is None where no end was seen up to `READING.last`.
    """

    operators: tuple[str, ...]
    name: str
    floating: bool = False
    argument: str = ""
    values: tuple[str, ...] = ()
    since: Release = OLDEST
    until: Release | None = None


_ORDER_MATTERS: Final = ("sum", "mean", "prod", "add", "multiply")

ALERTS: Final = (
    Alert(("kthvalue",), "kthvalue MPS"),
    Alert(("_index_put_impl_",), "index_put_with_accumulate_mps", True, "accumulate", ("True",), since=(2, 13)),
    Alert(("index_reduce", "index_reduce_"), "index_reduce_mps", True, "reduce", ("prod", "mean"), since=(2, 13)),
    Alert(("scatter_add", "scatter_add_"), "scatter_reduce_mps", True, since=(2, 13)),
    Alert(
        ("scatter", "scatter_", "scatter_reduce", "scatter_reduce_"),
        "scatter_reduce_mps",
        True,
        "reduce",
        _ORDER_MATTERS,
        since=(2, 13),
    ),
    Alert(("embedding_dense_backward",), "embedding_dense_backward_mps", since=(2, 15)),
    Alert(("_embedding_bag_dense_backward",), "_embedding_bag_dense_backward_mps", since=(2, 15)),
    Alert(
        ("_embedding_bag_per_sample_weights_backward",),
        "_embedding_bag_per_sample_weights_backward_mps",
        since=(2, 15),
    ),
    Alert(("grid_sampler_2d_backward",), "grid_sampler_2d_backward_mps", since=(2, 15)),
    Alert(("grid_sampler_3d_backward",), "grid_sampler_3d_backward_mps", since=(2, 15)),
)
"""Every alert of the MPS kernels whose name is known."""

SILENT: Final = frozenset({"max_unpool2d", "max_unpool3d"})
"""Operators with an MPS kernel that does not alert, while the CPU kernel does."""

AlertRow = tuple[str, bool, str, tuple[str, ...]]
"""(name, only floating, argument, values)"""


def alerts(version: str | TorchVersion) -> dict[str, AlertRow]:
    """The alerts of a release by base name of the operator; an empty name silences the CPU kernel's own.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    table: dict[str, AlertRow] = dict.fromkeys(sorted(SILENT), ("", False, "", ()))
    for alert in in_force(ALERTS, release):
        table |= dict.fromkeys(alert.operators, (alert.name, alert.floating, alert.argument, alert.values))
    return table
