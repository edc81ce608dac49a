"""Tensors, storages and checkpoints that are sent to CUDA."""

from __future__ import annotations

import functools
from typing import Any

import torch

from anymps.device.cuda._names import place_of
from anymps.device.cuda._patches import Patches
from anymps.device.cuda._streams import Stream
from anymps.device.cuda._uses import report_use

_BEFORE_CUDA = 15  # torch asks its own reader of CUDA locations at 20 (torch/serialization.py)


def _cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
    """A copy of this tensor on the mps device, itself where it is there."""
    report_use()
    return self.to(place_of(device), non_blocking=non_blocking, memory_format=memory_format)


def _pin_memory(self: Any, device: Any = None) -> Any:
    """This tensor: CPU and GPU of a Mac share their memory."""
    report_use()
    return self


def _storage_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    report_use()
    place_of(device)
    return self.mps()


def _load(storage: Any, location: str) -> Any:
    if location.partition(":")[0] != "cuda":
        return None
    index = location[5:]
    if index not in ("", "0"):
        raise RuntimeError(  # as torch/serialization.py (_validate_device) says it
            f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is 1. Please use "
            "torch.load with map_location to map your storages to an existing device."
        )
    report_use()
    return storage.mps()


def install(patches: Patches) -> None:
    """`.cuda()` and `pin_memory()`, and reading what was saved on CUDA."""
    tensor: Any = torch.Tensor
    patches.put(tensor, "cuda", _cuda)
    patches.put(tensor, "pin_memory", _pin_memory)
    original_record = tensor.record_stream

    @functools.wraps(original_record)
    def record_stream(self: Any, stream: Any) -> None:
        if not isinstance(stream, Stream):
            original_record(self, stream)

    patches.put(tensor, "record_stream", record_stream)
    patches.put(torch.storage._StorageBase, "cuda", _storage_cuda)
    registry = torch.serialization._package_registry
    former = list(registry)
    torch.serialization.register_package(_BEFORE_CUDA, lambda _: None, _load)
    patches.put(torch.serialization, "_package_registry", list(registry))
    registry[:] = former
