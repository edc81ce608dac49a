"""The fixtures `mps_device` and `mps_record`. Loads neither torch nor the device by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from anymps.findings import Finding
    from anymps.record import Recording


class Block:
    """What a `with mps_record() as block:` has recorded; there after the block."""

    def __init__(self) -> None:
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        """The block as a recording of its own: `waits()`, `fallbacks()`, `copies()`, `operators()`, and more."""
        if self._recording is None:
            raise RuntimeError("mps_record: the recording is available after the with block, not inside it")
        return self._recording

    @property
    def findings(self) -> list[Finding]:
        """What the recording means (`anymps.findings`)."""
        from anymps.findings import find

        return find(self.recording)


@pytest.fixture
def mps_device(pytestconfig: pytest.Config) -> torch.device:
    """`torch.device("mps")`: of `--mps`, or without it a Mac's own. Where there is neither, the test is skipped."""
    pytest.importorskip("torch", reason="needs an mps device: torch is not installed")
    import torch

    if not pytestconfig.pluginmanager.hasplugin("anymps-gate") and not torch.backends.mps.is_available():
        pytest.skip("needs an mps device: run pytest with --mps")
    return torch.device("mps")


@pytest.fixture
def mps_record(pytestconfig: pytest.Config) -> Callable[[], Any]:
    """A function for `with mps_record() as block:`; then `block.recording` and `block.findings`.

    Without `--mps` the test is skipped.
    """
    gate: Any = pytestconfig.pluginmanager.getplugin("anymps-gate")
    if gate is None:
        pytest.skip("needs an mps device: run pytest with --mps")
    assert gate.capture is not None
    capture = gate.capture

    @contextmanager
    def record() -> Iterator[Block]:
        block = Block()
        with capture.every_call():
            start = capture.position()
            try:
                yield block
            finally:
                block._recording = capture.block(start)

    return record
