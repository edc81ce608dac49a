"""What shaders need of the virtual device, which hands it over when it is switched on."""

from __future__ import annotations

from typing import Protocol


class Device(Protocol):
    """The part of the native core that launches of shaders use."""

    def shaders_by_operator(self) -> bool:
        """Whether a launch must go by an operator: something records, or nothing is computed."""

    def note_shader_error(self, kernel: str, message: str) -> None:
        """Has the next wait raise what a kernel wrote into its error buffer."""


_device: Device | None = None


def attach(device: Device) -> None:
    """Takes the device that is switched on in this process."""
    global _device
    _device = device


def attached() -> Device:
    """The device. Raises RuntimeError before it is switched on."""
    if _device is None:
        raise RuntimeError("anymps: the virtual device is not switched on; call anymps.enable() first")
    return _device
