"""Known bugs on a Mac's own device: which ones it has, and what is saved before a call that may end the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import anymps
from anymps.device import enforce_hazards
from anymps.device._real_mac import hazards_of
from anymps.mac import parse_mac
from anymps.rules import parse_torch_version
from anymps.rules.faults import Effect, all_hazards

pytestmark = pytest.mark.usefixtures("virtual_device", "hazards_put_back")


@pytest.mark.parametrize(
    ("mac", "macos", "identities"),
    [
        ("M1 8GB, macOS 15.0", "15.0.1", {"MPS611", "MPS621", "MPS625", "MPS601"}),
        ("M3 Pro 18GB, macOS 26.4", "26.4", {"MPS621", "MPS601"}),
        (None, "14.7.1", {"MPS625", "MPS601"}),
        (None, "", {"MPS601"}),
    ],
)
def test_the_faults_of_a_real_mac(mac: str | None, macos: str, identities: set[str]) -> None:
    """By its own GPU and macOS; of an unknown one only what all GPUs, or all versions of macOS, have."""
    known = hazards_of(parse_mac(mac) if mac is not None else None, macos, parse_torch_version("2.13.0"))
    asked = {"MPS611", "MPS621", "MPS625", "MPS601"}
    assert {hazard.id for hazard in known} & asked == identities


@pytest.mark.parametrize("effect", [Effect.ABORTS, Effect.WRONG])
def test_a_call_that_may_end_the_process_is_saved_before_it_runs(effect: Effect, tmp_path: Path) -> None:
    """The mark of a call that a Mac may not survive is in the file when the call begins, once a line."""
    fault = next(hazard for hazard in all_hazards() if hazard.check == "integers")
    enforce_hazards((replace(fault, effect=effect, operators=("exp",)),))
    x = torch.ones(3, dtype=torch.int32, device="mps")
    saved: list[str] = []
    with anymps.record(tmp_path / "run.anymps", source="observer") as capture:
        flush = capture.core.save
        capture.core.save = lambda: (saved.append("saved"), flush())
        for _ in range(3):
            x.exp()
    assert saved == (["saved"] if effect is Effect.ABORTS else [])
    (found,) = capture.recording.hazards()
    assert (found.operator, found.count) == (f"anymps::hazard.{fault.id} aten::exp", 3)
