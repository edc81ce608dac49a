"""The checked form of a kernel computes what the plain one does, bit by bit, and finds nothing in correct kernels.

`ANYMPS_FUZZ_EXAMPLES` runs so many random kernels, of the seed `ANYMPS_FUZZ_SEED`, in place of a fixed few.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import random_loops
import random_shaders
from anymps.metal import ShaderFaultWarning, take_shader_faults
from anymps.metal._runtime import GROUPS as GROUPS_FORM
from anymps.metal.compilation._compile import FIBERS_VARIABLE, compile_shader
from metal_shaders import BASICS, GROUPS, HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNELS = 20  # in one source: a compilation each would take five times as long
EXAMPLES = int(os.environ.get("ANYMPS_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ANYMPS_FUZZ_SEED", "0"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Faults that no test takes are not the next one's."""
    yield
    take_shader_faults()


def _both(text: str) -> list[Any]:
    """The plain and the checked library of a source, compiled side by side."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda checked: compile_shader(text, checked), (False, True)))
    libraries = []
    for value in ("0", "all"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANYMPS_CHECK_SHADERS", value)
            libraries.append(torch.mps.compile_shader(text))
    return libraries


def _as_fibers(text: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FIBERS_VARIABLE, "1")
        return torch.mps.compile_shader(text)


def _written(library: Any, name: str, output: str) -> tuple[bytes, bytes]:
    """The bytes of what a kernel of `random_shaders` writes."""
    threads, (dtype, parts) = random_shaders.THREADS, random_shaders.TYPES[output]
    out = torch.zeros(threads * parts, dtype=getattr(torch, dtype), device="mps")
    x = torch.arange(float(threads), device="mps") % 23
    count = torch.zeros(1, dtype=torch.int32, device="mps")
    getattr(library, name)(out, x, threads, count, threads=threads, group_size=random_shaders.GROUP)
    used = out.view(threads, parts)[:, : random_shaders.GAPS.get(output, parts)]
    return used.cpu().numpy().tobytes(), count.cpu().numpy().tobytes()


CALLS = (
    HEAD
    + """
struct Five { float a, b, c, d, e; };
__attribute__((noinline)) float2 two(float x) { return float2(x, x + 1); }
__attribute__((noinline)) float4 four(float x) { return float4(x, x + 1, x + 2, x + 3); }
__attribute__((__noinline__)) half4 halves(float x) { return half4(x, x + 1, x + 2, x + 3); }
__attribute__((unused, noinline)) Five five(float x) { return Five{x, x, x, x, x}; }
__attribute__((noinline)) float2 more(float2 x) { return x + 1; }
__attribute__((noinline)) float first(Five x) { return x.a + x.e; }
#define KERNEL(NAME, T, ...) \\
  kernel void NAME(device T* o, device float* x, uint i [[thread_position_in_grid]]) { o[i] = __VA_ARGS__; }
