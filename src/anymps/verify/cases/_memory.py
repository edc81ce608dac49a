"""Cases of memory: the allocator's counters after scripts of allocations, and the texts of its limits."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

import torch

from anymps.verify.cases._answering import Answer, Case, refusal

_MIB: Final = 1 << 20
_MEASURED: Final = re.compile(r"(?<=allocated: )[\d.]+ \w+|(?<=allocations: )[\d.]+ \w+|(?<=allowed: )[\d.]+ \w+")
"""Sizes of an out-of-memory text that depend on what else Metal holds on that Mac."""

Note = Callable[[str], None]


def memory_cases() -> list[Case]:
    """All cases."""
    scripts = [Case(title, functools.partial(_counted, script)) for title, script in _SCRIPTS.items()]
    return scripts + [Case(title, functools.partial(_refused, call)) for title, call in _LIMITS.items()]


def _counted(script: Callable[[Note], None]) -> Answer:
    """A sample for each note of a script: what was done, bytes in tensors, and of the driver since the beginning."""
    samples: list[Answer] = []
    torch.mps.empty_cache()
    base = torch.mps.driver_allocated_memory()

    def note(what: str) -> None:
        torch.mps.synchronize()
        tensors, driver = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory() - base
        samples.append({"does": "computes", "value": f"{what}: {tensors:,} bytes in tensors, {driver:,} in the driver"})

    try:
        script(note)
    except Exception as error:
        samples.append(refusal(error))
    return {"samples": samples}


def _refused(call: Callable[[], object]) -> Answer:
    try:
        call()
    except Exception as error:
        answer = refusal(error)
        return {**answer, "text": _MEASURED.sub("...", answer["text"])}
    return {"does": "computes"}


def _empty(count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device="mps")


def _four_sizes(note: Note) -> None:
    kept = []
    for size in (4, 5 * _MIB, 600 * _MIB, 64 * _MIB):
        kept.append(_empty(size))
        note(f"+ {size}")
    kept.clear()
    note("all freed")
    torch.mps.empty_cache()
    note("empty_cache")


def _charges(note: Note) -> None:
    for size in (0, 1, 255, 256, 257, 4000, 16_384, _MIB, _MIB + 1, 3 * _MIB + 5, 10 * _MIB, 33 * _MIB + 7):
        x = _empty(size)
        note(f"one of {size}")
        del x
        note("freed")


def _reuse(note: Note) -> None:
    held = [_empty(16 * _MIB), _empty(48 * _MIB), _empty(80 * _MIB)]
    note("16, 48 and 80 MiB")
    held.pop(1)
    note("without the 48")
    held.append(_empty(20 * _MIB))
    note("20 MiB, where 48 were")
    held.append(_empty(30 * _MIB))
    note("30 MiB more")
    held.clear()
    note("all freed")


def _training(note: Note) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 512) if at % 2 == 0 else torch.nn.ReLU() for at in range(7)]
    model = torch.nn.Sequential(*layers).to("mps")
    note("model")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.zeros(256, 512).to("mps")
    note("batch")
    for step in range(3):
        loss = model(x).square().mean()
        note(f"forward {step}")
        loss.backward()
        note(f"backward {step}")
        optimizer.step()
        note(f"step {step}")
        optimizer.zero_grad()
        note(f"zero_grad {step}")


_SCRIPTS: Final = {
    "four sizes": _four_sizes,
    "one tensor of each size": _charges,
    "a block used again": _reuse,
    "training": _training,
}


def _out_of_memory() -> None:
    whole = torch.mps.recommended_max_memory()
    held = torch.mps.driver_allocated_memory()
    torch.mps.set_per_process_memory_fraction((held + 64 * _MIB) / whole)
    _empty(300 * _MIB)


_LIMITS: Final[dict[str, Callable[[], object]]] = {
    "a buffer of 4 TiB": lambda: _empty(1 << 42),
    "out of memory": _out_of_memory,
    "fraction 3": lambda: torch.mps.set_per_process_memory_fraction(3),
}
