"""Which NVIDIA GPU computes for this process, or why none can, and its accuracy: for the substrate `cuda`.

Every question to the machine goes through `look_for_gpus`, which tests replace; it asks NVIDIA's driver through its
library alone: no context is created and no memory is used. Functions and numbers are those of CUDA's driver API
(cuda.h), as NVIDIA documents them.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anymps._errors import EnableError
from anymps._numbers import digits, whole

GPUS_VARIABLE: Final = "ANYMPS_GPUS"
"""How many GPUs processes are spread over: the first of this machine, or more than it has, which are shared then."""

RANK_VARIABLE: Final = "ANYMPS_GPU_RANK"
"""The number of a process that `multiprocessing` started; what it starts in turn has the same GPU."""

PLAYED_VARIABLE: Final = "ANYMPS_GPU"
"""For tests. `cpu`: the CPU plays the GPU; `host_fallback`: and computes every call on copies, as what no GPU can."""

_PLAYED: Final = {"cpu": -1, "host_fallback": -2}  # as `choose_substrate` of the native core has it
_LAUNCHED: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "RANK")
_NEEDS: Final = "the cuda substrate needs"

_NO_GPU: Final = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR

# Settings that trade accuracy for speed. A Mac has none of them, and programs set them for all machines.
_SETTINGS: Final = (
    ("_set_float32_matmul_precision", "_get_float32_matmul_precision", "highest"),
    ("_set_cublas_allow_tf32", "_get_cublas_allow_tf32", False),
    ("_set_cudnn_allow_tf32", "_get_cudnn_allow_tf32", False),
    ("_set_cudnn_benchmark", "_get_cudnn_benchmark", False),
    ("_set_cudnn_deterministic", "_get_cudnn_deterministic", True),
    ("_set_cublas_allow_fp16_reduced_precision_reduction", "_get_cublas_allow_fp16_reduced_precision_reduction", False),
    ("_set_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_bf16_reduced_precision_reduction", False),
    ("_set_cublas_allow_fp16_accumulation", "_get_cublas_allow_fp16_accumulation", False),
)


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU: its number as CUDA counts here, its name, and its memory in bytes.

    `capability` is the version of its instructions, such as (9, 0).
    """

    number: int
    name: str
    total: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: the newest CUDA that it serves, and its GPUs; `error` says why there are none."""

    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Gpus:
    """What there is: the installed torch with the CUDA that it is built for and its instruction sets, and the driver.

    `driver` is None where there is none; `visible` is CUDA_VISIBLE_DEVICES, if it is set.
    """

    torch: str
    torch_cuda: str | None
    architectures: tuple[str, ...]
    driver: Driver | None
    visible: str | None = None


@dataclass(frozen=True)
class Lack:
    """Why no GPU, or not this one, can serve, and what to do: `cause` has no colon, `remedy` is an order."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"


