"""Random tensors of the device beside the reference of their stream, for the tests of random numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from reference_philox import Number, Reference

Draw = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
since_2_12 = pytest.mark.skipif(VERSION < (2, 12), reason="_standard_gamma has an mps kernel from torch 2.12 on")
DTYPES = {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "uchar": torch.uint8,
    "char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "ushort": torch.uint16,
    "uint": torch.uint32,
    "ulong": torch.uint64,
    "bool": torch.bool,
}
FLOATING = ["float", "half", "bfloat"]
GEOMETRIC = [*FLOATING, "uchar", "char", "short", "int", "long"]
BERNOULLI = [*GEOMETRIC, "bool"]
STEP = {"float": 2e-6, "half": 2e-3, "bfloat": 2e-2}  # relative room for functions that libraries round differently
# Around a block (4), around the 16 blocks that are made side by side (64), and more.
SIZES = [1, 2, 3, 4, 5, 31, 63, 64, 65, 67, 130, 257]
SEED, OFFSET = 2**40 + 11, 7


def pair(seed: int = SEED, offset: int = OFFSET) -> tuple[torch.Generator, Reference]:
    """A generator of the device and the reference, at the same place of the same stream."""
    generator = torch.Generator("mps").manual_seed(seed)
    generator.set_offset(offset)
    return generator, Reference(seed, offset)


def state_of(generator: torch.Generator) -> bytes:
    """The 44 bytes of its state."""
    return bytes(generator.get_state().tolist())


def empty(kind: str, *sizes: int) -> torch.Tensor:
    """A tensor on the device, of a type in Metal's words."""
    return torch.empty(*sizes, dtype=DTYPES[kind], device="mps")


def elements(tensor: torch.Tensor) -> list[Number]:
    """The elements, row by row."""
    assert tensor.device.type == "mps"
    values: list[Number] = tensor.cpu().flatten().tolist()
    return values


def reference_numbers(reference: Reference) -> list[Number]:
    """The next five uniforms of a reference."""
    return reference.uniform("float", 5, 0.0, 1.0)


def assert_close(kind: str, wanted: list[Number], tensor: torch.Tensor, scale: float = 0.0) -> None:
    """Elements agree but for the rounding of log, exp, cos and the like; `scale` is that of what was added to them."""
    got = elements(tensor)
    assert len(wanted) == len(got)
    for one, other in zip(wanted, got, strict=True):
        assert abs(one - other) <= STEP[kind] * max(abs(one), scale, 1e-6), (one, other)
