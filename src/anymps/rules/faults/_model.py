"""What a known bug of the real backend is: the call it concerns, what goes wrong, and which Macs have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from anymps.rules._encoding import Family
from anymps.rules._readings import Release
from anymps.rules._versions import OLDEST

FIRST_ASKED: Final[Release] = (2, 7)
"""The first release that rows tell of; the device supports those from `OLDEST` on."""
NO_END: Release = (1000, 0)
"""The end of a range of macOS that has none."""


# What Python itself knows of the conditions by which calls are recognised: the names of some that the native core has,
# and of two that are read from the recording.
NARROWING_COPY: Final = "narrowing_copy"
GRAD_SCALER: Final = "grad_scaler"
THREADS: Final = "threads"
COMPILED_LAYER_NORM: Final = "compiled_layer_norm"
BATCHED_MATRICES: Final = "batched_matrices"

SIZE: Final = "elements"
"""The check that a call meets by the size of its first tensor alone, which its signature tells."""

ELSEWHERE: Final = "elsewhere."
"""Before the id of a bug that is only noted, because another release, macOS or GPU has it."""


class Effect(Enum):
    """What a Mac does with such a call."""

    WRONG = "computes something else, without a word"
    MAY_BE_WRONG = "can compute something else, without a word"
    VARIES = "computes something else from run to run"
    OPEN = "gives any number, without a word"
    ABORTS = "ends the process"
    MAY_ABORT = "can end the process"
    HANGS = "never returns"
    MAY_HANG = "can wait for ever"
    RAISES = "raises"
    SLOW = "takes longer than it need"


_DIRE = frozenset({Effect.ABORTS, Effect.MAY_ABORT, Effect.HANGS, Effect.MAY_HANG})

_CHIPS = {"apple7": "M1", "apple8": "M2", "apple10": "M5"}
"""The chips of the Metal families that rows name."""


@dataclass(frozen=True)
class Hazard:
    """One known bug.

    `id` is the finding's. `operators` are base names (`mm` stands for all overloads); instead of them `family` may name
    all operators with that device check. `check` is how a call is recognised: the name of a condition in
    `native/rules/hazard_checks.cpp` and beside it; the native core refuses one that it does not know. `low` and `high`
    bound what the check measures (0: none). `what` goes wrong in which call, `fix` is the smallest way around,
    `example` a few lines of Python that meet it, of the first row of an `id`. Applies to torch release `since` to
    `until`, both included: the last in which somebody saw it or read that it is open. Of a later one nothing is
    claimed. `begins` says whether earlier ones are known to be right. `fixed` is the first release without it, None if
    that is open or not known. `macos` are ranges of versions, the end excluded, `metal_families` the GPUs; empty: all.
    The virtual device raises `text` if there is one, as the exception `error`: the backend's own words, or ours where a
    Mac would abort or hang. `factor` is, of a slow path, how many times as long the call takes: the lowest and the
    highest measured.
    """

    id: str
    title: str
    operators: tuple[str, ...]
    check: str
    effect: Effect
    what: str
    fix: str
    issues: tuple[int, ...]
    source: str
    example: str = ""
    low: int = 0
    high: int = 0
    since: Release = OLDEST
    begins: bool = False
    until: Release = field(kw_only=True)
    fixed: Release | None = None
    macos: tuple[tuple[Release, Release], ...] = ()
    metal_families: frozenset[str] = frozenset()
    family: Family | None = None
    error: str = "RuntimeError"
    text: str = ""
    factor: tuple[float, float] = (1.0, 1.0)

    def holds(self, torch: Release, macos: Release, metal_family: str) -> bool:
        """Whether a Mac with that torch release, macOS and GPU family has the fault."""
        return (
            self.since <= torch <= self.until
            and (not self.macos or any(first <= macos < after for first, after in self.macos))
            and (not self.metal_families or metal_family in self.metal_families)
        )

    def has(self, torch: Release) -> bool | None:
        """Whether a release has the fault, on the Macs that it concerns; None where nobody has told."""
        if self.since <= torch <= self.until:
            return True
        known = self.begins if torch < self.since else self.fixed is not None and torch >= self.fixed
        return False if known else None

    @property
    def times(self) -> str:
        """Of a slow path: `13 to 30 times`."""
        low, high = (f"{number:.3g}" if number < 10 else f"{number:,.0f}" for number in self.factor)
        return f"{low} times" if low == high else f"{low} to {high} times"

    @property
    def is_slow(self) -> bool:
        """Whether the values are right, and late."""
        return self.effect is Effect.SLOW

    @property
    def is_dire(self) -> bool:
        """Whether the process may not live to tell of the call."""
        return self.effect in _DIRE

    @property
    def releases(self) -> str:
        """The releases of torch that have it: `2.11 to 2.13`."""
        first, last = (".".join(map(str, release)) for release in (self.since, self.until))
        return first if first == last else f"{first} to {last}"

    @property
    def fixed_in(self) -> str:
        """The first release without it, empty if that is open or not known."""
        return ".".join(map(str, self.fixed)) if self.fixed else ""

    @property
    def on_macos(self) -> str:
        """The versions of macOS that have it, empty for all: `from 26.0 before 27.0`."""
        spans = []
        for start, end in self.macos:
            words = [] if start == (0, 0) else [f"from {start[0]}.{start[1]}"]
            spans.append(" ".join([*words, *([] if end == NO_END else [f"before {end[0]}.{end[1]}"])]))
        return " or ".join(spans)

    @property
    def gpus(self) -> str:
        """The GPUs that have it, empty for all: `M1 and M2`."""
        return " and ".join(_CHIPS[family] for family in sorted(self.metal_families))

    @property
    def where(self) -> str:
        """The releases, macOS versions and GPUs that have it: `torch 2.11 to 2.13 (fixed in 2.14)`."""
        words = f"torch {self.releases}" + (f" (fixed in {self.fixed_in})" if self.fixed else "")
        words += f", macOS {self.on_macos}" if self.macos else ""
        return f"{words}, {self.gpus}" if self.metal_families else words


def sources_of(rows: Sequence[Hazard]) -> tuple[str, ...]:
    """What backs the rows of one known bug, each once: pytorch's issues, then the other sources."""
    issues = ", ".join(f"#{number}" for number in dict.fromkeys(number for row in rows for number in row.issues))
    return (*([f"pytorch issue {issues}"] if issues else []), *dict.fromkeys(row.source for row in rows))
