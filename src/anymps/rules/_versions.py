"""Which torch releases are supported, and what the MPS backend of each of them does differently.

Sources: header hashes, C strings and machine code of the macOS arm64 wheels of torch 2.11 to 2.15, and the pull
requests named beside the fields.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from anymps._errors import UnsupportedTorchError
from anymps._numbers import digits
from anymps.rules._readings import Reading

OLDEST: Final = (2, 11)
NEWEST: Final = (2, 15)
SUPPORTED: Final = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
"""The releases that are supported, as messages and pages tell them."""

READING: Final = Reading(
    "versions",
    "header hashes, C strings and machine code of the macOS arm64 wheels, and pull requests",
    (2, 11),
    (2, 15),
)

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?([^+]*)(?:\+(.+))?")

ALLOW_VARIABLE: Final = "ANYMPS_ALLOW_ANY_TORCH"
"""Set to 1, it lets a torch outside the supported range through, with a warning."""


class TorchVersion(NamedTuple):
    """A release of torch: `2.13.0+cpu` is (2, 13, 0) with suffix `""` and build `cpu`."""

    major: int
    minor: int
    patch: int
    suffix: str = ""
    build: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """(major, minor): what the rules depend on."""
        return (self.major, self.minor)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}{self.suffix}{f'+{self.build}' if self.build else ''}"


class Generation(IntEnum):
    """Design of `MPSAllocator`: G1 up to 2.11, G2 in 2.12 and 2.13, G3 from 2.14 (pytorch pull request 187441)."""

    G1 = 1
    """Five pools: private and shared, small and large, and one for scalars."""
    G2 = 2
    """Three shared pools."""
    G3 = 3
    """Placement heaps that cut and merge blocks."""


class CpuCopyToFloat64(Enum):
    """What `x_mps.to("cpu", torch.float64)` does (pytorch issue 197715)."""

    REFUSED = 1
    """TypeError, up to 2.13."""
    SILENT = 2
    """Nothing is written, in 2.14."""
    UNDEFINED = 3
    """RuntimeError, from 2.15 on."""


def _in(since: int = 0, until: int = 99) -> Any:
    """A field that is true from torch 2.`since` to torch 2.`until`, both included."""
    return field(metadata={"range": ((2, since), (2, until))})


@dataclass(frozen=True, kw_only=True)
class VersionRules:
    """What differs between releases. Each field says from when it holds; `version` is the release asked about.

    The native core is compiled for these values (`release::` and the field's name).
    """

    version: TorchVersion
    generation: Generation
    oldest_macos: int
    """Oldest major macOS the backend accepts: 14, from 2.15 on 15 (C strings)."""
    newest_minor_of_macos_26: int
    """The newest minor of macOS 26 that the backend asks for: 0, from 2.15 on 4 (MPSHooks.mm)."""
    complex128_refused: bool = _in(12)
    """2.12: `empty` refuses complex128 with the float64 text; before, the tensor is made and fails later."""
    accelerator_memory_api: bool = _in(13)
    """2.13: `torch.accelerator.memory_allocated` and its relatives work (pytorch pull request 186748)."""
    accelerator_active_bytes: bool = _in(15)
    """2.15: `active_bytes` is filled too (pytorch issue 193838)."""
    pinned_memory_works: bool = _in(14)
    """2.14: `pin_memory=True` makes a CPU tensor on a shared Metal buffer (before: pytorch issue 86060)."""
    metal_philox: bool = _in(13)
    """2.13: random numbers come from PyTorch's own Metal Philox, before from Apple's MPSGraph."""
    philox_kernels: int
    """The minor release whose Metal Philox kernels give the numbers: its own, and 13 before there were any."""
    exponential_can_be_zero: bool = _in(13, until=13)
    """2.13 alone: from 2.14 on it is clamped (`exponential_float` in the metallibs; pytorch issue 192577)."""
    clone_keeps_generator_state: bool = _in(13)
    """2.13: `Generator.clone_state` keeps offset and state; before, the seed only."""
    random_operators_shared: bool = _in(13)
    """2.13: operators that draw have the checks of all devices; before, MPS has its own (`random_mps_`)."""
    late_random_checks: bool = _in(13)
    """2.13: bad probabilities are found on the device and raised at the next wait. Up to 2.12 `multinomial` reads the
    answer back and raises at once, and `bernoulli` does not look."""
    cpu_copy_to_float64: CpuCopyToFloat64
    cpu_copy_target_unseen: bool = _in(13, until=14)
    """2.13 and 2.14: a copy to the CPU looks at no dtype of its target but float64 (pytorch issue 197715)."""
    metal_casts: bool = _in(13)
    """2.13: copies cast in a Metal kernel named after both dtypes, before in an MPSGraph (`copy_cast_mps`)."""
    float8_e4m3fn: bool = _in(15)
    """2.15: the device casts from and to float8_e4m3fn and names it as supported (MPSGuardImpl.h)."""
    complex_addmm_scalars: bool = _in(15)
    """2.15: `addmm` takes complex `alpha` and `beta`; before, they are read as doubles."""
    arange_bounds_as_result: bool = _in(until=13)
    """Up to 2.13: `arange` reads its bounds as the result's type, which for uint8 a negative number is not."""
    conj_physical_in_place: bool = _in(14)
    """2.14: `conj_physical_` has an entry for mps in its dispatch stub."""
    event_timing_safe: bool = _in(15)
    """2.15: `Event.elapsed_time` cannot hang (pytorch issue 162872, pull request 196395)."""
    private_set_stream: bool = _in(14)
    """2.14: `torch._C._mps_setStream` exists."""
    several_streams: bool = _in(15)
    """2.15: `torch.mps.Stream` with a pool of 32 streams."""
    host_alias_storage: bool = _in(13)
    """2.13: `torch.mps._host_alias_storage`, `load_metallib` and `_mps_maxBufferLength` exist (Module.cpp)."""
    python_kernels: tuple[str, ...]
    """Overloads whose MPS kernel torch registers from Python: up to 2.12 `native_group_norm` and its backward (by
    `torch/backends/mps/__init__.py`, if MPS is built), up to 2.13 `linalg_lu_solve.out` (by
    `torch/_refs/linalg/__init__.py`, on every platform)."""
    always_fallback: tuple[str, ...]
    """Overloads that MPSFallback.mm registers with the CPU fallback itself."""


def parse_torch_version(text: str | TorchVersion) -> TorchVersion:
    """`2.13.0+cpu` as a TorchVersion.

    Raises UnsupportedTorchError if the text is no version.
    """
    if isinstance(text, TorchVersion):
        return text
    match = _VERSION.fullmatch(text.strip())
    if not match:
        raise UnsupportedTorchError(f'anymps: "{text}" is not a torch version; expected something like 2.13.0')
    major, minor, patch, suffix, build = match.groups()
    return TorchVersion(digits(major), digits(minor), digits(patch or "0"), suffix or "", build or "")


def check_supported(version: str | TorchVersion) -> TorchVersion:
    """The version, if anymps supports it.

    Raises UnsupportedTorchError outside `SUPPORTED`: the rules of other releases are not known. With
    `ANYMPS_ALLOW_ANY_TORCH=1` the nearest known release answers instead, and what it says is assumed; who loads torch
    says so in a warning.
    """
    found = parse_torch_version(version)
    if not OLDEST <= found.release <= NEWEST:
        if os.environ.get(ALLOW_VARIABLE) == "1":
            nearest = OLDEST if found.release < OLDEST else NEWEST
            return found._replace(major=nearest[0], minor=nearest[1], patch=0)
        raise UnsupportedTorchError(
            f"anymps: torch {found} is not supported; install torch {SUPPORTED}, whose MPS rules are known"
        )
    return found


def version_rules(version: str | TorchVersion) -> VersionRules:
    """What the MPS backend of a supported torch version does; UnsupportedTorchError outside the range."""
    found = check_supported(version)
    release = READING.nearest(found.release)
    since_12, since_13, since_14, since_15 = (release >= (2, minor) for minor in (12, 13, 14, 15))
    ranges = {one.name: one.metadata["range"] for one in fields(VersionRules) if "range" in one.metadata}
    return VersionRules(
        version=found,
        generation=Generation.G3 if since_14 else Generation.G2 if since_12 else Generation.G1,
        oldest_macos=15 if since_15 else 14,
        newest_minor_of_macos_26=4 if since_15 else 0,
        philox_kernels=max(13, release[1]),
        cpu_copy_to_float64=(
            CpuCopyToFloat64.UNDEFINED
            if since_15
            else CpuCopyToFloat64.SILENT
            if since_14
            else CpuCopyToFloat64.REFUSED
        ),
        python_kernels=(
            *(() if since_13 else ("native_group_norm", "native_group_norm_backward")),
            *(() if since_14 else ("linalg_lu_solve.out",)),
        ),
        always_fallback=("embedding_renorm_",) if since_14 else ("embedding_renorm_", "linalg_svd", "linalg_svd.U"),
        **{name: first <= release <= last for name, (first, last) in ranges.items()},
    )
