"""From facts to a diagnosis: which state the mps device is in on this machine, why, and what to do next.

PyTorch's own notes tell three states apart (docs/source/notes/mps.rst): torch is built without MPS; it is built
with it, but the device is not available; it is available. A fourth comes before: torch is missing or broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from anymps._errors import UnsupportedTorchError
from anymps._numbers import digits
from anymps._settings import variable_of
from anymps.commands.doctor._facts import Facts
from anymps.device import Gpus, why_no_gpu, why_not_gpu
from anymps.rules import NEWEST, OLDEST, SUPPORTED, parse_torch_version, version_rules
from anymps.rules.texts import macos_too_old
from anymps.rules.variables import WATERMARKS, explain_watermark, nearest_variable, unread

_RUN = "anymps run SCRIPT, or anymps.enable() in your own code"


class State(Enum):
    """The state of the mps device in this torch, before anymps does anything."""

    NO_TORCH = "no torch"
    NOT_BUILT = "not built"
    NOT_AVAILABLE = "built, not available"
    AVAILABLE = "available"


class Status(Enum):
    """How a single check came out: ``WARN`` does not stop anything, ``BAD`` does."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True)
class Check:
    """One thing looked at; ``text`` says what was found and, if it is not ok, what to do."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True)
class Note:
    """A variable that is set; ``text`` is what a watermark does, or a mistake in any other.

    ``wrong`` marks a setting that does something else than it seems to, or fails.
    """

    name: str
    value: str
    text: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The answer of `anymps doctor`."""

    state: State
    device: str
    """What `anymps.enable()` gives here: ``real``, ``virtual`` or ``none``."""
    why: list[str]
    """Why torch has no mps of its own; empty if it has."""
    next_steps: list[str]
    checks: list[Check]
    notes: list[Note] = field(default_factory=list)


def diagnose(facts: Facts) -> Diagnosis:
    """Decide on facts alone; asks nothing of the machine."""
    state = _state(facts)
    release = _release(facts)
    why, steps = _reasons(facts, state, release)
    checks = [_torch_check(facts, release)]
    real = state is State.AVAILABLE and not facts.virtual
    if real:
        if facts.virtual_machine:
            # PriorLabs/TabPFN issue 1078: hosted macOS runners.
            checks.append(
                Check("machine", Status.WARN, "a virtual Mac: its GPU has been seen to compute wrong numbers")
            )
    elif facts.torch is not None:
        checks += _build_checks(facts)
        if facts.gpus is not None:
            checks.append(_gpu_check(facts.gpus, facts.environment.get(variable_of("substrate")) == "cuda"))
    blocked = any(check.status is Status.BAD for check in checks)
    device = "none" if blocked else "real" if real else "virtual"
    if device == "virtual":
        steps.append(f"for the virtual device: {_RUN}")
    elif device == "real":
        steps.append(_RUN)
    notes = list(explained(facts.environment, release))
    return Diagnosis(state, device, why, steps, checks, notes)


def _state(facts: Facts) -> State:
    if facts.torch is None or facts.torch_error is not None:
        return State.NO_TORCH
    if facts.virtual:
        # is_built() and is_available() answer for the virtual device now, not for torch.
        return State.NOT_BUILT if facts.system != "Darwin" else State.NOT_AVAILABLE
    if facts.mps_available:
        return State.AVAILABLE
    return State.NOT_AVAILABLE if facts.mps_built else State.NOT_BUILT


def _release(facts: Facts) -> tuple[int, int] | None:
    if facts.torch is None:
        return None
    try:
        return parse_torch_version(facts.torch).release
    except UnsupportedTorchError:
        return None


def _reasons(facts: Facts, state: State, release: tuple[int, int] | None) -> tuple[list[str], list[str]]:
    """Why torch alone has no mps device, and what to do about it: two lists of sentences."""
    if state is State.NO_TORCH:
        if facts.torch_error is not None:
            return [f"torch cannot be imported: {facts.torch_error}"], [
                "install torch again: pip install --force-reinstall torch"
            ]
        return ["torch is not installed"], [
            f"install torch {SUPPORTED}: pip install torch",
            "or install anymps in the environment that has it",
        ]
    if state is State.NOT_BUILT:
        return _not_built(facts)
    if state is State.NOT_AVAILABLE:
        return _not_available(facts, release)
    return [], []


def _not_built(facts: Facts) -> tuple[list[str], list[str]]:
    if facts.system != "Darwin":
        why = f"this is {facts.system}; only PyTorch's builds for Macs with Apple silicon have the mps device"
        return [f"{why}, and containers run Linux even on a Mac"], []
    if facts.translated:
        return _rosetta("an Intel build of torch has no mps device")
    if facts.machine == "x86_64":
        return ["this Mac has an Intel processor; PyTorch has no builds for it since torch 2.3"], []
    why = "this torch was built without MPS, as are builds for other systems and some of those from source"
    return [why], ["install PyTorch's own wheel: pip install --force-reinstall torch"]


