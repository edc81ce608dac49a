"""Shaders that end or hold up their compiler, libclang or their own process: an error, and Python goes on."""

from __future__ import annotations

import ctypes
import uuid
from pathlib import Path

import pytest
import torch

from anymps.metal._runtime import runtime
from anymps.metal.compilation import _compiler
from anymps.metal.language import _rules
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

UNPARSED = "a Metal shader is not checked against the rules of Metal's language, because libclang cannot parse it"
TRAP = "divided an integer by a constant zero, or reached __builtin_trap"
OVERFLOW = "divided an integer by zero, or the smallest one by -1"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("int zero = 0; o[0] = o[1] / zero;", TRAP),
        ("o[0] = o[1] % 0;", TRAP),
        ("if (o[1] == 0) __builtin_trap();", TRAP),
        ("threadgroup int t[1]; t[0] = 1; threadgroup_barrier(mem_flags::mem_none); o[0] = t[0] / 0;", TRAP),
        ("o[0] = (o[1] - 2147483647 - 1) / (o[1] - 1);", OVERFLOW),
    ],
)
def test_a_trap_is_an_error(body: str, what: str) -> None:
    """The compiler makes an instruction that ends a process of a division by a constant zero."""
    kernel = torch.mps.compile_shader(f"{HEAD}kernel void f(device int* o) {{ {body} }}").f
    with pytest.raises(RuntimeError) as raised:
        kernel(torch.zeros(4, dtype=torch.int32, device="mps"), threads=1)
    where = "in the threadgroup at (0, 0, 0)" if "threadgroup" in body else "in the thread at (0, 0, 0) of the grid"
    assert str(raised.value) == (
        f"anymps: the Metal kernel 'f' {what}, {where}. On a Mac this is not caught, and the result is undefined"
    )


def test_what_libclang_is_ended_by_is_compiled_unchecked() -> None:
    """It parses in a process of its own, which a deep expression ends; the next shader has a new one."""
    new = f"int never_{uuid.uuid4().hex}() {{ return 0; }}"  # in no cache: else nothing would be parsed
    source = f"{HEAD}{new}\nkernel void f(device int* o) {{ o[0] = {'!' * 5000}o[1]; }}"
    with pytest.warns(RuntimeWarning, match=UNPARSED):
        kernel = torch.mps.compile_shader(source).f
    out = torch.zeros(2, dtype=torch.int32, device="mps")
    kernel(out, threads=1)
    assert out[0].item() == 0
    with pytest.raises(SyntaxError, match="pointer type must have explicit address space qualifier"):
        torch.mps.compile_shader(f"{HEAD}kernel void f(device int* o) {{ int* p = o; }}")


def test_templates_that_double_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By libclang first, which is not waited for, then by the compiler."""
    monkeypatch.setattr(_rules, "SECONDS", 0.5)
    monkeypatch.setattr(_compiler, "SECONDS", 1)
    doubling = """
template <class A, class B, int N> struct Twice {
  typedef typename Twice<Twice<A, B, 0>, A, N - 1>::type one;
  typedef typename Twice<Twice<B, A, 0>, B, N - 1>::type type;
};
template <class A, class B> struct Twice<A, B, 0> { typedef A type; };
kernel void f(device int* o) { o[0] = sizeof(Twice<int, float, 24>::type); }
"""
    with pytest.warns(RuntimeWarning, match=UNPARSED), pytest.raises(RuntimeError) as raised:
        torch.mps.compile_shader(HEAD + doubling)
    assert str(raised.value) == (
        "anymps: the C++ compiler gave this Metal shader up: it is nested too deeply, or takes more than 1 s or 8 GiB "
        "to compile. Split long expressions, and let templates call themselves less often"
    )


def test_a_compiler_starts_without_what_is_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sanitizer that a program preloads maps more memory than a compiler may have."""
    monkeypatch.setenv("LD_PRELOAD", "/nowhere/libasan.so")
    answer = _compiler.find_compiler().run(["--version"])
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_parser_starts_without_what_is_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may libclang's process have it."""
    monkeypatch.setenv("LD_PRELOAD", "/nowhere/libtsan.so")
    monkeypatch.setattr(_rules, "_children", {})
    child = _rules._start()
    variables = Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0")
    child.kill()
    child.communicate()
    assert not [name for name in variables if name.startswith(b"LD_PRELOAD=")]


STATIC = """
struct Made { int x; Made() : x(0) { LOOP } };
template <class T> struct Holder { static Made made; };
template <class T> Made Holder<T>::made;
kernel void f(device int* o) { o[0] = Holder<int>::made.x; }
"""


@pytest.mark.parametrize(
    ("loop", "what"),
    [
        (
            "for (volatile int i = 0;;) x += i;",
            "ran for more than 0.5 s and was stopped (ANYMPS_SHADER_SECONDS sets another limit)",
        ),
        ("for (volatile int i = 1; i <= 1; ++i) x = i / (i - 1);", OVERFLOW),
    ],
)
def test_constructors_run_as_kernels_do(monkeypatch: pytest.MonkeyPatch, loop: str, what: str) -> None:
    """Not while the library is loaded, where nothing can end or catch them."""
    monkeypatch.setattr("anymps.metal._runtime.shader_seconds", lambda: 0.5)
    ctypes.c_double.in_dll(runtime(), "anymps_rt_limit").value = 0.5
    try:
        with pytest.raises(RuntimeError) as raised:
            torch.mps.compile_shader(HEAD + STATIC.replace("LOOP", loop))
    finally:
        ctypes.c_double.in_dll(runtime(), "anymps_rt_limit").value = 600
    assert str(raised.value) == (
        f"anymps: a constructor of a variable outside of the kernels {what}. Metal wants a value that the compiler "
        "computes there: make the constructor constexpr"
    )
    kernel = torch.mps.compile_shader(HEAD + STATIC.replace("LOOP", "for (volatile int i = 0; i < 7; ++i) ++x;")).f
    out = torch.zeros(1, dtype=torch.int32, device="mps")
    kernel(out, threads=1)
    assert out.item() == 7


def test_initializers_run_once_for_two_libraries_of_one_source() -> None:
    """They enter threadgroup memory into a list, which would become a circle."""
    source = """
        kernel void turned(device float* x, uint i [[thread_position_in_threadgroup]]) {
            threadgroup float held[32];
            held[i] = x[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            x[i] = held[31 - i];
        }
    """
    for _ in range(2):
        x = torch.arange(32.0, device="mps")
        torch.mps.compile_shader(source).turned(x, threads=32, group_size=32)
        assert x.tolist() == [31.0 - i for i in range(32)]
