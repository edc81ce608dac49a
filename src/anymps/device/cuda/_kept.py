"""Public names of torch.cuda that stay as torch has them, and why."""

from __future__ import annotations

KEPT: dict[str, str] = {
    # Modules: what they hold is answered or refused by itself.
    **dict.fromkeys(
        ("amp", "graphs", "jiterator", "memory", "nccl", "nvtx", "profiler", "random", "sparse", "streams", "tunable"),
        "a module",
    ),
    # Classes of errors, and what is made of them.
    **dict.fromkeys(("CudaError", "DeferredCudaCallError", "check_error", "cudaStatus"), "an error, or asks for one"),
    **dict.fromkeys(("has_half", "has_magma"), "a constant of the build"),
    "default_generators": "holds the generator of mps",
    # Types of storages: torch deprecates them, and says so by itself.
    **dict.fromkeys(
        (
            "BFloat16Storage",
            "BoolStorage",
            "ByteStorage",
            "CharStorage",
            "ComplexDoubleStorage",
            "ComplexFloatStorage",
            "DoubleStorage",
            "FloatStorage",
            "HalfStorage",
            "IntStorage",
            "LongStorage",
            "ShortStorage",
        ),
        "a type of storage",
    ),
}
