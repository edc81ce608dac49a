"""The closed vocabularies of a recording: phases, waits, directions, fates, flags and kinds of refusal."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag


class _Vocabulary(IntEnum):
    """A stored number whose member name is its word, in capitals and with underscores."""

    @property
    def label(self) -> str:
        """The word as `docs/architecture/recording-file.md` lists it: `loss read`; the empty text for NONE."""
        return "" if self.name == "NONE" else self.name.lower().replace("_", " ")


class Phase(_Vocabulary):
    """The part of a training step that an entry belongs to."""

    OTHER = 0
    """Outside of all others: clipping and logging between backward and optimizer, set-up code."""
    BATCH = 1
    """The data loader makes the batch."""
    MOVE = 2
    """The batch goes to the device."""
    FORWARD = 3
    LOSS_READ = 4
    """A value is read back outside of any module, most often the loss."""
    BACKWARD = 5
    OPTIMIZER = 6


class RoundKind(_Vocabulary):
    """What a program's loop does once a round, or a few times."""

    OPTIMIZER = 1
    """An optimizer's step."""
    BACKWARD = 2
    MODULE = 3
    """A module's call that is part of no other one's."""
    BATCH = 4
    """A data loader makes a batch, or ends."""
    CALLED = 5
    """Whoever records called for a step, and says where it ends."""


class Wait(_Vocabulary):
    """Why the host waited for the GPU. Waits: torch 2.13, callers of MPSStream::synchronize (MPSStream.mm, Copy.mm)."""

    NONE = 0
    ITEM = 1
    """One value read: `.item()`, `float()`, `int()`, `bool()` (`_local_scalar_dense`)."""
    COPY_TO_MPS = 2
    """A blocking copy to the device."""
    COPY_TO_CPU = 3
    """A blocking copy from the device."""
    SYNCHRONIZE = 4
    EVENT = 5
    EMPTY_CACHE = 6
    FALLBACK = 7
    """An operator without an MPS kernel ran on the CPU."""
    INSIDE_OPERATOR = 8
    """An operator read a size or a status back inside its own kernel, as `nonzero` does."""


class Direction(_Vocabulary):
    """Which way bytes went."""

    NONE = 0
    CPU_TO_MPS = 1
    MPS_TO_CPU = 2
    MPS_TO_MPS = 3


class Fate(_Vocabulary):
    """What happens to an operator call on mps."""

    NATIVE = 0
    """Ran in an MPS kernel."""
    FALLBACK = 1
    """Ran on the CPU because `PYTORCH_ENABLE_MPS_FALLBACK` was set."""
    ALWAYS_FALLBACK = 2
    """Ran on the CPU whatever the variable says: registered so in MPSFallback.mm."""
    MISSING = 3
    """Raised: no MPS kernel, and the fallback is off."""
    REFUSED = 4
    """Raised: the kernel or the allocator refuses this input."""
    COPY = 5
    WAIT = 6
    """Only waits: `synchronize`, an event, `empty_cache`."""
    MARK = 7
    """No operator: a mark of our own on the tape."""


class Flag(IntFlag):
    """Bits of an entry's `flags`."""

    NON_BLOCKING = 1
    """A copy with `non_blocking=True`: the host did not wait."""
    RAISED = 2
    AUTOGRAD_THREAD = 4
    """Run by a backward, on whatever thread."""
    VIEW = 8
    """The result shares its input's storage: no kernel ran."""
    HAZARD = 16
    """A mark: the call that follows meets a known bug of the real backend."""
    UNSAFE_COPY = 32
    """A mark: the host's side of a non_blocking copy was touched before a wait."""
    PAIR = 64
    """A mark whose `sequence` holds another line that belongs to it. It takes no time."""


class Role(_Vocabulary):
    """What a module says that an allocation is for."""

    NONE = 0
    PARAMETER = 1
    BUFFER = 2
    """A module's buffer, such as a running mean."""


class RefusalKind(str, Enum):
    """Why MPS refused a call; the word is what the file stores."""

    MISSING = "missing"
    FLOAT64 = "float64"
    COMPLEX128 = "complex128"
    DTYPE = "dtype"
    DEVICE = "device"
    GENERATOR = "generator"
    RANK = "rank"
    LAYOUT = "layout"
    MEMORY = "memory"
    DISTRIBUTED = "distributed"
    ARGUMENT = "argument"
    """A shape, an option or another argument that the kernel does not take."""
    INDEX = "index"
    """A bad index or value that the device finds while it runs. It is raised at the next wait, at `origin`."""
    DETERMINISM = "determinism"
    """`torch.use_deterministic_algorithms(True)`, and the kernel is not."""