def look_for_gpus() -> Gpus:
    """Ask the installed torch and the driver. Imports torch."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cuda = torch.version.cuda
    if cuda is None:
        return Gpus(str(torch.__version__), None, (), None, visible)
    # torch.cuda.get_arch_list says nothing where torch.cuda is hidden; this is what it reads.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)() or ""
    return Gpus(str(torch.__version__), cuda, tuple(flags.split()), ask_driver(), visible)


def why_no_gpu(found: Gpus) -> Lack | None:
    """Why no GPU can serve; None if one can."""
    if found.torch_cuda is None:
        return Lack(
            f"{_NEEDS} a torch that is built for CUDA, and {found.torch} is not",
            "install that build (pytorch.org/get-started), or use the host substrate",
        )
    driver = found.driver
    if driver is None:
        return Lack(
            f"{_NEEDS} NVIDIA's driver, and libcuda.so.1 cannot be loaded",
            "install the driver, or start the container with its GPUs (docker run --gpus all)",
        )
    built_for = _version(found.torch_cuda)
    if driver.cuda[0] < built_for[0]:
        return Lack(
            f"NVIDIA's driver is too old, as it serves CUDA {_dotted(driver.cuda)}, and torch {found.torch} is built "
            f"for {found.torch_cuda}",
            f"update the driver, or install a torch for CUDA {driver.cuda[0]}",
        )
    if driver.error:
        return Lack(f"NVIDIA's driver reports no GPU ({driver.error})", "run nvidia-smi, which asks the same driver")
    if driver.gpus:
        return None
    if found.visible is not None:
        return Lack(
            f"{_NEEDS} an NVIDIA GPU, and CUDA_VISIBLE_DEVICES={found.visible!r} shows none",
            "unset it, or name a GPU by its number",
        )
    return Lack(f"{_NEEDS} an NVIDIA GPU, and this machine has none", "use the host substrate")


def why_not_gpu(found: Gpus, gpu: Gpu) -> Lack | None:
    """Why this GPU cannot serve now; None if it can."""
    if not _has_kernels(found.architectures, gpu.capability):
        return Lack(
            f"torch {found.torch} has no kernels for {_named(gpu)}, which has compute capability "
            f"{_dotted(gpu.capability)}",
            f"install a torch that has them (this one has those for {', '.join(found.architectures)}), or choose "
            "another GPU with CUDA_VISIBLE_DEVICES",
        )
    return None


def gpu_of(rank: int, there: int) -> int:
    """The GPU of a rank on a machine with so many: `rank % GPUs`. Raises EnableError for a wrong `ANYMPS_GPUS`."""
    text = os.environ.get(GPUS_VARIABLE, "")
    gpus = whole(text) if text else there
    if not gpus:
        raise EnableError(f"anymps: {GPUS_VARIABLE}={text!r} must be a number of GPUs, 1 or more")
    return rank % gpus % there


def rank_here() -> int:
    """This process's number among those that share the GPUs; 0 for one alone.

    It is that of torchrun, else the worker's of pytest-xdist, else that among its parent's processes
    (`multiprocessing`), else the one of another launcher. A worker of a rank has its rank's.
    """
    local = whole(os.environ.get("LOCAL_RANK", ""))
    if local is not None:
        return local
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if worker:
        return digits(worker[1])
    for name in (RANK_VARIABLE, *_LAUNCHED):
        rank = whole(os.environ.get(name, ""))
        if rank is not None:
            return rank
    return 0


def take_gpu() -> Gpu:
    """The GPU of this process. Raises EnableError, in one line that says what to do, where it cannot be had."""
    played = _PLAYED.get(os.environ.get(PLAYED_VARIABLE, ""))
    if played is not None:
        return Gpu(played, "played by the CPU", 1 << 50, (0, 0))
    found = look_for_gpus()
    why = why_no_gpu(found)
    if why is None:
        assert found.driver is not None
        gpu = found.driver.gpus[gpu_of(rank_here(), len(found.driver.gpus))]
        why = why_not_gpu(found, gpu)
        if why is None:
            return gpu
    raise EnableError(f"anymps: {why}")


def too_small(gpu: Gpu, mac_bytes: int) -> str:
    """A warning, in one line, if the GPU may be full before the Mac is; else empty."""
    if gpu.total >= mac_bytes:
        return ""
    return (
        f"{_named(gpu)} has {_gib(gpu.total)} GiB, the Mac's GPU may use {_gib(mac_bytes)} GiB: if the GPU is full "
        "before the Mac is, the error says so"
    )


def settle_accuracy(gpu: int) -> None:
    """Settle this before anything is computed on the GPU with this number; below 0 the CPU plays it."""
    if gpu < 0:
        return
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # CUDA's libraries read it when they are first used
    import torch

    for setter, getter, value in _SETTINGS:
        if hasattr(torch._C, setter) and hasattr(torch._C, getter):
            _fix(torch._C, setter, getter, value)


def _fix(owner: Any, setter: str, getter: str, value: object) -> None:
    """Gives a setting of torch this value for good; who sets another one reads it back, and nothing comes of it."""
    set_it: Callable[..., Any] = getattr(owner, setter)
    said: list[Any] = [getattr(owner, getter)()]
    try:
        set_it(value)
    except (TypeError, RuntimeError):  # a release that takes another form of it, and has its own default
        return

    def remember(*values: Any) -> None:
        said[:] = [values[0] if len(values) == 1 else values]

    setattr(owner, setter, remember)
    setattr(owner, getter, lambda: said[0])


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.number} ({gpu.name})"


def _has_kernels(architectures: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether a build has code for a GPU: of its own generation and no newer, or such as the driver translates.

    Of a build that tells nothing, yes. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
    """
    for text in architectures:
        kind, _, digits = text.partition("_")
        digits = digits.rstrip("af")
        if len(digits) < 2 or not digits.isdecimal():
            return True  # an unknown form: let CUDA decide
        version = int(digits[:-1]), int(digits[-1])
        if kind == "compute" and version <= capability:
            return True
        if kind == "sm" and version[0] == capability[0] and version <= capability:
            return True
    return not architectures


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return int(major), int(minor or 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"


def ask_driver() -> Driver | None:
    """What the driver says; None without one."""
    try:
        cuda: Any = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    serves = version.value // 1000, version.value % 1000 // 10
    status = cuda.cuInit(0)
    if status == _NO_GPU:
        return Driver(serves)
    if status:
        return Driver(serves, error=_error(cuda, status))
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return Driver(serves, tuple(_gpu(cuda, number) for number in range(count.value)))


def _gpu(cuda: Any, number: int) -> Gpu:
    gpu, total, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(gpu), number)
    cuda.cuDeviceGetName(name, len(name), gpu)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), gpu)
    capability = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, gpu)
        capability.append(value.value)
    return Gpu(number, name.value.decode(errors="replace"), total.value, (capability[0], capability[1]))


def _error(cuda: Any, status: int) -> str:
    said = ctypes.c_char_p()
    if cuda.cuGetErrorString(status, ctypes.byref(said)) or not said.value:
        return f"error {status}"
    return f"error {status}, {said.value.decode(errors='replace')}"
