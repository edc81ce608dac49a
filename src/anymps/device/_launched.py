"""Calls that PyTorch's own kernels compute: whether they are switched on, and how the device gets them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anymps._errors import EnableError, KernelsError
from anymps._settings import asked_for, row_of, set_variable
from anymps._text import means_release
from anymps.rules import NEWEST, OLDEST, SUPPORTED, parse_torch_version

if TYPE_CHECKING:
    from anymps.device._native import NativeCore
    from anymps.kernels import Launcher, Metallib
    from anymps.rules import TorchVersion

KERNELS = row_of("kernels")

_launcher: Launcher | None = None


def kernels_asked_for(asked: str | None, substrate: str | None) -> str | None:
    """`real`, `cpu`, a release, or None where nobody asked. Child processes find it in the environment.

    Raises EnableError for another word, and for real kernels on a substrate that does not compute on the CPU.
    """
    if asked is not None and not KERNELS.takes(asked):
        raise EnableError(f"anymps: kernels={asked!r} must be {KERNELS.choices}")
    text: str | None = asked if asked is not None else asked_for("kernels")
    if substrate == "shape":
        if asked not in (None, "cpu"):
            raise EnableError(f"anymps: kernels={asked!r} and substrate='shape' can't be combined")
        return None  # a plan of a program that runs so
    if substrate == "cuda" and text not in (None, "cpu"):
        raise EnableError(
            "anymps: real kernels and substrate='cuda' can't be combined: these kernels run on this machine's CPU"
        )
    if asked is not None:
        set_variable("kernels", asked)
    return text


def check_kernels_again(current: str, asked: str | None, version: TorchVersion) -> None:
    """Raises EnableError if the device is on with other kernels; `current` is their release, or `cpu`."""
    wanted = _release_of(version) if asked == "real" else asked
    if wanted is not None and not means_release(wanted, current):
        has = "real" if current == _release_of(version) else current
        raise EnableError(
            f"anymps: the device is already on with kernels={has!r}; start a new process for kernels={asked!r}"
        )


def open_real_kernels(asked: str | None, version: TorchVersion) -> tuple[str, Metallib] | None:
    """The release of the kernels that were asked for, and they themselves; None where the CPU is to compute.

    Raises KernelsError if they were not added, cannot be read or are of a release whose launches are not known, also
    without llvmlite; BuildError without a compiler.
    """
    if asked in (None, "cpu"):
        return None
    from anymps.kernels import check_tools, open_kernels

    release = _release_of(version) if asked == "real" else release_of_kernels(asked)
    found = open_kernels(release)
    check_tools()
    return release, found


def release_of_kernels(asked: str) -> str:
    """The release, such as 2.15.0, of the added kernels that `2.15` means.

    Raises KernelsError, in one line, if they were not added, or their launches are not known.
    """
    from anymps.kernels import added_release

    if not OLDEST <= parse_torch_version(asked).release <= NEWEST:
        raise KernelsError(f"the Metal kernels of torch {asked} are not known, only those of torch {SUPPORTED}")
    return added_release(asked)


def _release_of(version: TorchVersion) -> str:
    return str(version).partition("+")[0]


def offer_calls(core: NativeCore, kernels: Metallib, release: str) -> frozenset[str]:
    """Has the device offer its calls to the kernels of a release first; the base names of the operators offered."""
    global _launcher
    from anymps.kernels import KernelLibrary, Launcher

    major, minor = parse_torch_version(release).release
    _launcher = Launcher(KernelLibrary(kernels, core), (major, minor))
    offered = _launcher.operators()
    core.offer_calls(offered, _launcher)
    return frozenset(name.partition("::")[2].partition(".")[0] for name in offered)


def count_real_calls() -> int:
    """How many calls PyTorch's own kernels have computed: `real_calls` in sum, for who asks at each call."""
    return 0 if _launcher is None else sum(_launcher.real.values())


def real_calls() -> Counter[str] | None:
    """How many calls of each operator PyTorch's own kernels have computed; None without them."""
    return None if _launcher is None else _launcher.real.copy()
