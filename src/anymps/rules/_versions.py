"""Which torch releases are supported, and what the MPS backend of each of them does differently.

Sources: header hashes, C strings and machine code of the macOS arm64 wheels of torch 2.11 to 2.15, and the pull
requests named beside the fields.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from anymps._errors import UnsupportedTorchError
from anymps.rules._readings import Reading

OLDEST: Final = (2, 11)
NEWEST: Final = (2, 15)

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


@dataclass(frozen=True)
class VersionRules:
    """What differs between releases. Each field says from when it holds; `version` is the release asked about."""

    version: TorchVersion
    generation: Generation
    oldest_macos: int
    """Oldest major macOS the backend accepts: 14, from 2.15 on 15 (C strings)."""
    shared_pool_only: bool
    """2.12: out-of-memory texts always say "shared pool" and every tensor is visible to the host."""
    complex128_refused: bool
    """2.12: `empty` refuses complex128 with the float64 text; before, the tensor is made and fails later."""
    accelerator_memory_api: bool
    """2.13: `torch.accelerator.memory_allocated` and its relatives work (pytorch pull request 186748)."""
    accelerator_active_bytes: bool
    """2.15: `active_bytes` is filled too (pytorch issue 193838)."""
    empty_cache_clears_graphs: bool
    """2.13: `empty_cache` also drops the compiled MPSGraphs (pytorch pull request 181485)."""
    unified_memory_required: bool
    """2.13: the allocator refuses discrete GPUs."""
    pinned_memory_works: bool
    """2.14: `pin_memory=True` makes a CPU tensor on a shared Metal buffer (before: pytorch issue 86060)."""
    metal_philox: bool
    """2.13: random numbers come from PyTorch's own Metal Philox, before from Apple's MPSGraph."""
    clone_keeps_generator_state: bool
    """2.13: `Generator.clone_state` keeps offset and state; before, the seed only."""
    multinomial_waits: bool
    """Up to 2.12: `multinomial` reads its validity checks back; from 2.13 it asserts on the device."""
    device_error_buffer: bool
    """2.10: kernels report bad indices as `torch.AcceleratorError` at the next wait."""
    command_buffer_errors_raised: bool
    """2.15: a failed Metal command buffer raises; before, it is ignored."""
    cpu_copy_to_float64: str
    """`x_mps.to("cpu", torch.float64)`: "refused" (TypeError) up to 2.13, "silent" (nothing is written) in 2.14,
    "undefined" (RuntimeError) from 2.15 (pytorch issue 197715)."""
    narrowing_copy_spoils_source: bool
    """Up to 2.13: a copy to the CPU with a cast to an equal or narrower type overwrites its source (issue 189563)."""
    non_blocking_retains_source: bool
    """2.13: the source of a `non_blocking` copy to mps is kept alive (pytorch pull request 181017)."""
    event_timing_safe: bool
    """2.15: `Event.elapsed_time` cannot hang (pytorch issue 162872, pull request 196395)."""
    private_set_stream: bool
    """2.14: `torch._C._mps_setStream` exists."""
    several_streams: bool
    """2.15: `torch.mps.Stream` with a pool of 32 streams."""
    host_alias_storage: bool
    """2.13: `torch.mps._host_alias_storage` and `torch.mps.load_metallib` exist."""
    allocator_log_via_c10: bool
    """2.13: allocator debug output goes through c10's LOG(INFO) instead of stderr."""
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
    return TorchVersion(int(major), int(minor), int(patch or 0), suffix or "", build or "")


def check_supported(version: str | TorchVersion) -> TorchVersion:
    """The version, if anymps supports it.

    Raises UnsupportedTorchError outside 2.11 to 2.15: the rules of other releases are not known. With
    `ANYMPS_ALLOW_ANY_TORCH=1` the nearest known release answers instead, and what it says is assumed; who loads torch
    says so in a warning.
    """
    found = parse_torch_version(version)
    if not OLDEST <= found.release <= NEWEST:
        if os.environ.get(ALLOW_VARIABLE) == "1":
            nearest = OLDEST if found.release < OLDEST else NEWEST
            return found._replace(major=nearest[0], minor=nearest[1], patch=0)
        raise UnsupportedTorchError(
            f"anymps: torch {found} is not supported; "
            f"install torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, whose MPS rules are known"
        )
    return found


def generation(version: str | TorchVersion) -> Generation:
    """The allocator generation of a supported torch version; UnsupportedTorchError outside the range."""
    release = READING.nearest(check_supported(version).release)
    if release <= (2, 11):
        return Generation.G1
    return Generation.G2 if release <= (2, 13) else Generation.G3


def version_rules(version: str | TorchVersion) -> VersionRules:
    """What the MPS backend of a supported torch version does; UnsupportedTorchError outside the range."""
    found = check_supported(version)
    release = READING.nearest(found.release)
    since_12, since_13 = release >= (2, 12), release >= (2, 13)
    since_14, since_15 = release >= (2, 14), release >= (2, 15)
    return VersionRules(
        version=found,
        generation=generation(found),
        oldest_macos=15 if since_15 else 14,
        shared_pool_only=since_12,
        complex128_refused=since_12,
        accelerator_memory_api=since_13,
        accelerator_active_bytes=since_15,
        empty_cache_clears_graphs=since_13,
        unified_memory_required=since_13,
        pinned_memory_works=since_14,
        metal_philox=since_13,
        clone_keeps_generator_state=since_13,
        multinomial_waits=not since_13,
        device_error_buffer=True,
        command_buffer_errors_raised=since_15,
        cpu_copy_to_float64="undefined" if since_15 else "silent" if since_14 else "refused",
        narrowing_copy_spoils_source=not since_14,
        non_blocking_retains_source=since_13,
        event_timing_safe=since_15,
        private_set_stream=since_14,
        several_streams=since_15,
        host_alias_storage=since_13,
        allocator_log_via_c10=since_13,
        python_kernels=(
            *(() if since_13 else ("native_group_norm", "native_group_norm_backward")),
            *(() if since_14 else ("linalg_lu_solve.out",)),
        ),
        always_fallback=("embedding_renorm_",) if since_14 else ("embedding_renorm_", "linalg_svd", "linalg_svd.U"),
    )
