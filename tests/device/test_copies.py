"""Copies in all directions and dtypes: .to, .cpu, copy_, non_blocking, broadcasting, overlap, strange strides."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import nn

from anymps.rules import check_supported, version_rules
from anymps.rules.texts import float64_allocation, pinned, undefined_type, unsupported_dtype
from device.compare import assert_same, same_gradients, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    torch.bool, torch.complex64,
]  # fmt: skip
SHAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[1:, ::2],
    "offset": lambda x: x[2:],
}


@pytest.mark.parametrize(("source", "target"), list(product(DTYPES, DTYPES)), ids=str)
def test_conversions_equal_those_of_the_cpu(source: torch.dtype, target: torch.dtype) -> None:
    """Every dtype converts to every other one: on the device, on the way in, and in place, as on the CPU."""
    if source.is_complex and not target.is_complex:
        return  # torch warns of the lost imaginary part: see the test below
    x = values(3, 4, dtype=source)
    expected = x.to(target)
    assert_same(x.to("mps").to(target), expected)
    assert_same(x.to("mps", target), expected)
    assert_same(torch.empty(3, 4, dtype=target, device="mps").copy_(x), expected)
    assert torch.equal(expected, x.to("mps").to("cpu", target))
    assert torch.equal(expected, torch.empty(3, 4, dtype=target).copy_(x.to("mps")))


def test_a_lost_imaginary_part_is_warned_of() -> None:
    """Complex to real warns as on the CPU: once a process, here again, whatever ran before."""
    z = values(3, dtype=torch.complex64).to("mps")
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning) as caught:
            real = z.to(torch.float32)
    finally:
        torch.set_warn_always(always)
    assert "Casting complex values to real discards the imaginary part" in str(caught[0].message)
    assert_same(real, z.cpu().real.contiguous())


@pytest.mark.parametrize(("to", "source"), list(product(SHAPES, repeat=2)))
def test_copy_between_any_strides_in_all_directions(to: str, source: str) -> None:
    """copy_ from a view into a view works CPU to mps, mps to CPU and mps to mps, and leaves the rest alone."""
    shapes = {"contiguous": (4, 6), "transposed": (6, 4), "sliced": (5, 12), "offset": (6, 6)}

    def part(x: torch.Tensor, how: str) -> torch.Tensor:
        return SHAPES[how](x)[:4, :6]

    expected = torch.zeros(shapes[to])
    part(expected, to).copy_(part(values(*shapes[source]), source))
    for first, second in product(("cpu", "mps"), repeat=2):
        target = torch.zeros(shapes[to], device=second)
        assert part(target, to).copy_(part(values(*shapes[source]).to(first), source)).device.type == second
        assert torch.equal(expected, target.cpu())


def test_copy_of_empty_tensors() -> None:
    """An empty tensor is copied like any other: what broadcasts moves nothing, the rest is refused (Copy.cpp)."""
    for first, second in (("cpu", "mps"), ("mps", "cpu"), ("mps", "mps")):
        empty = torch.empty(0, 2, 2, device=first)
        assert (0, 2, 2) == empty.copy_(torch.ones(2, 2, device=second)).shape
        assert (0,) == torch.empty(0, device=first).copy_(torch.ones(1, device=second)).shape
        text = text_of(RuntimeError, torch.empty(0, device=first).copy_, torch.ones(3, device=second))
        assert "The size of tensor a (0) must match the size of tensor b (3) at non-singleton dimension 0" == text
        text = text_of(RuntimeError, torch.ones(2, device=first).copy_, torch.empty(0, 2, device=second))
        assert "output with shape [2] doesn't match the broadcast shape [0, 2]" == text


def test_an_empty_destination_of_copy_from() -> None:
    """_copy_from looks at no shapes: an empty destination takes the source's (Copy.mm)."""
    empty = torch.empty(0, device="mps")
    torch.ops.aten._copy_from(torch.ones(2, 2), empty)
    assert_same(empty, torch.ones(2, 2))
    full = torch.ones(3, device="mps")
    torch.ops.aten._copy_from(torch.empty(0), full)
    assert_same(full, torch.ones(3))


def test_to_returns_self_when_nothing_changes() -> None:
    """.to with the same device and dtype is the tensor itself unless copy=True; indices do not matter."""
    x = values(2).to("mps")
    for same_place in ("mps", "mps:0", torch.device("mps", 0)):
        assert x.to(same_place) is x
    assert x.to(x) is x
    assert x.to("mps", copy=True).data_ptr() != x.data_ptr()
    assert x.to(torch.float32) is x
    assert x.float() is x
    assert x.cpu().cpu().device.type == "cpu"
    assert_same(values(2).to(x), values(2))


def test_gradients_cross_devices() -> None:
    """A graph that goes to mps and back gives gradients on each side's device."""
    x = values(3, 4).requires_grad_()
    y = (x.to("mps") * 2).to(torch.float16).float().cpu() * 3
    y.sum().backward()
    assert x.grad.device.type == "cpu"
    assert torch.equal(torch.full((3, 4), 6.0), x.grad)
    a = values(3).to("mps").requires_grad_()
    (a.cpu().double() ** 2).sum().backward()
    assert_same(a.grad, 2 * values(3))
    same_gradients(lambda t: torch.zeros_like(t).copy_(t) * t, values(3))


