"""`torch.cuda`: memory, by the counters of `torch.mps`."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anymps.device.cuda._names import index_of

_highest: dict[str, int] = {}
"""The most that was there when somebody asked: before torch 2.13 mps keeps no peak of its own."""
_fraction = 1.0


def memory_allocated(device: Any = None) -> int:
    """Bytes in live tensors."""
    index_of(device)
    return _noted("allocated", torch.mps.current_allocated_memory())


def memory_reserved(device: Any = None) -> int:
    """Bytes that Metal has given to this process."""
    index_of(device)
    return _noted("reserved", torch.mps.driver_allocated_memory())


def max_memory_allocated(device: Any = None) -> int:
    return _peak("allocated", memory_allocated(device))


def max_memory_reserved(device: Any = None) -> int:
    return _peak("reserved", memory_reserved(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    index_of(device)
    _highest.clear()
    _ask_accelerator("reset_peak_memory_stats")


def reset_accumulated_memory_stats(device: Any = None) -> None:
    index_of(device)
    _ask_accelerator("reset_accumulated_memory_stats")


def empty_cache() -> None:
    torch.mps.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of what Metal recommends as the most: other programs share the same memory."""
    index_of(device)
    total = torch.mps.recommended_max_memory()
    return max(total - torch.mps.driver_allocated_memory(), 0), total


def memory_usage(device: Any = None) -> int:
    """The share of the memory that this process has, in per cent."""
    free, total = mem_get_info(device)
    return round(100 * (total - free) / total) if total else 0


def memory_stats(device: Any = None) -> dict[str, Any]:
    index_of(device)
    found = dict(_ask_accelerator("memory_stats") or {})
    for kind, now in (("allocated", memory_allocated()), ("reserved", memory_reserved())):
        found.setdefault(f"{kind}_bytes.all.current", now)
        found.setdefault(f"{kind}_bytes.all.peak", _peak(kind, now))
    return OrderedDict(sorted(found.items()))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *groups, last = name.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return nested


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    stats = memory_stats(device)
    rows = [f"{name}: {value:,}" for name, value in stats.items() if name.count(".all.") and "_bytes." in name]
    return "\n".join(["Memory of the mps device, in bytes", *rows])


def host_memory_stats() -> dict[str, Any]:
    """CPU memory is not pinned on a Mac."""
    return OrderedDict()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    global _fraction
    index_of(device)
    torch.mps.set_per_process_memory_fraction(fraction)
    _fraction = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    index_of(device)
    return _fraction


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    yield


def _noted(kind: str, now: int) -> int:
    """What is there now, which may be the most so far."""
    _highest[kind] = max(_highest.get(kind, 0), now)
    return now


def _peak(kind: str, now: int) -> int:
    _noted(kind, now)
    return max(_highest[kind], _ask_accelerator(f"max_memory_{kind}") or 0)


def _ask_accelerator(name: str) -> Any:
    """What `torch.accelerator` says, None where this torch has no such function or mps does not serve it."""
    function: Callable[[], Any] | None = getattr(torch.accelerator, name, None)
    if function is None:
        return None
    try:
        return function()
    except (NotImplementedError, RuntimeError):
        return None


OTHER_NAMES: dict[str, Any] = {
    "device_memory_used": memory_reserved,
    "host_memory_stats_as_nested_dict": host_memory_stats,
    "memory_cached": memory_reserved,
    "max_memory_cached": max_memory_reserved,
    "reset_max_memory_allocated": reset_peak_memory_stats,
    "reset_max_memory_cached": reset_peak_memory_stats,
}
