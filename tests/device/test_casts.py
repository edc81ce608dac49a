"""Casts on the device: which dtypes it knows, by torch release, and its words to the others."""

from __future__ import annotations

from itertools import permutations
from typing import Final

import pytest
import torch

from anymps.rules import SCALAR_TYPES, castable_dtypes, installed_torch, refused_cast
from device.compare import assert_same, text_of

pytestmark = [
    pytest.mark.usefixtures("mps_device"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real discards the imaginary part:UserWarning"),
]

RELEASE: Final = installed_torch().version.release
KNOWN: Final = tuple(getattr(torch, name) for name in castable_dtypes(torch.__version__))
UNKNOWN: Final = {
    getattr(torch, name): scalar_type
    for name, scalar_type in {
        "float8_e4m3fn": "Float8_e4m3fn",
        "float8_e5m2": "Float8_e5m2",
        "float8_e4m3fnuz": "Float8_e4m3fnuz",
        "float8_e5m2fnuz": "Float8_e5m2fnuz",
    }.items()
    if name not in castable_dtypes(torch.__version__)
}
ERROR: Final = RuntimeError if RELEASE >= (2, 13) else TypeError


def on_mps(dtype: torch.dtype) -> torch.Tensor:
    """Ones of a dtype that may not be cast to: the CPU casts, the copy moves bytes."""
    return torch.ones(2, 3).to(dtype).to("mps")


@pytest.mark.parametrize(("source", "target"), list(permutations(KNOWN, 2)), ids=str)
def test_every_known_dtype_is_cast_to_every_other(source: torch.dtype, target: torch.dtype) -> None:
    """The kernels of a release store each of its dtypes as any other."""
    x = on_mps(source)
    assert_same(x.to(target), x.cpu().to(target))
    assert_same(x.t().to(target), x.cpu().t().to(target))


@pytest.mark.parametrize(("dtype", "name"), list(UNKNOWN.items()), ids=str)
def test_an_unknown_dtype_is_refused_both_ways(dtype: torch.dtype, name: str) -> None:
    """Such a tensor can be made, moved and copied, but not cast: not to it, not from it, not on the way to the CPU."""
    said = refused_cast(torch.__version__, name).text
    x = on_mps(dtype)
    assert_same(x.clone(), x.cpu())
    for known in KNOWN:
        assert text_of(ERROR, on_mps(known).to, dtype) == said, known
        assert text_of(ERROR, x.to, known) == said, known
        assert text_of(ERROR, torch.empty(2, 3, dtype=known, device="mps").copy_, x) == said, known
    assert text_of(ERROR, x.to, "cpu", torch.float32) == said


def test_complex128_can_be_allocated_and_not_be_cast_to() -> None:
    """`to` allocates by strides, where no release looks at complex128; the cast into it fails."""
    z = torch.ones(2, dtype=torch.complex64, device="mps")
    said = refused_cast(torch.__version__, "ComplexDouble").text
    assert text_of(ERROR, z.to, torch.complex128) == said
    assert text_of(ERROR, torch.ones(2, device="mps").to, torch.complex128) == said


@pytest.mark.skipif(RELEASE < (2, 13), reason="up to torch 2.12 another kernel gathers strided tensors")
def test_strided_tensors_of_an_unknown_dtype_are_not_gathered() -> None:
    """A copy that does not move the bytes as they lie goes through the same kernels."""
    x = on_mps(torch.float8_e5m2)
    assert_same(x.t().clone(), x.cpu().t())
    said = refused_cast(torch.__version__, "Float8_e5m2").text
    assert text_of(RuntimeError, x.t().contiguous) == said
    assert text_of(RuntimeError, lambda: x[:, 1].cpu()) == said


def test_the_rule_names_dtypes_by_release() -> None:
    """One float8 from torch 2.15 on; an MPSGraph refuses up to 2.12, a kernel's name from 2.13 on."""
    assert [len(castable_dtypes(f"2.{minor}")) for minor in range(11, 16)] == [14, 14, 14, 14, 15]
    assert set(castable_dtypes("2.15")) <= set(SCALAR_TYPES)
    graph = "Trying to convert Float8_e5m2 to the MPS backend but it does not have support for that dtype."
    assert refused_cast("2.12", "Float8_e5m2") == ("TypeError", graph)
    assert refused_cast("2.13", "Float8_e5m2") == ("RuntimeError", "Undefined type Float8_e5m2")
