"""torch.accelerator, torch.Stream and torch.Event: mps is the accelerator of the process."""

from __future__ import annotations

import pytest
import torch

from device.compare import text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def test_mps_is_the_accelerator() -> None:
    """current_accelerator, device_count, indices and availability name one mps device."""
    accelerator = torch.accelerator
    assert accelerator.is_available()
    assert torch.device("mps") == accelerator.current_accelerator()
    assert accelerator.current_accelerator().index is None
    assert torch.device("mps") == accelerator.current_accelerator(check_available=True)
    assert 1 == accelerator.device_count()
    assert 0 == accelerator.current_device_index()
    accelerator.set_device_index(0)
    accelerator.set_device_index("mps:0")
    assert 0 == accelerator.current_device_index()


def test_the_device_index_context() -> None:
    """torch.accelerator.device_index(0) is a context manager that changes nothing."""
    with torch.accelerator.device_index(0):
        assert 0 == torch.accelerator.current_device_index()


def test_generic_streams() -> None:
    """The current stream is stream 0 of mps:0; a new torch.Stream is the same up to 2.14, one of the pool from 2.15."""
    stream = torch.accelerator.current_stream()
    assert (torch.device("mps:0"), 0) == (stream.device, stream.stream_id)
    other = torch.Stream(device="mps")
    assert (RELEASE >= (2, 15)) == (other != stream)
    assert (other.stream_id in range(1, 33)) == (RELEASE >= (2, 15))
    torch.accelerator.set_stream(stream)
    with other:
        assert other == torch.accelerator.current_stream()
        x = values(2).to("mps") + 1
    assert stream == torch.accelerator.current_stream()
    assert torch.equal(values(2) + 1, x.cpu())
    other.wait_stream(stream)


def test_one_stream_cannot_be_asked_or_waited_for() -> None:
    """The guard of mps has no query and no synchronize of a single torch.Stream, in no release."""
    stream = torch.accelerator.current_stream()
    assert text_of(RuntimeError, stream.query) == "Backend doesn't support querying streams."
    assert text_of(RuntimeError, stream.synchronize) == "Backend doesn't support synchronizing streams."


def test_synchronize_waits_and_returns_nothing() -> None:
    """synchronize() takes no device, an index or a device."""
    for device in ((), (0,), ("mps",), (torch.device("mps:0"),)):
        assert torch.accelerator.synchronize(*device) is None


def test_generic_events() -> None:
    """torch.Event("mps") records, waits, answers and measures; unrecorded ones cannot be measured."""
    start, end = torch.Event("mps", enable_timing=True), torch.Event("mps", enable_timing=True)
    assert start.query()
    text = text_of(ValueError, start.elapsed_time, end)  # TORCH_CHECK_VALUE in c10/core/impl/InlineEvent.h
    assert text == "Both events must be recorded before calculating elapsed time."
    start.record()
    values(100).to("mps").exp()
    end.record(torch.accelerator.current_stream())
    end.wait()
    torch.mps.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    assert torch.device("mps:0") == end.device
    event = torch.accelerator.current_stream().record_event()
    event.synchronize()
    torch.accelerator.current_stream().wait_event(event)


def test_device_capability_names_the_dtypes() -> None:
    """get_device_capability() lists what the hardware has: no float64, and one float8 from 2.15 on."""
    supported = set(torch.accelerator.get_device_capability()["supported_dtypes"])
    assert (torch.float8_e4m3fn in supported) == (RELEASE >= (2, 15))
    assert {
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.complex32,
        torch.complex64, torch.bool, torch.bfloat16, torch.uint16, torch.uint32, torch.uint64,
    } == supported - {torch.float8_e4m3fn}  # fmt: skip


@pytest.mark.usefixtures("still_memory")
def test_memory_functions_of_the_accelerator() -> None:
    """From 2.13 memory_allocated, reserved, stats and info follow torch.mps; active bytes do from 2.15."""
    if RELEASE < (2, 13):
        with pytest.raises(RuntimeError):
            torch.accelerator.memory_allocated()
        return
    accelerator = torch.accelerator
    before = accelerator.memory_allocated()
    assert before == torch.mps.current_allocated_memory()
    x = torch.empty(1000, device="mps")
    assert before + 4096 == accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats()
    y = torch.empty(2000, device="mps")
    top = accelerator.memory_allocated()
    del y
    assert top == accelerator.max_memory_allocated()
    assert accelerator.memory_reserved() >= accelerator.memory_allocated()
    assert accelerator.max_memory_reserved() >= accelerator.memory_reserved()
    stats = accelerator.memory_stats()
    assert accelerator.memory_allocated() == stats["allocated_bytes.all.current"]
    assert 0 == stats["allocation.all.current"]
    active = accelerator.memory_allocated() if RELEASE >= (2, 15) else 0
    assert active == stats["active_bytes.all.current"]
    accelerator.reset_accumulated_memory_stats()
    assert 0 == accelerator.memory_stats()["allocated_bytes.all.allocated"]
    free, total = accelerator.get_memory_info()
    assert total == torch.mps.recommended_max_memory()
    assert 0 < free <= total
    accelerator.empty_cache()
    assert x.numel() == 1000
