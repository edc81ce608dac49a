"""What a known bug of the real backend is: the call it concerns, what goes wrong, and which Macs have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anymps.rules._encoding import Family
from anymps.rules._readings import Release
from anymps.rules._versions import OLDEST

NO_END: Release = (1000, 0)
"""The end of a range of macOS that has none."""


class Check(str, Enum):
    """How a call is recognised: the name of a condition in `native/rules/hazard_checks.cpp` and beside it."""

    NARROWING_COPY = "narrowing_copy"
    OFFSET_COPY = "offset_copy"
    GAPPY_COPY = "gappy_copy"
    DOUBLE_COPY = "double_copy"
    CPU_SCALAR_VIEW = "cpu_scalar_view"
    LONG_INNER = "long_inner"
    LONG_INNER_BACKWARD = "long_inner_backward"
    LONG_INNER_BATCHED = "long_inner_batched"
    EXPANDED_MATRIX = "expanded_matrix"
    IGNORED_SUMMAND = "ignored_summand"
    BIAS_OF_BATCHES = "bias_of_batches"
    BIAS_OF_VECTORS = "bias_of_vectors"
    BROADCAST_SOLVE = "broadcast_solve"
    NO_FEATURES = "no_features"
    SINGLE_OUTPUT_BACKWARD = "single_output_backward"
    VECTOR_WEIGHT_BACKWARD = "vector_weight_backward"
    HUGE_BATCHED = "huge_batched"
    INTEGERS = "integers"
    BFLOAT16 = "bfloat16"
    COMPLEX = "complex"
    LARGE_UNIQUE = "large_unique"
    BESIDE_EDGES = "beside_edges"
    LATE_PIVOT = "late_pivot"
    INT64_ROW = "int64_row"
    ZERO_DIVISORS = "zero_divisors"
    STRIDED_WEIGHT = "strided_weight"
    CHANNEL_SLICE = "channel_slice"
    WIDE_KERNEL = "wide_kernel"
    LARGE_MINIBATCH = "large_minibatch"
    LARGE_OUTPUT = "large_output"
    CONVOLUTION_3D = "convolution_3d"
    STRIDED_NORM = "strided_norm"
    STRIDED_NORM_5D = "strided_norm_5d"
    NORM_WITHOUT_INPUT_GRADIENT = "norm_without_input_gradient"
    CANCELLING_LAYER_NORM = "cancelling_layer_norm"
    CANCELLING_GROUP_NORM = "cancelling_group_norm"
    MIXED_LAYER_NORM = "mixed_layer_norm"
    MIXED_LAYER_NORM_BACKWARD = "mixed_layer_norm_backward"
    MIXED_BATCH_NORM = "mixed_batch_norm"
    LSTM_DROPOUT = "lstm_dropout"
    LSTM_DROPOUT_BACKWARD = "lstm_dropout_backward"
    LSTM_STRIDED = "lstm_strided"
    UNEVEN_WINDOWS = "uneven_windows"
    VALUE_WIDTH = "value_width"
    CAUSAL_HALF = "causal_half"
    MASK_BY_BATCH = "mask_by_batch"
    OUTER_TRANSFORM = "outer_transform"
    BATCHED_MATRICES = "batched_matrices"
    DROPOUT = "dropout"
    ELEMENTS = "elements"
    CAT_ELEMENTS = "cat_elements"
    FOLD_ELEMENTS = "fold_elements"
    MATMUL_OUTPUT = "matmul_output"
    BYTES = "bytes"
    DETERMINISTIC = "deterministic"
    EVENT_HANGS = "event_hangs"
    EVENT_MAY_HANG = "event_may_hang"
    HOST_CACHE = "host_cache"
    GRAD_SCALER = "grad_scaler"
    HALF_GRADIENTS = "half_gradients"
    THREADS = "threads"
    COMPILED_LAYER_NORM = "compiled_layer_norm"
    """This and the one before are not recognised at a call: they are read from the recording."""


class Outcome(Enum):
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


_DIRE = frozenset({Outcome.ABORTS, Outcome.MAY_ABORT, Outcome.HANGS, Outcome.MAY_HANG})

_CHIPS = {"apple7": "M1", "apple8": "M2"}
"""The chips of the Metal families that rows name."""


@dataclass(frozen=True)
class Hazard:
    """One known bug.

    `id` is the finding's. `operators` are base names (`mm` stands for all overloads); instead of them `family` may name
    all operators with that device check. `low` and `high` bound what the check measures (0: none). `what` goes wrong in
    which call, `fix` is the smallest way around, `example` a few lines of Python that
    meet it, of the first row of an `id`. Applies to torch release `since` to `until`, both included: the
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
    example: str = ""
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
    def is_dire(self) -> bool:
        """Whether the process may not live to tell of the call."""
        return self.outcome in _DIRE

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
