"""Making mps tensors: every factory, torch.tensor, NumPy, Python data, the *_like family and the new_* methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from device.compare import assert_same, same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_can_be_made_filled_and_moved_both_ways(dtype: torch.dtype) -> None:
    """zeros, ones, full and a round trip through the device keep dtype and values."""
    for made in (torch.zeros(2, 3, dtype=dtype, device="mps"), torch.ones(2, 3, dtype=dtype, device="mps")):
        assert dtype == made.dtype
        assert torch.device("mps:0") == made.device
    assert_same(torch.full((2, 3), 1, dtype=dtype, device="mps"), torch.ones(2, 3, dtype=dtype))
    there = values(4, 5, dtype=dtype)
    assert torch.equal(there, there.to("mps").cpu())


@pytest.mark.parametrize(
    "data",
    [1, 1.5, True, 1 + 2j, [], [1, 2], [1.5, 2], [[1, 2], [3, 4]], (1, (2)), [True, False], [[1j]], range(4)],
    ids=repr,
)
def test_tensor_of_python_data_infers_the_same_dtype(data: Any) -> None:
    """torch.tensor of Python data on mps equals torch.tensor on the CPU."""
    assert_same(torch.tensor(data, device="mps"), torch.tensor(data))
    assert_same(torch.as_tensor(data, device="mps"), torch.as_tensor(data))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64"]
)
def test_numpy_arrays_come_in(dtype: str) -> None:
    """torch.tensor, as_tensor and from_numpy().to() take arrays of every dtype that mps has."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    expected = torch.from_numpy(array.copy())
    for made in (
        torch.tensor(array, device="mps"),
        torch.as_tensor(array, device="mps"),
        torch.from_numpy(array).to("mps"),
        torch.from_numpy(array[:, ::2]).to("mps").new_tensor(array),
    ):
        assert_same(made, expected)


def test_a_negatively_strided_array_is_refused_as_everywhere() -> None:
    """torch takes no negative strides, on mps neither."""
    array = np.arange(4, dtype=np.float32)[::-1]
    assert text_of(ValueError, torch.as_tensor, array) == text_of(ValueError, torch.as_tensor, array, device="mps")


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"])
def test_like_factories_stay_on_the_device_and_keep_strides(name: str) -> None:
    """The *_like functions of a transposed mps tensor give an mps tensor with its strides."""
    for source in (values(3, 4), values(3, 4).t(), values(2, 3, 4, 5).to(memory_format=torch.channels_last)):
        made = getattr(torch, name)(source.to("mps"))
        assert torch.device("mps:0") == made.device
        assert getattr(torch, name)(source).stride() == made.stride()


def test_like_factories_across_devices() -> None:
    """The *_like functions take another device and dtype."""
    there = torch.zeros_like(values(2, 3), device="mps", dtype=torch.float16)
    assert_same(there, torch.zeros(2, 3, dtype=torch.float16))
    back = torch.full_like(there, 2, device="cpu")
    assert torch.equal(torch.full((2, 3), 2, dtype=torch.float16), back)


def test_empty_tensors_lie_as_asked() -> None:
    """In the order of a permutation, and with channels last."""
    assert (1, 8, 2) == torch.empty_permuted((2, 3, 4), (1, 2, 0), device="mps").stride()
    assert (60, 1, 15, 3) == torch.empty(2, 3, 4, 5, device="mps", memory_format=torch.channels_last).stride()


def test_new_methods_follow_their_tensor() -> None:
    """The new_* methods give tensors on the device and of the dtype of their tensor unless told otherwise."""
    x = torch.ones(2, dtype=torch.int32, device="mps")
    assert_same(x.new_zeros(3), torch.zeros(3, dtype=torch.int32))
    assert_same(x.new_ones(3, dtype=torch.float32), torch.ones(3))
    assert_same(x.new_full((2,), 5), torch.full((2,), 5, dtype=torch.int32))
    assert_same(x.new_tensor([1, 2]), torch.tensor([1, 2], dtype=torch.int32))
    assert torch.device("mps:0") == x.new_empty(3).device
    assert torch.device("cpu") == x.new_empty(3, device="cpu").device
    assert (1, 2) == x.new_empty_strided((2, 3), (1, 2)).stride()
    assert torch.device("mps:0") == torch.ones(2).new_tensor([1.0], device="mps").device


def test_there_is_one_device_and_its_index_is_0() -> None:
    """`mps` has no index and differs from `mps:0`, on which every tensor is."""
    assert torch.device("mps").index is None
    assert torch.device("mps") != torch.device("mps:0")
    for name in ("mps", "mps:0", torch.device("mps")):
        assert torch.device("mps:0") == torch.empty(1, device=name).device
    x = torch.empty(1, device="mps")
    assert x.is_mps
    assert not x.is_cuda
    assert 0 == x.get_device()
    assert x.type() == "torch.mps.FloatTensor"
    assert not hasattr(x, "mps")


def test_the_text_of_a_tensor_names_the_device() -> None:
    """repr ends with the device, also for other dtypes, empty, 0-dim and differentiable tensors."""
    assert repr(torch.tensor([1.0, 2.5], device="mps")) == "tensor([1.0000, 2.5000], device='mps:0')"
    assert repr(torch.tensor([1], device="mps")) == "tensor([1], device='mps:0')"
    assert repr(torch.tensor(True, device="mps")) == "tensor(True, device='mps:0')"
    assert repr(torch.empty(0, device="mps")) == "tensor([], device='mps:0')"
    assert repr(torch.ones(1, dtype=torch.float16, device="mps")) == "tensor([1.], device='mps:0', dtype=torch.float16)"
    assert repr(torch.ones(1, device="mps", requires_grad=True)) == "tensor([1.], device='mps:0', requires_grad=True)"
    assert repr(torch.ones(1, dtype=torch.complex64, device="mps")) == "tensor([1.+0.j], device='mps:0')"
    big = torch.tensor([1e-8, 1e8], device="mps")
    assert repr(big) == "tensor([1.0000e-08, 1.0000e+08], device='mps:0')"
    assert f"{torch.tensor(2.5, device='mps'):.2f}" == "2.50"


def test_reading_one_element() -> None:
    """item, tolist, bool, int, float, complex, index and len read as from the CPU."""
    x = torch.tensor([[1, 2], [3, 4]], device="mps")
    assert [[1, 2], [3, 4]] == x.tolist()
    assert 3 == x[1, 0].item()
    assert int(x[1, 1]) == 4
    assert [10, 11, 12, 13, 14][x[0, 0]] == 11
    assert float(torch.tensor(1.5, device="mps")) == 1.5
    assert complex(torch.tensor(1 + 2j, device="mps")) == 1 + 2j
    assert bool(torch.tensor(0, device="mps")) is False
    assert len(x) == 2
    assert 2 in x
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert same(lambda t: bool(t), values(2)) is None


@pytest.mark.parametrize(
    ("protocol", "version"), [("__dlpack_device__", None), ("__dlpack__", None), ("__dlpack__", (1, 0))]
)
def test_dlpack_says_metal(protocol: str, version: tuple[int, int] | None) -> None:
    """DLPack names the device kDLMetal (8), and torch takes its own capsule back without a copy."""
    x = torch.arange(4.0, device="mps")
    if protocol == "__dlpack_device__":
        assert (8, 0) == tuple(int(part) for part in x.__dlpack_device__())
        return
    options = {} if version is None else {"max_version": version}
    back = torch.from_dlpack(x.__dlpack__(**options))
    assert_same(back, torch.arange(4.0))
    back[0] = 9
    assert 9 == x[0].item()