KERNEL(twos, float2, two(x[i]))
KERNEL(fours, float4, four(x[i]))
KERNEL(eights, half4, halves(x[i]))
KERNEL(fives, Five, five(x[i]))
KERNEL(pairs, float2, more(((device float2*)x)[i % 16]))
KERNEL(firsts, float, first(((device Five*)x)[i % 12]))
kernel void shared(device float4* o, device float* x, uint i [[thread_index_in_threadgroup]]) {
  threadgroup float4 t[64];
  t[i] = four(x[i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  o[i] = t[i ^ 1];
}
"""
)


@pytest.mark.filterwarnings("ignore::anymps.metal.ShaderFaultWarning")
def test_what_a_call_returns_is_written() -> None:
    """Vectors and structs, which a call stores where they belong; and those that it is given by value."""
    results = []
    for library in _both(CALLS):
        made = {}
        parts_of = {"twos": 2, "fours": 4, "eights": 2, "fives": 5, "pairs": 2, "firsts": 1, "shared": 4}
        for name, parts in parts_of.items():
            out = torch.zeros(64 * parts, device="mps")
            getattr(library, name)(out, torch.arange(64.0, device="mps"), threads=64, group_size=64)
            made[name] = out.cpu().numpy().tobytes()
        results.append(made)
    assert results[0] == results[1]
    assert [fault.what for fault in take_shader_faults() if fault.kind != "dtype"] == []


def test_what_a_call_reads_beside_a_buffer_is_told() -> None:
    """A struct that is passed by value is read in the kernel."""
    checked = _both(CALLS)[1]
    short = torch.zeros(20, device="mps")
    with pytest.warns(ShaderFaultWarning, match="`firsts` reads past the end of argument 1 at line 18"):
        checked.firsts(torch.zeros(64, device="mps"), short, threads=64, group_size=64)


@pytest.mark.filterwarnings("ignore::anymps.metal.ShaderFaultWarning")
def test_sources_of_other_tests_compute_the_same() -> None:
    """Structs, swizzles, tiles, trees, softmax, matrices, lanes, atomics; and no race is found, and no stray access."""
    for source in (BASICS, GROUPS):
        plain, checked = (_results(library, source) for library in _both(source))
        assert plain == checked
    assert {fault.kind for fault in take_shader_faults()} <= {"dtype", "lane", "missing"}


def _results(library: Any, source: str) -> list[bytes]:
    torch.manual_seed(1)
    small = (torch.randint(0, 64, (4096,)) / 8).to("mps")
    out = torch.zeros(4096, device="mps")
    found = []
    for name, arguments, sizes in _CALLS_OF_BASICS if source == BASICS else _CALLS_OF_GROUPS:
        given = [{"out": out, "x": small}[one] if isinstance(one, str) else one for one in arguments]
        given = [given_one.to("mps") if isinstance(given_one, torch.Tensor) else given_one for given_one in given]
        getattr(library, name)(*given, **sizes)
        found.append(out.cpu().numpy().tobytes())
        out.zero_()
    return found


_LENGTH = torch.tensor([100], dtype=torch.int32)
_SOME = torch.tensor([40], dtype=torch.int32)  # of a threadgroup of 64: no thread reads beside its array
_CALLS_OF_BASICS: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("saxpy", ["out", "x", 2.0], {"threads": 4096}),
    ("places", ["out"], {"threads": (5, 6, 7), "group_size": (2, 4, 3)}),
    ("count_float", ["out"], {"threads": 1000}),
    ("count_half", ["out"], {"threads": 1000}),
    ("count_long", ["out"], {"threads": 1000}),
    ("move", [torch.arange(8.0), "out"], {"threads": 100}),
    ("swizzles", ["out"], {"threads": 1024}),
)
_CALLS_OF_GROUPS: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("matmul", ["out", "x", "x", torch.tensor([50, 40, 24, 0])], {"threads": (56, 40), "group_size": (8, 8)}),
    ("tree_float", ["out", "x", _LENGTH], {"threads": 384, "group_size": 128}),
    ("softmax", ["out", "x", _LENGTH], {"threads": 256, "group_size": 32}),
    ("product8", ["out", "x", "x"], {"threads": 32}),
    ("lanes", ["out"], {"threads": 96, "group_size": 96}),
    ("leaves_early", ["out", _SOME], {"threads": 64, "group_size": 64}),
    ("histogram", ["out", torch.arange(1000, dtype=torch.int32) % 4], {"threads": 1000}),
)


def _kernel_text(text: str, name: str) -> str:
    start = text.index(f"kernel void {name}(")
    return text[start : text.find("\nkernel", start) + 1 or None]


def random_kernels_compute_the_same(numbers: random.Random) -> None:
    """Not one bit differs from fibers and from the checked form, and not one finding."""
    text, outputs = random_shaders.source(numbers.randint, KERNELS)
    plain, checked = _both(text)
    fibers = _as_fibers(text)
    take_shader_faults()
    for number, output in enumerate(outputs):
        name = f"k{number}"
        expected = _written(fibers, name, output)
        assert _written(plain, name, output) == expected, f"cut:\n{text}\n{_kernel_text(text, name)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShaderFaultWarning)
            found = _written(checked, name, output)
        assert [fault.what for fault in take_shader_faults()] == [], _kernel_text(text, name)
        assert found == expected, f"{name} writes something else where it is checked:\n{text}"


def random_loops_compute_the_same(numbers: random.Random) -> None:
    """Kernels whose threads meet in loops: cut where all run them as often, else not; the bits are those of fibers."""
    text, kernels = random_loops.source(numbers.randint, KERNELS)
    plain, checked = _both(text)
    fibers = _as_fibers(text)
    take_shader_faults()
    x = torch.arange(float(random_loops.THREADS)) % 23
    for kernel in kernels:
        written = []
        assert (getattr(plain, kernel.name)._entry.form == GROUPS_FORM) == kernel.cut, _kernel_text(text, kernel.name)
        for library in (plain, fibers, checked):
            out = torch.zeros(random_loops.THREADS, device="mps")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ShaderFaultWarning)
                getattr(library, kernel.name)(
                    out, x.to("mps"), 5, threads=kernel.threads, group_size=kernel.group_size, arg_casts={2: "int32"}
                )
            written.append(out.cpu().numpy().tobytes())
        assert written[0] == written[1], f"cut:\n{_kernel_text(text, kernel.name)}"
        assert written[0] == written[2], f"checked:\n{_kernel_text(text, kernel.name)}"
        assert [fault.what for fault in take_shader_faults()] == [], _kernel_text(text, kernel.name)


def _sources(count: int, check: Callable[[random.Random], None]) -> Callable[[], None]:
    """A test of so many random sources, of `KERNELS` each, or of as many as `ANYMPS_FUZZ_EXAMPLES` asks for."""
    chosen = settings(
        max_examples=max(1, EXAMPLES // KERNELS) if EXAMPLES else count,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate],  # a compilation a step is too much to look for a smaller one: the kernel is shown
        suppress_health_check=list(HealthCheck),
    )

    @chosen
    @given(st.randoms(use_true_random=True))
    def test(numbers: random.Random) -> None:
        check(numbers)

    return seed(SEED)(test) if EXAMPLES else test


test_random_kernels_compute_the_same = _sources(4, random_kernels_compute_the_same)
test_random_loops_compute_the_same = pytest.mark.slow(_sources(4, random_loops_compute_the_same))
