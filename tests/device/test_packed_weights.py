"""Weights of 4 bits, two a byte: packed and multiplied as the kernels of PyTorch do."""

from __future__ import annotations

import pytest
import torch

from device.compare import text_of

pytestmark = pytest.mark.usefixtures("mps_device")

ROWS, COLUMNS, GROUP = 16, 64, 32


def packed(numbers: torch.Tensor, tiles: int = 2) -> torch.Tensor:
    """The packed form of numbers from 0 to 15: the first of each two in the upper half of its byte."""
    pairs = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(pairs.to("mps"), tiles)


def test_the_packed_form() -> None:
    """The kernel weight_to_int4pack: the halves of each byte change places, the shape tells how much there is."""
    numbers = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) % 16
    found = packed(numbers)
    assert (found.dtype, tuple(found.shape)) == (torch.int32, (2, 2, 32, 1))
    swapped = (numbers[:, 1::2] << 4 | numbers[:, ::2]).to(torch.uint8)
    assert torch.equal(found.cpu().view(torch.uint8).flatten(), swapped.flatten())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_product(dtype: torch.dtype) -> None:
    """The kernel int4pack_mm: scale times (number - 8), and the zero of its group."""
    torch.manual_seed(0)
    numbers = torch.randint(16, (ROWS, COLUMNS))
    x = torch.randn(3, COLUMNS).to(dtype)
    of_groups = torch.randn(COLUMNS // GROUP, ROWS, 2).to(dtype)
    scales, zeros = (of_groups[..., i].float().repeat_interleave(GROUP, 0).t() for i in (0, 1))
    wanted = x.float() @ ((numbers.float() - 8) * scales + zeros).t()
    found = torch.ops.aten._weight_int4pack_mm(x.to("mps"), packed(numbers), GROUP, of_groups.to("mps"))
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(found.cpu().float(), wanted, rtol=tolerance, atol=tolerance * 10)


def test_what_is_refused() -> None:
    """The words of aten/src/ATen/native/mps/operations/Quantized.mm."""
    pack, multiply = torch.ops.aten._convert_weight_to_int4pack, torch.ops.aten._weight_int4pack_mm
    weight, x = packed(torch.zeros(ROWS, COLUMNS, dtype=torch.int64)), torch.zeros(1, COLUMNS, device="mps")
    scales = torch.zeros(2, ROWS, 2, device="mps")
    name, product = "_convert_weight_to_int4pack_mps : ", "_weight_int4pack_mm_mps"
    assert text_of(RuntimeError, pack, x, 2) == f"{name}expect weight to be kByte."
    assert text_of(RuntimeError, pack, x.byte(), 3) == f"{name}innerKTiles need to be 2, 4, or 8, got 3"
    assert text_of(RuntimeError, multiply, x, weight, 16, scales) == (
        f"{product}: expect qGroupSize to be 32, 64, 128 or 256, got 16"
    )
    assert text_of(RuntimeError, multiply, x, weight, 32, scales[:, 1:]) == (
        f"{product}: expect qScaleAndZeros to be 3d tensor with sizes [:, 16, 2]"
    )


def test_every_operator_with_a_kernel_on_mps_has_one_here() -> None:
    """The dispatcher finds one for each overload that the rules name, under whatever key."""
    from anymps.rules import Trait, core_table

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    dense = [row[0] for row in core_table(torch.__version__) if row[3] & Trait.DENSE and _known(row[0])]
    keys = ("MPS", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    assert [name for name in dense if not any(has(name, key) for key in keys)] == []


def test_convolutions_under_the_names_of_mps() -> None:
    """`_mps_convolution` and its backward are those of `convolution`."""
    torch.manual_seed(0)
    x, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    ones, none = [1, 1], [0, 0]
    wanted = torch.conv2d(x, weight, padding=1)
    found = torch.ops.aten._mps_convolution(x.to("mps"), weight.to("mps"), None, ones, ones, ones, 1)
    torch.testing.assert_close(found.cpu(), wanted)
    gradient = torch.ones_like(wanted)
    to_x, to_weight, to_bias = torch.ops.aten.mps_convolution_backward(
        x.to("mps"), gradient.to("mps"), weight.to("mps"), ones, ones, ones, 1, [True, True, True]
    )
    expected = torch.ops.aten.convolution_backward(
        gradient, x, weight, [3], ones, ones, ones, False, none, 1, [True, True, True]
    )
    for one, other in zip((to_x, to_weight, to_bias), expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    turned = torch.ops.aten._mps_convolution_transpose(wanted.to("mps"), weight.to("mps"), ones, none, ones, ones, 1)
    torch.testing.assert_close(turned.cpu(), torch.conv_transpose2d(wanted, weight, padding=1))


def _known(name: str) -> bool:
    return bool(torch._C._dispatch_has_kernel(name))
