"""Calls that PyTorch's own kernels compute: whether they are asked for, and how the device comes by them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anymps._errors import EnableError
from anymps._settings import asked_for, row_of, set_variable

if TYPE_CHECKING:
    from anymps.device._native import NativeCore
    from anymps.mac import Mac
    from anymps.metal.kernels import Launcher, Metallib
    from anymps.rules import TorchVersion

KERNELS = row_of("kernels").words
ON_A_MAC = "anymps: kernels='real' is for the virtual device; this Mac runs PyTorch's own kernels anyway"

# Where scans of floats take kernels whose groups wait for one another (ScanKernel.mm of the pytorch tree)
_WITHOUT_LOOKING_BACK = {"apple7", "apple8"}
_LOOKS_BACK_FROM = (15, 0)

_launcher: Launcher | None = None
_core: NativeCore | None = None


def kernels_asked_for(asked: str | None, substrate: str | None) -> str | None:
    """`real`, `cpu`, or None where nobody asked. What was asked for is the environment's for child processes.

    Raises EnableError for another word, and for real kernels on a substrate that does not compute on the CPU.
    """
    if asked is not None and asked not in KERNELS:
        raise EnableError(f"anymps: kernels={asked!r} must be {' or '.join(KERNELS)}")
    text: str | None = asked if asked is not None else asked_for("kernels")
    if substrate == "shape":
        if asked == "real":
            raise EnableError("anymps: kernels='real' computes, and substrate='shape' computes nothing: choose one")
        return None  # a plan of a program that runs so
    if substrate == "cuda" and text == "real":
        raise EnableError(
            "anymps: real kernels run on this machine's CPU, and the cuda substrate computes on a card: choose one"
        )
    if asked is not None:
        set_variable("kernels", asked)
    return text


def check_kernels_again(current: str, asked: str | None) -> None:
    """Raises EnableError if the device is on with other kernels."""
    if asked not in (None, current):
        raise EnableError(
            f"anymps: the device is already on with kernels={current!r}; start a new process for kernels={asked!r}"
        )


def open_real_kernels(version: TorchVersion) -> Metallib:
    """The kernels of the installed release.

    Raises KernelsError if they were not added or cannot be read, also without llvmlite; BuildError without a compiler.
    """
    from anymps.metal.kernels import check_tools, open_kernels

    found = open_kernels(str(version).partition("+")[0])
    check_tools()
    return found


def offer_calls(core: NativeCore, kernels: Metallib, version: TorchVersion, mac: Mac) -> None:
    """Has the device offer its calls to the kernels first."""
    global _launcher, _core
    from anymps.metal.kernels import KernelLibrary, Launcher

    major, minor, *_ = version.release
    looks_back = mac.metal_family not in _WITHOUT_LOOKING_BACK and mac.macos >= _LOOKS_BACK_FROM
    _launcher, _core = Launcher(KernelLibrary(kernels, core), (major, minor), looks_back), core
    core.offer_calls(_launcher.operators(), _launcher.answer)


def real_calls() -> Counter[str] | None:
    """How many calls of each operator PyTorch's own kernels have computed; None without them."""
    if _launcher is None or _core is None:
        return None
    return _launcher.real + Counter(_core.kept_launches())
