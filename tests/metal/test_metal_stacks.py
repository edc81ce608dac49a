"""Stacks of a group's threads, on systems with pages of 4, 16 and 64 KiB, and where there is no memory for them."""

from __future__ import annotations

import re
import resource
import subprocess
import threading
from pathlib import Path

import pytest
import torch

from anymps.metal._shim import RUNTIME, SHIM
from anymps.metal.compilation._compiler import find_compiler
from metal_shaders import HEAD

# A system of other pages: it maps at multiples of them, and changes the protection of whole ones alone.
SYSTEM = """
#include "stacks.h"
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
extern "C" {
void* __real_mmap(void*, size_t, int, int, int, off_t);
int __real_mprotect(void*, size_t, int);
long __wrap_sysconf(int) { return PAGE; }
void* __wrap_mmap(void* at, size_t size, int access, int flags, int file, off_t from) {
  auto place = reinterpret_cast<uintptr_t>(__real_mmap(at, size + PAGE, access, flags, file, from));
  return reinterpret_cast<void*>((place + PAGE - 1) / PAGE * PAGE);
}
int __wrap_munmap(void*, size_t) { return 0; }
int __wrap_mprotect(void* at, size_t size, int access) {
  if (reinterpret_cast<uintptr_t>(at) % PAGE != 0) {
    errno = EINVAL;
    return -1;
  }
  return __real_mprotect(at, (size + PAGE - 1) / PAGE * PAGE, access);
}
}
int main() {
  anymps_rt::Stacks stacks(64 << 10, 70);
  char* below = nullptr;
  for (unsigned fiber = 0; fiber < 70; ++fiber) {
    char* const top = stacks.top(fiber);
    if (top == nullptr || top - below < (64 << 10)) return 1;
    std::memset(top - (60 << 10), 1, 60 << 10);
    below = top;
  }
  std::puts("well");
}
"""


@pytest.mark.parametrize("page", [4, 16, 64])
def test_every_stack_can_be_written_whatever_a_page_is(tmp_path: Path, page: int) -> None:
    source, program = tmp_path / "system.cpp", tmp_path / "system"
    source.write_text(SYSTEM)
    wraps = ",".join(f"--wrap={name}" for name in ("sysconf", "mmap", "munmap", "mprotect"))
    answer = find_compiler().run(
        [
            *("-std=c++17", f"-DPAGE={page << 10}", f"-I{RUNTIME}", f"-I{SHIM}", f"-Wl,{wraps}"),
            *(str(source), str(RUNTIME / "stacks.cpp"), "-o", str(program)),
        ]
    )
    assert answer.returncode == 0, answer.stderr
    assert subprocess.run([program], capture_output=True, text=True, check=False).stdout == "well\n"


@pytest.mark.usefixtures("virtual_device")
def test_no_memory_for_stacks_is_an_error() -> None:
    kernel = torch.mps.compile_shader(
        HEAD
        + "kernel void sums(device float* out, uint i [[thread_position_in_grid]]) "
        + "{ for (uint n = 0; n < i / 32 + 2; ++n) out[i] = simd_sum(out[i]); }"
    ).sums
    out = torch.ones(64, device="mps")
    raised: list[str] = []
    used = int(re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    before = resource.getrlimit(resource.RLIMIT_AS)

    def launch() -> None:  # on a thread that has no stacks yet: it has its own before the limit
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
        try:
            kernel(out, threads=64, group_size=64)
        except RuntimeError as error:
            raised.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert raised == [
        "anymps: the threads of the Metal kernel 'sums' need stacks, and this system gives no memory for them. Use "
        "smaller threadgroups, or raise the limit of memory (ulimit -v) or of mappings (vm.max_map_count)"
    ]
    kernel(out, threads=64, group_size=64)
