"""mps as torch's default device, without the mode that enters every call of torch.

`torch.set_default_device` installs a function mode, which costs each call of torch 1.3 µs. A mode can change the device
of the few functions that make tensors and of nothing else (torch.utils._device.DeviceContext), so it is enough to enter
those by another way. Two things differ from the mode: `torch.nested.nested_tensor`, which is Python, keeps its own
device; and what a function of torch makes for itself while it runs is on mps, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anymps.device._enable import native, state

if TYPE_CHECKING:
    import torch


class _Context:
    """What torch takes for the mode of its default device: `torch.set_default_device` ends it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        native().default_device(device)

    def __exit__(self, *_: object) -> None:
        native().default_device(None)


@contextmanager
def default_device() -> Iterator[None]:
    """Put new tensors of this thread on mps. What the block sets in its place holds until its end; then there is none.

    On a Mac's own device this is `torch.set_default_device`.
    """
    import torch
    from torch.utils import _device

    torch.set_default_device(None)
    current = state()
    if current is None or not current.virtual:
        torch.set_default_device("mps")
    else:
        makers = [maker for maker in _device._device_constructors() if type(maker) is type(torch.empty)]
        native().watch_factories(makers, _device.DeviceContext)
        torch._GLOBAL_DEVICE_CONTEXT.device_context = _Context(torch.device("mps"))
    try:
        yield
    finally:
        torch.set_default_device(None)
