"""What a known fault of the real backend is: the call it concerns, what goes wrong, and which Macs have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from anymps.rules._encoding import Family
from anymps.rules._readings import Release
from anymps.rules._versions import OLDEST

NO_END: Release = (1000, 0)
"""The end of a range of macOS that has none."""


class Check(IntEnum):
    """How a call is recognised; the numbers and the conditions are those of `native/law/hazard_checks.cpp`."""

    NARROWING_COPY = 0
    OFFSET_COPY = 1
    GAPPY_COPY = 2
    DOUBLE_COPY = 3
    CPU_SCALAR_VIEW = 4
    LONG_INNER = 5
    LONG_INNER_BACKWARD = 6
    LONG_INNER_BATCHED = 7
    EXPANDED_MATRIX = 8
    HUGE_BATCHED = 9
    INTEGERS = 10
    STRIDED_WEIGHT = 11
    CHANNEL_SLICE = 12
    WIDE_KERNEL = 13
    LARGE_MINIBATCH = 14
    LARGE_OUTPUT = 15
    CONVOLUTION_3D = 16
    STRIDED_NORM = 17
    STRIDED_NORM_5D = 18
    NORM_WITHOUT_INPUT_GRADIENT = 19
    LSTM_DROPOUT = 20
    LSTM_DROPOUT_BACKWARD = 21
    LSTM_STRIDED = 22
    VALUE_WIDTH = 23
    CAUSAL_HALF = 24
    DROPOUT = 25
    ELEMENTS = 26
    CAT_ELEMENTS = 27
    FOLD_ELEMENTS = 28
    MATMUL_OUTPUT = 29
    BYTES = 30
    DETERMINISTIC = 31
    EVENT_HANGS = 32
    EVENT_MAY_HANG = 33
    GRAD_SCALER = 34
    THREADS = 35
    COMPILED_LAYER_NORM = 36
    """This and the one before are not recognised at a call: they are read from the recording."""


class Outcome(Enum):
    """What a Mac does with such a call."""

    WRONG = "computes something else, without a word"
    MAY_BE_WRONG = "can compute something else, without a word"
    VARIES = "computes something else from run to run"
    ABORTS = "ends the process"
    MAY_ABORT = "can end the process"
    HANGS = "never returns"
    MAY_HANG = "can wait for ever"
    RAISES = "raises"


@dataclass(frozen=True)
class Hazard:
    """One known fault.

    `id` is the finding's. `operators` are base names (`mm` stands for all overloads); instead of them `family` may name
    all operators with that device check. `low` and `high` bound what the check measures (0: none). `what` goes wrong in
    which call, `fix` is the smallest way around. It holds from torch release `since` to `until`, both included: the
    last in which somebody saw it or read that it is open. Of a later one nothing is claimed. `fixed` is the first
    release without it, None if that is open or not known. `macos` are ranges of versions, the end excluded,
    `metal_families` the GPUs; empty: all. The virtual device raises `text` if there is one, as the exception `error`:
    the backend's own words, or ours where a Mac would abort or hang.
    """

    id: str
    title: str
    operators: tuple[str, ...]
    check: Check
    outcome: Outcome
    what: str
    fix: str
    issues: tuple[int, ...]
    source: str
    low: int = 0
    high: int = 0
    since: Release = OLDEST
    until: Release = field(kw_only=True)
    fixed: Release | None = None
    macos: tuple[tuple[Release, Release], ...] = ()
    metal_families: frozenset[str] = frozenset()
    family: Family | None = None
    error: str = "RuntimeError"
    text: str = ""

    def holds(self, torch: Release, macos: Release, metal_family: str) -> bool:
        """Whether a Mac with that torch release, macOS and GPU family has the fault."""
        return (
            self.since <= torch <= self.until
            and (not self.macos or any(first <= macos < after for first, after in self.macos))
            and (not self.metal_families or metal_family in self.metal_families)
        )

    @property
    def where(self) -> str:
        """The releases, macOS versions and GPUs that have it: `torch 2.11 to 2.13 (fixed in 2.14)`."""
        first, last = (".".join(map(str, release)) for release in (self.since, self.until))
        words = f"torch {first}" if first == last else f"torch {first} to {last}"
        words += f" (fixed in {'.'.join(map(str, self.fixed))})" if self.fixed else ""
        for start, end in self.macos:
            words += ", macOS" if start == (0, 0) else f", macOS from {start[0]}.{start[1]}"
            words += "" if end == NO_END else f" before {end[0]}.{end[1]}"
        if self.metal_families:
            words += f", GPUs of Metal family {' and '.join(sorted(self.metal_families))}"
        return words
