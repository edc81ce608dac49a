"""The Mac that the virtual device acts as, as one typed table for the native core."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from anymps.mac import Mac
    from anymps.rules import TorchVersion


class Machine(TypedDict):
    """What `install_device` of the native core reads, field by field (`native/bindings/device_bindings.cpp`).

    Memory is in bytes: what Metal recommends as the most, and the largest buffer. `macos` is the version's first two
    numbers, `substrate` one of `SUBSTRATES`, `torch_minor` the second number of torch's version. `gpu` is the number
    of the NVIDIA GPU that computes, below 0 where the CPU plays it (`choose_substrate`, device/interface/substrate.h).
    """

    torch_minor: int
    recommended_max_memory: int
    max_buffer_length: int
    macos: tuple[int, int]
    substrate: str
    gpu: int


def machine(version: TorchVersion, mac: Mac, substrate: str, gpu: int = 0) -> Machine:
    """The table for a torch on a Mac."""
    return Machine(
        torch_minor=version.release[1],
        recommended_max_memory=mac.recommended_max_memory,
        max_buffer_length=mac.max_buffer_length,
        macos=(mac.macos[0], mac.macos[1]),
        substrate=substrate,
        gpu=gpu,
    )
