"""`torch.cuda`: how many devices there are, which one is current, what it is, and its random numbers."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch

from anymps.device.cuda._names import index_of
from anymps.device.cuda._uses import called_by, report_use
from anymps.mac import Mac

_MACOS_WITH_BFLOAT16 = (14, 0)  # torch/backends/mps/__init__.py and MPSDevice.mm: bfloat16 since macOS 14
# Modules that compile for CUDA if it is available: they get the true answer, and compile for mps.
_COMPILERS = (
    "torch._dynamo",
    "torch._functorch",
    "torch._inductor",
    "torch._subclasses",
    "torch.fx",
    "torch.utils._triton",
)
_PROFILERS = ("torch.profiler", "torch.autograd.profiler")
# Libraries with code for mps beside compiled code for CUDA, which they load if it is available: backends/cuda/ops.py of
# bitsandbytes 0.50.2, library/extensions/__init__.py of optimum-quanto 0.2.7.
_WITH_MPS = ("bitsandbytes", "optimum.quanto")
_EMULATING = ("apple7", "apple8")  # M1 and M2 compute bfloat16 by way of float32

# What is the same always.
CONSTANTS: dict[str, Any] = {
    "caching_allocator_enable": None,  # MPS always caches
    "current_device": 0,
    "device_count": 1,
    "get_allocator_backend": "native",
    "get_gencode_flags": "",
    "get_sync_debug_mode": 0,
    "init": None,
    "ipc_collect": None,  # processes share no memory of the GPU on a Mac
    "is_current_stream_capturing": False,
    "is_initialized": True,
    "is_tf32_supported": False,
    "reset_accumulated_host_memory_stats": None,
    "reset_peak_host_memory_stats": None,
    "set_sync_debug_mode": None,  # a report says where the host waits
}


def is_available() -> bool:
    return not called_by(2, *_COMPILERS, *_PROFILERS, *_WITH_MPS)


def set_device(device: Any) -> None:
    index_of(device)


def synchronize(device: Any = None) -> None:
    index_of(device)
    torch.mps.synchronize()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """None of NVIDIA's: what asks for tensor cores, Triton or flash attention finds them absent."""
    index_of(device)
    return 0, 0


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    index_of(device)
    index_of(peer_device)
    return False


def get_arch_list() -> list[str]:
    return []


def manual_seed(seed: int) -> None:
    torch.mps.manual_seed(int(seed))


def seed() -> None:
    torch.mps.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    return torch.mps._get_default_mps_generator().initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """44 bytes, where CUDA has 16: a state that a checkpoint took from CUDA is none for mps."""
    index_of(device)
    return torch.mps.get_rng_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    index_of(device)
    torch.mps.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


class device:
    """`with torch.cuda.device(0):`; there is no other device to go to."""

    def __init__(self, device: Any) -> None:
        if not called_by(1, "torch"):
            report_use()
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = 0

    def __exit__(self, *_: object) -> None:
        self.idx = index_of()


class device_of(device):
    """`with torch.cuda.device_of(tensor):`"""

    def __init__(self, obj: Any) -> None:
        super().__init__(0)


def answers_of(mac: Mac | None) -> dict[str, Any]:
    """What depends on the Mac; None is one that is not known."""
    chip = mac.chip if mac is not None else "Apple GPU"
    bfloat16 = mac is None or mac.macos >= _MACOS_WITH_BFLOAT16

    def get_device_name(device: Any = None) -> str:
        index_of(device)
        return chip

    def get_device_properties(device: Any = None) -> SimpleNamespace:
        index_of(device)
        return SimpleNamespace(
            name=chip,
            gcnArchName="",  # Inductor reads it where torch.version.cuda is None
            major=0,
            minor=0,
            total_memory=torch.mps.recommended_max_memory(),
            multi_processor_count=mac.gpu_cores if mac is not None else 0,
            is_integrated=1,
            is_multi_gpu_board=0,
            warp_size=32,
            max_threads_per_block=1024,
            max_threads_per_multi_processor=1024,
            shared_memory_per_block=32768,
        )

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return bfloat16 and (including_emulation or mac is None or mac.metal_family not in _EMULATING)

    return {function.__name__: function for function in (get_device_name, get_device_properties, is_bf16_supported)}
