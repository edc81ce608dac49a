"""Launches that are repeated often: their kernel is compiled once more for their arguments.

Compiling takes about as long as a launch's threads take that follow strides or meet each other a few hundred thousand
times. So a launch is described afresh until it has had that many threads; only then it is kept, with a kernel of its
own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Container, Sequence
from typing import Any

from anymps._errors import KernelsError
from anymps.metal.kernels._fixed import Fixed
from anymps.metal.kernels._library import CompiledKernel, KernelLibrary
from anymps.metal.kernels.launches import Launch

FEW = 1 << 13
"""Threads of a launch that is kept at once, as it takes no time worth saving."""
ENOUGH = 1 << 18
"""Threads that a launch must have had, all calls together."""
_MOST = 256  # kernels compiled so
_REMEMBERED = 4096  # launches


class HotLaunches:
    """Counts launches, and gives the kernel that one is kept with."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library
        self._threads: dict[tuple[str, Fixed], int] = {}
        self._made: dict[tuple[str, Fixed], CompiledKernel] = {}
        self._lock = threading.Lock()

    def kernel_for(
        self, launch: Launch, kernel: CompiledKernel, buffers: Sequence[Any], read_anew: Container[int]
    ) -> CompiledKernel | None:
        """The kernel that the launch is kept with; None as long as it is to be described afresh.

        `read_anew` are slots whose constants differ from call to call.
        """
        threads = math.prod(launch.threads)
        if not kernel.depends or threads < FEW:
            return kernel
        key = (launch.kernel, kernel.fixed(buffers, launch.threads, launch.group, read_anew))
        with self._lock:
            if key in self._made:
                return self._made[key]
            if len(self._threads) >= _REMEMBERED:
                self._threads.clear()
            self._threads[key] = self._threads.get(key, 0) + threads
            if self._threads[key] < ENOUGH:
                return None
            del self._threads[key]
            if len(self._made) >= _MOST:
                return kernel
            try:
                self._made[key] = self._library.fixed(*key)
            except KernelsError:  # LLVM makes nothing of it
                self._made[key] = kernel
            return self._made[key]
