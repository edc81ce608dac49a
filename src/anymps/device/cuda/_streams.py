"""`torch.cuda`: streams, which are one queue on a Mac, and events."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

from anymps.device.cuda._names import index_of
from anymps.device.cuda._uses import report_caller

_numbers = itertools.count()
_current = threading.local()


class Stream:
    """A stream in name: the work of all of them is done in the order in which it was queued."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        report_caller(1)
        index_of(device)
        self.device = torch.device("mps", 0)
        self.device_index = 0
        self.priority = priority
        self.stream_id = self.cuda_stream = next(_numbers)
        self._former: list[Stream] = []

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def query(self) -> bool:
        """Whether all queued work is done."""
        return bool(self.record_event().query())

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Do nothing: all streams are one queue, so earlier work is done first."""

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    def __enter__(self) -> Stream:  # torch.Stream is its own context since 2.7
        self._former.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._former.pop())

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=mps:0 number {self.stream_id}>"


class Event(torch.mps.Event):
    """An event of mps: its times are those of the device."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        report_caller(1)
        super().__init__(enable_timing=enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        super().record()

    def wait(self, stream: Stream | None = None) -> None:
        super().wait()


class StreamContext:
    """`with torch.cuda.stream(s):`"""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._former: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._former = current_stream()
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self._former is not None:
            set_stream(self._former)


_default = Stream()


def default_stream(device: Any = None) -> Stream:
    index_of(device)
    return _default


def current_stream(device: Any = None) -> Stream:
    index_of(device)
    return getattr(_current, "stream", _default)


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _current.stream = stream


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)
