"""torch.mps.profiler: start, stop, profile and Metal capture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from device.compare import text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

profiler = torch.mps.profiler


@pytest.mark.parametrize("mode", ["interval", "event", "interval,event", " Interval , EVENT ", "event,event"])
@pytest.mark.parametrize("wait", [False, True])
def test_tracing_starts_and_stops(mode: str, wait: bool) -> None:
    """Every mode starts once, is refused while running, and stops as often as asked."""
    profiler.start(mode, wait_until_completed=wait)
    try:
        assert text_of(RuntimeError, profiler.start) == "Tracing Signposts is already enabled "
        values(3).to("mps").exp()
    finally:
        profiler.stop()
    profiler.stop()
    profiler.start()
    profiler.stop()


@pytest.mark.parametrize("mode", ["intervals", "event,cpu", "none"])
def test_unknown_modes_are_refused(mode: str) -> None:
    """An unknown token is named; tracing stays off."""
    assert text_of(RuntimeError, profiler.start, mode) == f"Invalid Signpost trace mode: {mode.split(',')[-1]}"
    profiler.start()
    profiler.stop()


def test_an_empty_mode_does_nothing() -> None:
    """An empty mode is accepted and starts nothing."""
    profiler.start("")
    profiler.start("event")
    profiler.stop()


def test_the_context_manager_stops_after_errors() -> None:
    """profile() traces inside, and stops when the body or its own start fails."""
    with profiler.profile("event", wait_until_completed=True):
        assert text_of(RuntimeError, profiler.start) == "Tracing Signposts is already enabled "
    with pytest.raises(KeyError), profiler.profile():
        raise KeyError
    with pytest.raises(RuntimeError), profiler.profile("nonsense"):
        pass
    profiler.start()
    profiler.stop()


def test_metal_capture_is_off_without_its_variable(
    virtual_device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without MTL_CAPTURE_ENABLED=1 capture is not enabled, and starting it is refused with the file's name."""
    monkeypatch.chdir(tmp_path)
    assert not profiler.is_metal_capture_enabled()
    assert not profiler.is_capturing_metal()
    with pytest.raises(RuntimeError) as raised, profiler.metal_capture("trace"):
        pass
    file = str(raised.value).split(" of ")[1].split(" error ")[0]
    assert file.endswith("-trace.gputrace")
    assert str(raised.value) == f"Failed to start capture of {file} error Capturing is not supported."
    assert [] == list(tmp_path.iterdir())
