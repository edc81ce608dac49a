"""The numbers in which the rules are handed to the native core and written into recordings."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Fate(IntEnum):
    """What the real backend does with a call of an operator overload."""

    NATIVE = 0
    """An MPS (or SparseMPS, SparseCsrMPS) kernel is registered."""
    FALLBACK = 1
    """No kernel: NotImplementedError, or the CPU with a warning if `PYTORCH_ENABLE_MPS_FALLBACK` was set early."""
    ALWAYS_FALLBACK = 2
    """Registered with the CPU fallback itself: runs on the CPU whatever the variable says (MPSFallback.mm)."""


class Family(IntEnum):
    """Which check an operator makes first when a tensor lies on another device, hence which text it raises."""

    NONE = 0
    """No check: one tensor only, metadata only, or a copy, which may cross devices."""
    ITERATOR = 1
    """TensorIterator: `Expected all tensors to be on the same device, but found at least two devices, ...`"""
    PLACEHOLDER = 2
    """MPSGraph placeholder: `Placeholder storage has not been allocated on MPS device!`"""
    METAL = 3
    """Metal kernel argument: `Passed CPU tensor to MPS op`; a 0-dim CPU tensor is accepted as a constant."""
    SAME_GPU = 4
    """`checkAllSameGPU`: `Tensor for argument #2 'mat2' is on CPU, but expected it to be on GPU ...`"""
    LINEAR = 5
    """`linear`: `Tensor for argument weight is on cpu but expected on mps`."""
    DOT = 6
    """`dot`, `vdot`: `Expected all tensors to be on the same device. Found: mps:0, cpu`."""
    MASKED_FILL = 7
    """`masked_fill_`: `expected self and mask to be on the same device, but got mask on cpu and self on mps:0`."""
    SPARSE = 8
    """Sparse kernels: `add: expected 'other' to be MPS, but got cpu`."""
    GRADSCALER = 9
    """Gradient scaler kernels: `found_inf must be a MPS tensor.`"""
    FUSED_OPTIMIZER = 10
    """Fused optimizers: every tensor list has its own check; wording not verified."""


class Flag(IntFlag):
    """Properties of an operator overload."""

    SCALAR_CPU_OK = 1
    """One 0-dim CPU tensor is accepted among mps tensors."""
    CPU_INDEX_OK = 2
    """Index tensors may lie on the CPU; they are moved."""
    RANDOM = 4
    """Draws from a generator (tag `nondeterministic_seeded`)."""
    VIEW = 8
    """The result shares the storage of the first argument."""
    WAITS_ON_MASK = 16
    """The wait happens only if an index is a bool or uint8 mask."""
    WAITS_ON_SCALAR = 32
    """The wait happens only if the 0-dim operand (value, learning rate) lies on mps."""
    WAITS_ON_ZERO_DIM = 64
    """The wait happens only if the first tensor is 0-dim."""
    WAITS_ON_OPTION = 128
    """The wait depends on an optional argument: see the operator's `WaitRule.condition`."""
    DENSE = 256
    """Registered for the dispatch key MPS."""
    SPARSE = 512
    """Registered for the dispatch key SparseMPS."""
    FROM_PYTHON = 1024
    """torch itself registers the MPS kernel, from Python, maybe on this platform too: do not register a second one."""


NO_FLAGS = Flag(0)
"""None of the properties."""

WAIT_WORDS = (
    "",
    "item",
    "copy to mps",
    "copy to cpu",
    "synchronize",
    "event",
    "empty cache",
    "fallback",
    "inside operator",
)
"""Kinds of host wait; the number stored in a recording is the index."""


class Wait(IntEnum):
    """Index into `WAIT_WORDS`."""

    NONE = 0
    ITEM = 1
    COPY_TO_MPS = 2
    COPY_TO_CPU = 3
    SYNCHRONIZE = 4
    EVENT = 5
    EMPTY_CACHE = 6
    FALLBACK = 7
    INSIDE_OPERATOR = 8
