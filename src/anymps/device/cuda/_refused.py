"""What mps does not answer: CUDA features that a Mac lacks, with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from anymps.device.cuda._uses import report_use

_GRAPHS = "run the step without a graph, or compile the model with torch.compile"
_TOOLS = "`sudo powermetrics --samplers gpu_power` shows it for the whole Mac"
_ALLOCATOR = "leave it out: MPS has one allocator, and torch.mps.empty_cache() frees what it caches"
USE_METAL = "write the kernel in Metal, for torch.mps.compile_shader"
_ONE_GPU = "a Mac has one GPU, so leave it out; between processes use the gloo backend with CPU tensors"
USE_GLOO = "use the gloo backend with CPU tensors between processes; a Mac has one GPU"
_HANDLE = "leave it out: CUDA's libraries, which need a handle, do not exist on a Mac"

# The public names of torch.cuda and of its modules, with what to do instead.
REFUSED: dict[str, str] = {
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "export_dot": _GRAPHS,  # since torch 2.14, as the next two
    "export_graph_data": _GRAPHS,
    "graph_annotations": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "make_graphed_callables": _GRAPHS,
    "CUDAPluggableAllocator": _ALLOCATOR,
    "MemPool": _ALLOCATOR,
    "caching_allocator_alloc": _ALLOCATOR,
    "caching_allocator_delete": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "use_mem_pool": _ALLOCATOR,
    "memory_snapshot": "use torch.mps.profiler, or the memory section of an anymps report",
    "GreenContext": "leave it out: a Mac's GPU is not divided",
    "ExternalStream": _HANDLE,
    "get_stream_from_external": _HANDLE,
    "cudart": _HANDLE,
    "current_blas_handle": _HANDLE,
    "current_solver_handle": _HANDLE,
    "clock_rate": _TOOLS,
    "power_draw": _TOOLS,
    "temperature": _TOOLS,
    "utilization": _TOOLS,
    "list_gpu_processes": "Activity Monitor shows it (Window, GPU History)",
}
# Modules of torch.cuda of which every function is refused.
REFUSED_MODULES: dict[str, str] = {
    "nccl": _ONE_GPU,
    "gds": "read the file with Python: memory is shared by CPU and GPU",
    "tunable": "leave it out: MPS chooses its own kernels",
    "jiterator": USE_METAL,
}


def refuse(name: str, instead: str) -> NoReturn:
    """Raise NotImplementedError for what no Mac has, and tell of it."""
    sentence = f"{name} has no counterpart on a Mac; {instead}"
    report_use(sentence)
    raise NotImplementedError(f"anymps: {sentence}")


def refusing(name: str, instead: str) -> Callable[..., Any]:
    """A function that raises."""

    def refused(*_: object, **__: object) -> NoReturn:
        refuse(name, instead)

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    return refused


def refusing_class(name: str, instead: str) -> type:
    """A class that raises when one is made: `isinstance` goes on to work."""

    def refused(*_: object, **__: object) -> NoReturn:
        refuse(name, instead)

    return type(name.rpartition(".")[2], (), {"__new__": refused, "__module__": "torch.cuda"})