def _not_available(facts: Facts, release: tuple[int, int] | None) -> tuple[list[str], list[str]]:
    if facts.translated or facts.machine == "x86_64":
        return _rosetta("Metal devices for PyTorch need an arm64 process")
    oldest = _oldest_macos(facts)
    macos = _major(facts.macos)
    if oldest is not None and macos is not None and macos < oldest:
        text = macos_too_old(str(facts.torch)).text
        why = [f"macOS {facts.macos} is too old for torch {facts.torch}: {text}"]
        steps = [f"update macOS to {oldest}.0 or newer"]
        if release is not None and macos == 14:
            steps.append("or install torch 2.14 or older, which accepts macOS 14: pip install 'torch<2.15'")
        return why, steps
    if facts.virtual_machine:
        why = ["macOS runs in a virtual machine without access to the GPU"]
        return why, ["give the virtual machine a GPU (Apple's paravirtualised graphics), or run on the Mac itself"]
    if facts.virtual:
        return ["the virtual device stands in for it in this process"], []
    why = ["macOS shows PyTorch no Metal GPU, although this is not a virtual machine and macOS is new enough"]
    return why, ["check whether macOS sees a GPU: system_profiler SPDisplaysDataType"]


def _rosetta(reason: str) -> tuple[list[str], list[str]]:
    why = [f"this Python is built for Intel and runs under Rosetta; {reason}"]
    return why, ["install an arm64 Python (platform.machine() must say arm64), and torch with it"]


def _oldest_macos(facts: Facts) -> int | None:
    """The oldest macOS that the installed torch accepts; None if its release is not one that we know."""
    try:
        return version_rules(str(facts.torch)).oldest_macos
    except UnsupportedTorchError:
        return None


def _major(macos: str | None) -> int | None:
    """The major number; None for 10.16, which is what newer systems tell programs that were built for older ones."""
    if macos is None or macos.startswith("10.16") or not macos.partition(".")[0].isdecimal():
        return None
    return digits(macos.partition(".")[0])


def _torch_check(facts: Facts, release: tuple[int, int] | None) -> Check:
    if facts.torch is None:
        return Check("torch", Status.BAD, "not installed")
    if facts.torch_error is not None:
        return Check("torch", Status.BAD, f"{facts.torch}, cannot be imported")
    if release is not None and OLDEST <= release <= NEWEST:
        return Check("torch", Status.OK, f"{facts.torch} (supported: {SUPPORTED})")
    text = f"{facts.torch} is outside of the supported range {SUPPORTED}"
    if facts.environment.get("ANYMPS_ALLOW_ANY_TORCH") == "1":
        return Check("torch", Status.WARN, f"{text}, allowed by ANYMPS_ALLOW_ANY_TORCH=1")
    return Check("torch", Status.BAD, f"{text}: install torch {SUPPORTED}")


def _build_checks(facts: Facts) -> list[Check]:
    """What the virtual device needs: a native core, or all that it takes to build one."""
    built = facts.core_built is True
    checks = []
    if built:
        place = "came with this installation" if facts.core_prebuilt else f"built, in {facts.cache}"
        checks.append(Check("native core", Status.OK, place))
    else:
        later = "not built yet: the first use builds it, once, which takes minutes"
        checks.append(Check("native core", Status.OK, later))
    # With a finished core nothing of this is needed.
    missing = Status.WARN if built else Status.BAD
    if facts.compiler_error is not None:
        checks.append(Check("compiler", Status.BAD, facts.compiler_error))
    elif facts.compiler is None:
        checks.append(Check("compiler", missing, "none found: install one (g++, clang++), or name it in CXX"))
    else:
        checks.append(Check("compiler", Status.OK, facts.compiler))
    if not facts.python_headers:
        checks.append(Check("Python.h", missing, f"missing: install the development package of Python {facts.python}"))
    if facts.cache_error is not None:
        checks.append(Check("cache", missing, facts.cache_error))
    elif not facts.cache_writable:
        text = f"{facts.cache} cannot be written: make it writable, or name another place in ANYMPS_CACHE_DIR"
        checks.append(Check("cache", missing, text))
    return checks


def _gpu_check(found: Gpus, wanted: bool) -> Check:
    """Which NVIDIA GPUs can compute (`--substrate cuda`); if none, why, and where one is wanted, what to do."""
    why, driver = why_no_gpu(found), found.driver
    gpus = [] if why or driver is None else [(gpu, why_not_gpu(found, gpu)) for gpu in driver.gpus]
    serving = [gpu for gpu, lack in gpus if lack is None]
    if serving:
        told = [f"cuda:{gpu.number}, {gpu.name}, {gpu.total / (1 << 30):.1f} GiB" for gpu in serving]
        return Check("NVIDIA GPU", Status.OK, f"{'; '.join(told)} (--substrate cuda)")
    lacks = [why] if why else [lack for _, lack in gpus if lack]
    if wanted:
        return Check("NVIDIA GPU", Status.WARN, "; ".join(map(str, lacks)))
    return Check("NVIDIA GPU", Status.OK, f"none: {'; '.join(lack.cause for lack in lacks)}")


def explained(environment: Mapping[str, str], release: tuple[int, int] | None) -> Iterator[Note]:
    """Each variable that is set, for a torch release (None: unknown), in the order given.

    C++ reads the fallback switch with std::stoi (aten/src/ATen/mps/MPSFallback.mm).
    """
    for name, value in environment.items():
        if name in WATERMARKS:
            yield Note(name, value, *explain_watermark(name, environment))
        elif name == "PYTORCH_ENABLE_MPS_FALLBACK" and not re.match(r"\s*[+-]?\d", value):
            yield Note(name, value, "not a number: std::stoi throws when torch is loaded; use 1 or 0", True)
        elif why := unread(name, release):
            meant = nearest_variable(name)
            yield Note(name, value, f"{why}{f'; did you mean {meant}?' if meant else ''}", True)
        else:
            yield Note(name, value)
