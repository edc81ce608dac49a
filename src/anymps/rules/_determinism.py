"""What `torch.use_deterministic_algorithms(True)` alerts about on mps, by release, and where only other devices alert.

Source: all callers of `at::Context::alertNotDeterministic` in `libtorch_cpu.dylib` of the macOS arm64 wheels of torch
2.11 to 2.15, with the conditions before the call. Everything else with atomic additions runs without an alert.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anymps._tables import read_table
from anymps.rules._readings import Reading, Release, in_force, ranged
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


ALERTS: Final = [ranged(Alert, given) for given in read_table(__file__, "alerts.toml")["alert"]]
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
