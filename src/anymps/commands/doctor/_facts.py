"""What `anymps doctor` looks at: facts about this machine, gathered once, plain data that a test can make by hand."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anymps import device
from anymps._errors import AnympsError
from anymps._own_process import printed_by
from anymps._text import error_words
from anymps._version import __version__

# Variables that are shown if they are set, besides all that start with one of the prefixes.
_NAMES = ("MTL_CAPTURE_ENABLED", "PYTORCH_DEBUG_MPS_ALLOCATOR", "PYTORCH_ENABLE_MPS_FALLBACK", "TORCH_CPP_LOG_LEVEL")
_PREFIXES = ("ANYMPS_", "PYTORCH_MPS_", "PYTORCH_BINARY_FORCE_FLAVOR", "PYTORCH_UNARY_FORCE_FLAVOR")


@dataclass(frozen=True)
class Facts:
    """All that the diagnosis stands on. None means: not asked, or no answer."""

    system: str
    """`platform.system()`: Linux, Darwin, Windows."""
    machine: str
    """`platform.machine()` as this Python sees it: arm64, x86_64, aarch64."""
    python: str
    """Version of this Python."""
    macos: str | None = None
    """Version of macOS, by `sw_vers`: 15.4."""
    translated: bool = False
    """Whether this Python runs under Rosetta (sysctl sysctl.proc_translated)."""
    virtual_machine: bool = False
    """Whether macOS runs in a virtual machine (sysctl kern.hv_vmm_present)."""
    torch: str | None = None
    """Version of the installed torch; None if there is none."""
    torch_error: str | None = None
    """What `import torch` raised."""
    mps_built: bool = False
    """`torch.backends.mps.is_built()`."""
    mps_available: bool = False
    """`torch.backends.mps.is_available()`."""
    virtual: bool = False
    """Whether anymps is switched on in this very process (by a sitecustomize, say) and mps is virtual."""
    core_built: bool | None = None
    """Whether there is a native core for this torch."""
    core_prebuilt: bool = False
    """Whether it came with this installation; else it is in the cache."""
    cache: str | None = None
    """The cache directory."""
    cache_writable: bool = True
    """Whether it is there and can be written, or can be made."""
    cache_error: str | None = None
    """Why there is no place for a cache, or why it is not safe."""
    compiler: str | None = None
    """What the C++ compiler says it is."""
    compiler_error: str | None = None
    """Why the compiler named in CXX cannot be used."""
    python_headers: bool = True
    """Whether Python.h is there."""
    gpus: device.Gpus | None = None
    """What the cuda substrate stands on: torch's build, NVIDIA's driver and its GPUs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change what the mps device does."""
    anymps: str = __version__


def gather() -> Facts:
    """Ask this machine. Imports torch if it is there, builds nothing, writes nothing."""
    facts: dict[str, object] = {}
    if sys.platform == "darwin":
        facts.update(_mac_facts())
    # The build first: it reads torch's files, so it works even if torch cannot be imported.
    facts.update(_build_facts())
    facts.update(_torch_facts())
    return Facts(
        system=platform.system(),
        machine=platform.machine(),
        python=platform.python_version(),
        environment=relevant(os.environ),
        **facts,  # type: ignore[arg-type]
    )


def relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """Pick the variables that change what the mps device or anymps does, sorted by name."""
    return {name: value for name, value in sorted(environment.items()) if name in _NAMES or name.startswith(_PREFIXES)}


def _mac_facts() -> dict[str, object]:
    return {
        # Not platform.mac_ver(): a Python built against an old SDK is told 10.16 unless this variable is 0.
        "macos": printed_by(["sw_vers", "-productVersion"], SYSTEM_VERSION_COMPAT="0") or platform.mac_ver()[0] or None,
        "translated": printed_by(["sysctl", "-n", "sysctl.proc_translated"]) == "1",
        "virtual_machine": printed_by(["sysctl", "-n", "kern.hv_vmm_present"]) == "1",
    }


def _torch_facts() -> dict[str, object]:
    """Import torch and ask it; without torch, nothing."""
    facts: dict[str, object] = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        facts["torch"] = importlib.metadata.version("torch")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            facts["torch_error"] = error_words(type(error).__name__, str(error))
        elif "torch" in facts:
            facts["torch_error"] = "the package is listed as installed, but its files are gone"
    except Exception as error:  # a library that does not load, a clash of versions
        facts["torch_error"] = error_words(type(error).__name__, str(error))
    else:
        facts["torch"] = str(torch.__version__)
        facts["mps_built"] = bool(torch.backends.mps.is_built())
        facts["mps_available"] = bool(torch.backends.mps.is_available())
        facts["virtual"] = device.is_virtual()
        if sys.platform.startswith("linux"):
            facts["gpus"] = device.look_for_gpus()
    return facts


def _build_facts() -> dict[str, object]:
    """What the native core needs and whether it is there."""
    facts: dict[str, object] = {}
    try:
        directory = device.cache_directory()
        facts["cache"] = str(directory)
        facts["cache_writable"] = _can_make(directory)
        device.check_cache()
    except AnympsError as error:
        facts["cache_error"] = str(error)
    facts["python_headers"] = device.python_headers() is not None
    with contextlib.suppress(AnympsError):  # no torch, or one that is not supported
        facts["core_built"] = facts["core_prebuilt"] = device.find_prebuilt(device.find_torch()) is not None
    try:
        compiler = device.find_compiler()
    except AnympsError as error:
        facts["compiler_error"] = str(error)
        return facts
    facts["compiler"] = None if compiler is None else compiler.identity.partition(" | ")[0]
    with contextlib.suppress(AnympsError):
        facts["core_built"] = device.is_built()
    return facts


def _can_make(directory: Path) -> bool:
    """Whether a directory can be written, or could be made."""
    for path in (directory, *directory.parents):
        if path.exists():
            return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    return False
