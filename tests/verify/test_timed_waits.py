"""Waits as a Mac is asked: by a clock that only the calls move on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from anymps._vocabulary import Wait
from anymps.verify.cases import SampleCall, _waits


class Host:
    """A host that takes 1 ms for each product in the queue, and waits for the queue when it is told to."""

    def __init__(self, *late: float) -> None:
        self.now, self.queue, self.late = 0.0, 0.0, list(late)
        self.products = 0

    def product(self, *_: object) -> None:
        self.now += 1e-4
        self.queue += 2e-2
        self.products += 1

    def synchronize(self) -> None:
        self.now += self.queue
        self.queue = 0.0

    def call(self) -> None:
        self.now += self.late.pop(0) if self.late else 0.0


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(_waits, "time", SimpleNamespace(perf_counter=lambda: made.now))
    monkeypatch.setattr(torch.mps, "synchronize", made.synchronize)
    monkeypatch.setattr(torch, "mm", made.product)
    monkeypatch.setattr(torch, "rand", lambda *sizes, device: (sizes, device))
    _waits._work.cache_clear()
    yield made
    _waits._work.cache_clear()


def waited(host: Host, waits: bool) -> bool:
    """The answer for a call that waits, or does not."""

    def call() -> None:
        host.call()
        if waits:
            host.synchronize()

    return _waits._timed(SampleCall(call, {Wait.ITEM}, tuple))


def test_the_queue_is_as_long_as_it_is_to_be(host: Host) -> None:
    """0.15 s of products, measured when they were compiled; at least two, at most 200."""
    x, many = _waits._work()
    assert x == ((2048, 2048), "mps")
    assert (many, host.products) == (7, 16)  # 20.1 ms each
    for each, expected in ((1.0, 2), (1e-6, 200), (0.04, 4), (0.15 / 5.4, 5)):
        _waits._work.cache_clear()

        def product(*_: object, each: float = each) -> None:
            host.now += each

        torch.mm = product  # type: ignore[assignment]
        assert _waits._work()[1] == expected


def test_a_call_that_waits(host: Host) -> None:
    """It takes as long as what stands in the queue."""
    assert waited(host, waits=True) is True


def test_a_call_that_does_not_wait_may_be_late_once(host: Host) -> None:
    """The quickest of two rounds counts, and what the first call of all takes does not."""
    host.late = [5.0, 1.0, 0.001]
    assert waited(host, waits=False) is False
    host.late = [0.0, 1.0, 1.0]
    assert waited(host, waits=False) is True
