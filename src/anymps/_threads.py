"""Has torch compute with one thread for a while."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def calling_thread_alone() -> Iterator[None]:
    """Within the block, torch uses one thread for the calls of this thread; other threads keep their setting.

    `torch.set_num_threads` also counts for threads that start later. Does nothing if torch does not use OpenMP.
    """
    import torch

    before = torch.get_num_threads()  # a thread sets its number when it first computes: now, not later
    set_openmp, set_mkl = _setters()
    if set_openmp is None or before == 1:
        yield
        return
    set_openmp(1)
    mkl = set_mkl(1) if set_mkl is not None else 0
    try:
        yield
    finally:
        set_openmp(before)
        if set_mkl is not None:
            set_mkl(mkl)


@cache
def _setters() -> tuple[Callable[[int], None] | None, Callable[[int], int] | None]:
    """OpenMP's function and MKL's, each for the calling thread; None where torch has no such library.

    MKL's returns the number before, 0 where the thread had none of its own.
    """
    import torch

    library = ctypes.PyDLL(torch._C.__file__)  # this also finds functions of the libraries that it needs
    openmp, mkl = getattr(library, "omp_set_num_threads", None), getattr(library, "MKL_Set_Num_Threads_Local", None)
    if openmp is not None:
        openmp.argtypes, openmp.restype = [ctypes.c_int], None
    if mkl is not None:
        mkl.argtypes, mkl.restype = [ctypes.c_int], ctypes.c_int
    return openmp, mkl
