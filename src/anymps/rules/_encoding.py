"""The vocabulary in which rules are passed to the native core: device checks, traits, wait conditions."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag


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


class Trait(IntFlag):
    """Properties of an operator overload; the native core's enum is generated from it."""

    SCALAR_CPU_OK = 1
    """One 0-dim CPU tensor is accepted among mps tensors."""
    CPU_INDEX_OK = 2
    """Index tensors may lie on the CPU; they are moved."""
    RANDOM = 4
    """Draws from a generator (tag `nondeterministic_seeded`)."""
    ALIASES = 8
    """The result shares the storage of the first argument."""
    DENSE = 16
    """Registered for the dispatch key MPS."""
    SPARSE = 32
    """Registered for the dispatch key SparseMPS."""
    FROM_PYTHON = 64
    """torch itself registers the MPS kernel, from Python, maybe on this platform too: do not register a second one."""


NO_TRAITS = Trait(0)
"""None of the properties."""


class When(str, Enum):
    """On which arguments it depends whether an operator waits.

    The native core knows each condition by this name (`rules/wait_conditions.cpp`), and refuses one that it does not.
    """

    ALWAYS = "always"
    INDEX_IS_MASK = "index_is_mask"
    """An index is a bool or uint8 mask."""
    SCALAR_ON_MPS = "scalar_on_mps"
    """The 0-dim operand (value, probability, learning rate) is on mps."""
    ZERO_DIM = "zero_dim"
    """The first tensor is 0-dim."""
    NO_OUTPUT_SIZE = "no_output_size"
    """`output_size` of `repeat_interleave` is not given."""
    SORTER_GIVEN = "sorter_given"
    """`sorter` of `searchsorted` is given."""
    EQUAL_ENDS = "equal_ends"
    """`min` and `max` of `histc` are equal, and the tensor is not empty."""
    NO_RANGE = "no_range"
    """`range` of a histogram is not given, and the tensor is not empty."""
    FIRST_IS_SPARSE = "first_is_sparse"
    BOTH_ARE_SPARSE = "both_are_sparse"
