"""Memory through torch.mps and torch.accelerator: counters, heaps, limits, out of memory, environment variables."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from anymps.rules.texts import format_size
from device.compare import text_of
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def facts(code: str, env: dict[str, str] | None = None) -> Any:
    """What a script prints as JSON in its last line."""
    return json.loads(run_with_torch(ENABLE + "import json\n" + code, env).lines[-1])


@pytest.mark.usefixtures("still_memory")
def test_sizes_are_rounded_to_256_bytes() -> None:
    """A storage is charged in steps of 256 bytes; one of nothing costs nothing; views cost nothing."""
    for count, charge in ((0, 0), (1, 256), (64, 256), (65, 512), (1000, 4096)):
        before = torch.mps.current_allocated_memory()
        x = torch.empty(count, device="mps")
        assert before + charge == torch.mps.current_allocated_memory()
        y = x[:].view(-1)
        assert before + charge == torch.mps.current_allocated_memory()
        del x
        assert before + charge == torch.mps.current_allocated_memory()
        del y
        assert before == torch.mps.current_allocated_memory()


@pytest.mark.usefixtures("still_memory")
def test_memory_goes_up_and_down_with_tensors() -> None:
    """Results, moves, gradients and in-place operations are charged when they are made and freed when they go."""
    before = torch.mps.current_allocated_memory()
    x = torch.ones(1024, device="mps", requires_grad=True)
    y = x * 2
    assert before + 8192 == torch.mps.current_allocated_memory()
    y.detach().add_(1)
    assert before + 8192 == torch.mps.current_allocated_memory()
    y.sum().backward()
    assert before + 12288 == torch.mps.current_allocated_memory()
    z = x.cpu()
    assert before + 12288 == torch.mps.current_allocated_memory()
    del x, y, z
    assert before == torch.mps.current_allocated_memory()


def test_limits_of_the_mac() -> None:
    """recommended_max_memory and maxBufferLength are constants of the Mac; a larger buffer is refused."""
    most = torch.mps.recommended_max_memory()
    assert most > 2**30
    assert torch.mps.driver_allocated_memory() < most
    if RELEASE >= (2, 13):
        length = torch._C._mps_maxBufferLength()
        assert 0 < length <= most
        text = text_of(RuntimeError, torch.empty, length, dtype=torch.uint8, device="mps")
        assert text == f"Invalid buffer size: {format_size(length)}"
    text = text_of(RuntimeError, torch.empty, 2**42, dtype=torch.uint8, device="mps")
    assert text == "Invalid buffer size: 4096.00 GiB"


@pytest.mark.parametrize("fraction", [1, "0.5", None, -0.1, 2.5, True], ids=repr)
def test_a_wrong_memory_fraction_is_refused(fraction: Any) -> None:
    """set_per_process_memory_fraction takes a float from 0 to 2."""
    error, text = TypeError, "Invalid type for fraction argument, must be `float`"
    if isinstance(fraction, float):
        error, text = ValueError, f"Invalid fraction value: {fraction}. Allowed range: 0~2"
    assert text_of(error, torch.mps.set_per_process_memory_fraction, fraction) == text


@pytest.mark.usefixtures("still_memory")
def test_out_of_memory(virtual_device: torch.device) -> None:
    """Beyond the fraction an allocation raises a RuntimeError with heaps, limit and request; then life goes on."""
    most = torch.mps.recommended_max_memory()
    torch.mps.empty_cache()
    keep = torch.ones(10, device="mps")
    other = torch.mps.driver_allocated_memory() - torch.accelerator.memory_reserved() if RELEASE >= (2, 13) else 0
    request = int(most * 0.3)
    try:
        torch.mps.set_per_process_memory_fraction(0.25)
        text = text_of(RuntimeError, torch.empty, request, dtype=torch.uint8, device="mps")
        total = torch.mps.driver_allocated_memory() - other
        aligned = -(-request // 256) * 256
        assert text in {
            f"MPS backend out of memory (MPS allocated: {format_size(total)}, other allocations: {format_size(other)}, "
            f"max allowed: {format_size(int(0.25 * most))}). Tried to allocate {format_size(size)} on "
            f"{'shared' if RELEASE >= (2, 12) else 'private'} pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to "
            "disable upper limit for memory allocations (may cause system failure)."
            for size in (aligned, _bucket(aligned))
        }
        torch.mps.set_per_process_memory_fraction(0.0)
        assert request == torch.empty(request, dtype=torch.uint8, device="mps").nbytes
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)
        torch.mps.empty_cache()
    assert 10.0 == keep.sum().item()


def _bucket(size: int) -> int:
    """The size that torch 2.14 asks for: rounded up to a thirty-second of its power of two, 16 KiB at least."""
    granule = max(2 ** (size.bit_length() - 1) // 32, 16384)
    return -(-size // granule) * granule


@pytest.mark.parametrize(
    ("high", "low", "text"),
    [("2.5", None, "invalid high watermark ratio 2.5"), ("1.0", "1.5", "invalid low watermark ratio 1.5")],
)
def test_wrong_watermarks_are_refused_at_each_use(high: str, low: str | None, text: str) -> None:
    """The two variables are checked when the allocator is first needed, and again at each later use."""
    env = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": high} | ({"PYTORCH_MPS_LOW_WATERMARK_RATIO": low} if low else {})
    found = facts(
        """
texts = []
make = lambda: torch.ones(1, device="mps")
for call in (make, torch.mps.current_allocated_memory, make):
    try:
        call()
        texts.append("")
    except RuntimeError as error:
        texts.append(str(error))
print(json.dumps(texts))
""",
        env,
    )
    assert [text] * 3 == found


def test_watermarks_from_the_environment(virtual_device: torch.device) -> None:
    """A low ratio limits at once; text that is no number means no limit."""
    code = """
most = torch.mps.recommended_max_memory()
try:
    torch.empty(int(most * 0.3), dtype=torch.uint8, device="mps")
    print(json.dumps("fits"))
except RuntimeError as error:
    print(json.dumps(str(error)[:26]))
"""
    limited = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.2", "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.1"}
    assert facts(code, limited) == "MPS backend out of memory "
    assert facts(code, {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "plenty"}) == "fits"


_LARGE = {
    "add": "wide + tall",
    "arange": "torch.arange(320_000_000, dtype=torch.float32, device='mps')",
    "cat": "torch.cat([piece] * 20)",
    "mm": "tall.expand(-1, 8) @ wide.expand(8, -1)",
    "repeat": "piece.repeat(20)",
    "sin": "wide.expand(20_000, -1).sin()",
}


@pytest.mark.parametrize("call", _LARGE)
def test_a_result_that_does_not_fit_is_not_computed(call: str, virtual_device: torch.device) -> None:
    """Of 1.28 GB, where the Mac has room for 0.6: refused as an empty tensor of that size is, and at no cost here."""
    told, expected, grown = facts(
        f"""
import resource
def text(make):
    try:
        make()
    except RuntimeError as error:
        return str(error)
torch.mps.set_per_process_memory_fraction(0.05)
wide, tall = torch.ones(1, 16_000, device="mps"), torch.ones(20_000, 1, device="mps")
piece = torch.ones(16_000_000, device="mps")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told = text(lambda: {_LARGE[call]})
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([told, text(lambda: torch.empty(320_000_000, device="mps")), grown // 1024]))
"""
    )
    assert "Tried to allocate 1." in expected  # 1.19 GiB, and 1.22 from torch 2.15 on
    assert told == expected
    assert grown < 256
