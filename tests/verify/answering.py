"""Answers by hand, and cases asked in this process."""

from __future__ import annotations

import base64
import copy
from collections.abc import Sequence
from typing import Any

import torch

from anymps.verify import Answers
from anymps.verify._private import without_private
from anymps.verify._worker import work
from processes import MAC

MACHINE = {
    "chip": "Apple M3 Pro",
    "gpu_cores": 18,
    "memory_gib": 18,
    "macos": "26.4",
    "torch": "2.13.0",
    "python": "3.12",
}


def answers(virtual: bool = False, **kinds: dict[str, Any]) -> Answers:
    """Answers of some kinds, by case."""
    about = {kind: {"cases": len(cases), "note": ""} for kind, cases in kinds.items()}
    return Answers(virtual, dict(MACHINE), "2026-11-24", about, copy.deepcopy(kinds))


def result(*values: float, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """A result with these values."""
    held = torch.tensor(values, dtype=dtype)
    raw = bytes(held.view(torch.uint8).tolist())
    name = str(dtype).removeprefix("torch.")
    about = {"dtype": name, "shape": [len(values)], "strides": [1], "digest": raw.hex()[:64]}
    return {**about, "values": base64.b64encode(raw).decode()}


def computed(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An answer with these results."""
    return {"does": "computes", "results": list(results), **more}


def asked(kind: str, cases: Sequence[str]) -> Answers:
    """What the device of this process answers to some cases."""
    found: dict[str, Any] = {}
    names: list[str] = []

    def tell(message: dict[str, Any]) -> None:
        if "begin" in message:
            names.append(message["case"])
        elif "done" in message:
            found[names[-1]] = without_private(message["answer"])

    work({"kind": kind, "start": 0, "seconds": 600, "mac": MAC, "wanted": cases}, tell)
    assert found.keys() == set(cases)
    return answers(True, **{kind: found})
