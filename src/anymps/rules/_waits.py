"""Where the host waits for the GPU: operators that read back or synchronise, why, and under which condition.

The rows are in `waits.toml`, with their source. A read-back is `.item()`: a blocking copy of one element.
Not among them although they call `item`: comparisons, logical operators and `pow` (BinaryOps.mm reads the value of a
0-dim CPU tensor, which waits for nothing) and `nonzero_static` (Indexing.mm skips the count when a size is given).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from anymps._tables import read_table
from anymps._vocabulary import Wait
from anymps.rules._encoding import When
from anymps.rules._readings import Reading, Release, holds, ranged
from anymps.rules._versions import OLDEST, TorchVersion, check_supported

READING: Final = Reading(
    "waits",
    "callers of synchronize, copy_and_sync and Tensor::item in the macOS arm64 wheels, and the kernels' sources",
    (2, 11),
    (2, 15),
)


@dataclass(frozen=True)
class SyncPoint:
    """Why operators make the host wait.

    `what` says what the host waits for; `condition` says when, if not always, and `when` is the name by which the
    native core knows it. `operators` are base names (all overloads) or `name.overload`, `sparse` those whose sparse
    kernel waits. The rule holds from release `since` to release `until`, both included; None: no end was seen up to
    `READING.last`.
    """

    what: str
    operators: tuple[str, ...]
    kind: Wait = Wait.INSIDE_OPERATOR
    source: str = "callers of Tensor::item in libtorch_cpu.dylib, torch 2.11 to 2.15"
    condition: str = ""
    when: When = When.ALWAYS
    sparse: bool = False
    since: Release = OLDEST
    until: Release | None = None


def _wait(given: dict[str, Any]) -> SyncPoint:
    kind = Wait[given.get("kind", "inside_operator").upper()]
    return ranged(SyncPoint, {**given, "kind": kind, "when": When(given.get("when", When.ALWAYS))})


WAITS: Final = {name: _wait(given) for name, given in read_table(__file__, "waits.toml").items()}
"""Every rule by a short stable name."""


def wait_of(name: str, version: str | TorchVersion, *, sparse: bool = False) -> SyncPoint | None:
    """The rule for an operator overload (`nonzero`, `index.Tensor`), or None if it does not make the host wait.

    `sparse` asks for its sparse kernel. Raises UnsupportedTorchError outside the supported range of torch.
    """
    table = _table(check_supported(version).release, sparse)
    return table.get(name if "." in name else f"{name}.", table.get(name.partition(".")[0]))


@lru_cache(maxsize=10)
def _table(release: tuple[int, int], sparse: bool) -> dict[str, SyncPoint]:
    rules = (rule for rule in WAITS.values() if holds(rule, release) and rule.sparse == sparse)
    return {operator: rule for rule in rules for operator in rule.operators}