def test_modules_move_with_everything_they_hold() -> None:
    """Module.to moves parameters, buffers and gradients, keeps the Parameter objects, casts floats only."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    parameters = list(module.parameters())
    module(values(3, 2)).sum().backward()
    assert module.to("mps") is module
    assert all(one is other for one, other in zip(parameters, module.parameters(), strict=True))
    assert all(p.is_mps and p.grad.is_mps for p in module.parameters())
    assert all(buffer.is_mps for buffer in module.buffers())
    module.half()
    assert {torch.float16, torch.int64} == {tensor.dtype for tensor in module.state_dict().values()}
    module.to("cpu", torch.float32)
    assert all(not tensor.is_mps for tensor in module.state_dict().values())
    meta = nn.Linear(2, 2, device="meta").to_empty(device="mps")
    assert meta.weight.is_mps
    assert nn.Linear(2, 2, device="mps", dtype=torch.float16).weight.is_mps


def test_meta_tensors_have_no_data_to_copy() -> None:
    """A copy from meta raises torch's text; a copy to meta does nothing."""
    meta = torch.empty(2, device="meta")
    assert "Cannot copy out of meta tensor; no data!" in text_of(NotImplementedError, meta.to, "mps")
    x = torch.ones(2, device="mps")
    assert x.to("meta").is_meta
    assert meta.copy_(x) is meta
    assert text_of(NotImplementedError, x.copy_, meta) == "Cannot copy out of meta tensor; no data!"


def test_float64_arrives_on_the_cpu_only_by_way_of_the_cpu() -> None:
    """x.cpu().double() works; the conversion in one step does what this torch release does."""
    x = torch.ones(2, device="mps")
    assert torch.float64 == x.cpu().double().dtype
    release = check_supported(torch.__version__).release
    if release == (2, 14):  # nothing is written, without an error
        x.to("cpu", torch.float64)
        return
    error, wide, wider = TypeError, float64_allocation(), float64_allocation()
    if release == (2, 11):  # the temporary tensor is made, and the cast into it fails
        wider = unsupported_dtype("ComplexDouble")
    elif release >= (2, 15):
        error, wide, wider = RuntimeError, undefined_type("Double"), undefined_type("ComplexDouble")
    assert text_of(error, x.to, "cpu", torch.float64) == wide.text
    assert text_of(error, torch.empty(2, dtype=torch.float64).copy_, x) == wide.text
    assert text_of(error, x.to, "cpu", torch.complex128) == wider.text


def test_float64_goes_in_when_the_target_has_another_dtype() -> None:
    """A float64 CPU tensor is cast on the CPU on its way to a float32 tensor."""
    x = torch.tensor([1.5, 2.5], dtype=torch.float64)
    assert_same(x.to("mps", torch.float32), x.float())
    assert_same(torch.empty(2, device="mps").copy_(x), x.float())
    assert_same(x.float().to("mps"), x.float())


def test_pinned_memory_is_refused_in_the_words_of_this_release() -> None:
    """pin_memory on an mps tensor, and of one, say what torch says."""
    x = torch.ones(2, device="mps")
    assert text_of(RuntimeError, x.pin_memory) == pinned("MPSFloatType").text
    assert not x.is_pinned()
    text = text_of(RuntimeError, torch.empty, 2, device="mps", pin_memory=True)
    assert text == "Only dense CPU tensors can be pinned"


@pytest.mark.usefixtures("still_memory")
def test_pinned_cpu_tensors() -> None:
    """Up to torch 2.13 a pinned CPU tensor cannot be made where mps is the accelerator (pytorch issue 86060).

    From 2.14 on it lies in the device's memory and counts there, whole or in part, until it goes.
    """
    assert not torch.ones(2).is_pinned()
    if not version_rules(torch.__version__).pinned_memory_works:
        assert text_of(RuntimeError, torch.ones(2).pin_memory) == (
            'Attempted to set the storage of a tensor on device "cpu" to a storage on different device "mps:0".  This '
            "is no longer allowed; the devices must match."
        )
        return
    before = torch.mps.current_allocated_memory()
    made = [torch.ones(1000).pin_memory(), torch.full((1000,), 2.0, pin_memory=True)]
    for x, value in zip(made, (1.0, 2.0), strict=True):
        assert x.is_pinned()
        assert x[3:].is_pinned()
        assert torch.device("cpu") == x.device
        assert value == x.to("mps", non_blocking=True)[999].item()
        assert x.pin_memory() is x
    assert before + 2 * 4096 == torch.mps.current_allocated_memory()
    assert torch.empty(0, pin_memory=True).numel() == 0
    made[0].copy_(torch.arange(1000.0, device="mps"), non_blocking=True)
    torch.mps.synchronize()
    assert 999.0 == made[0][-1].item()
    made.clear()
    del x
    assert before == torch.mps.current_allocated_memory()
