"""Libraries of CUDA that do not exist on a Mac: importing one raises, and looking for one finds nothing."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from anymps.device._after_import import after_import
from anymps.device.cuda._refused import USE_GLOO, USE_METAL, refuse
from anymps.device.cuda._uses import Patches, report_use

_ATTENTION = "use torch.nn.functional.scaled_dot_product_attention"
# Read on 28 November 2026 in the package index, where a library has a wheel for macOS on arm64 if any system has one:
# bitsandbytes 0.50.2 has one, with a backend for mps, so it is no row. cupy 14.2.0, flash_attn 2.8.3.post2,
# pycuda 2026.1 and triton 3.9.0 have none. xformers 0.0.35 has none; a pre-release wheel for any system is without
# kernels. transformer_engine 2.20.2 is for any system and loads a library that is built for CUDA alone. NVIDIA's apex
# is not in the index: github.com/NVIDIA/apex builds for CUDA.
_NORMS = "torch.nn has its layers, and torch.optim its optimizers"
LIBRARIES: dict[str, str] = {
    "apex": _NORMS,
    "cupy": "use tensors on mps",
    "flash_attn": _ATTENTION,
    "pycuda": USE_METAL,
    "transformer_engine": _NORMS,
    "triton": f"{USE_METAL}, or give the function to torch.compile",
    "xformers": _ATTENTION,
}

_EXTENSIONS = "torch.utils.cpp_extension"


class _Absent(MetaPathFinder):
    """Comes before all other finders, and knows what is absent."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in LIBRARIES:
            sentence = f"{fullname} has no counterpart on a Mac; {LIBRARIES[fullname]}"
            if not _imported_by_torch():
                report_use(sentence)
            raise ModuleNotFoundError(f"anymps: {sentence}", name=fullname)
        return None


def _imported_by_torch() -> bool:
    """Whether a module of torch tries the import: it does without."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"


def install(patches: Patches) -> None:
    """Refuse the libraries, NCCL, and extensions with kernels of CUDA."""
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    patches.callback(lambda: sys.meta_path.remove(finder))
    patches.callback(after_import(_EXTENSIONS, functools.partial(_refuse_extensions, patches)))
    original = importlib.util.find_spec

    @functools.wraps(original)
    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in LIBRARIES and name.partition(".")[0] not in sys.modules:
            return None
        return original(name, package)

    patches.put(importlib.util, "find_spec", find_spec)
    _refuse_nccl(patches)


def _refuse_nccl(patches: Patches) -> None:
    if not torch.distributed.is_available():
        return
    original = torch.distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(backend, str) and "nccl" in backend.lower():
            refuse(f'torch.distributed.init_process_group("{backend}")', USE_GLOO)
        return original(backend, *args, **kwargs)

    patches.put(torch.distributed, "init_process_group", init_process_group)
    patches.put(torch.distributed, "is_nccl_available", lambda: False)


def _refuse_extensions(patches: Patches, module: ModuleType) -> None:
    def with_cuda(*given: Any, **named: Any) -> bool:
        sources = given[1] if len(given) > 1 else named.get("sources", ())
        sources = [sources] if isinstance(sources, str) else sources
        return bool(named.get("with_cuda")) or any(str(source).endswith((".cu", ".cuh")) for source in sources)

    def inline(*given: Any, **named: Any) -> bool:
        return bool((given[2] if len(given) > 2 else named.get("cuda_sources")) or named.get("with_cuda"))

    for name, asks in (("load", with_cuda), ("load_inline", inline), ("CUDAExtension", lambda *_, **__: True)):
        patches.put(module, name, _refusing(getattr(module, name), f"{_EXTENSIONS}.{name} with CUDA", asks))


def _refusing(original: Callable[..., Any], name: str, asks: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def built(*args: Any, **kwargs: Any) -> Any:
        if asks(*args, **kwargs):
            refuse(name, USE_METAL)
        return original(*args, **kwargs)

    return built
