"""torch.mps.Stream and its friends: none up to 2.13, a private setter in 2.14, a pool of 32 streams from 2.15 on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import pytest
import torch

from anymps.rules import version_rules
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

RULES = version_rules(torch.__version__)
NAMES = ("Stream", "stream", "current_stream", "set_stream", "default_stream")


def since_15(test: Callable[..., None]) -> Callable[..., None]:
    """The test itself from torch 2.15 on; for earlier releases, that there is nothing to test."""

    @functools.wraps(test)
    def nothing(*args: object, **kwargs: object) -> None:
        assert not any(hasattr(torch.mps, name) for name in NAMES)

    return test if RULES.several_streams else nothing


def test_the_names() -> None:
    """torch.mps has streams from 2.15 on; `_mps_setStream` is there from 2.14 on and takes None for the default one."""
    assert [RULES.several_streams] * len(NAMES) == [hasattr(torch.mps, name) for name in NAMES]
    assert RULES.private_set_stream == hasattr(torch._C, "_mps_setStream")
    if RULES.private_set_stream:
        assert torch._C._mps_setStream(None) is None
        assert text_of(RuntimeError, torch._C._mps_setStream, 3) == "invalid stream argument to setStream"


@since_15
def test_the_pool_is_handed_out_in_turn() -> None:
    """Streams have the numbers 1 to 32, round robin; 0 is the default one."""
    first = torch.mps.Stream().stream_id
    numbers = [torch.mps.Stream().stream_id for _ in range(33)]
    assert [(first + k) % 32 + 1 for k in range(33)] == numbers
    assert 0 == torch.mps.default_stream().stream_id
    assert torch.mps.default_stream() == torch.mps.current_stream()
    assert "<torch.mps.Stream stream_id=7>" == repr(torch.mps.Stream(stream_id=7))
    assert isinstance(torch.mps.Stream(), torch.Stream)
    assert torch.device("mps:0") == torch.mps.Stream().device


@since_15
@pytest.mark.parametrize("number", [33, -2])
def test_a_number_outside_the_pool(number: int) -> None:
    """Any other number is refused, by torch.mps.Stream and by an event recorded on such a stream."""
    text = f"stream_id={number} not found"
    assert text_of(RuntimeError, torch.mps.Stream, stream_id=number) == text
    stranger = torch.Stream(stream_id=number, device_index=0, device_type=13)
    assert text_of(RuntimeError, torch.Event("mps").record, stranger) == text


@since_15
def test_the_context_manager() -> None:
    """Inside `torch.mps.stream` work runs on that stream, backward too; afterwards the former one is current again."""
    outer, inner = torch.mps.Stream(), torch.mps.Stream()
    with torch.mps.stream(outer):
        with torch.mps.stream(inner):
            assert inner == torch.mps.current_stream() == torch.accelerator.current_stream()
            x = values(3).to("mps").requires_grad_()
            (x * 2).sum().backward()
            x.record_stream(outer)
        assert outer == torch.mps.current_stream()
        with torch.mps.stream(None):
            assert outer == torch.mps.current_stream()
        outer.synchronize()
    assert torch.mps.default_stream() == torch.mps.current_stream()
    assert_same(x.grad, torch.full((3,), 2.0))
    torch.mps.set_stream(inner)
    torch.mps.set_stream(None)
    assert inner == torch.mps.current_stream()
    torch._C._mps_setStream(None)
    assert torch.mps.default_stream() == torch.mps.current_stream()


@since_15
def test_events_belong_to_the_default_stream() -> None:
    """torch.mps.Event records and waits on the default stream alone; torch.Event does so on any."""
    event = torch.mps.Event()
    with torch.mps.stream(torch.mps.Stream()) as _:
        for call in (event.record, event.wait):
            assert text_of(NotImplementedError, call) == "Non-default streams are not yet supported."
        generic = torch.Event("mps")
        generic.record()
        generic.wait()
    event.record()
    torch.mps.synchronize()
    assert event.query()
    assert generic.query()


@since_15
def test_each_thread_has_its_own_current_stream() -> None:
    """A stream set in one thread is not current in another, which begins with the default one."""
    seen: list[int] = []
    with torch.mps.stream(torch.mps.Stream(stream_id=9)):
        thread = threading.Thread(target=lambda: seen.append(torch.mps.current_stream().stream_id))
        thread.start()
        thread.join()
        assert 9 == torch.mps.current_stream().stream_id
    assert [0] == seen
