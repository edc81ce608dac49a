"""A shader's text runs no program here and reads no file: what Metal refuses is refused before anything is loaded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from anymps.metal.compilation import _host_code
from anymps.metal.compilation._headers import torch_headers
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

KERNEL = "\nkernel void f(device float* x) { x[0] = 1; }\n"
PROGRAM_SCOPE = "program scope variable must reside in constant address space"
LINKAGE = "a language linkage specification is not allowed"
ASSEMBLY = "inline assembly is not supported"
ABSENT = "No such file or directory"
BEFORE_COMPILING = {  # source: what is said of it
    'extern "C" int system(const char*); static int b = system("touch TARGET");': LINKAGE,
    'namespace z { extern "C" int anymps_rt_call(); }': LINKAGE,
    "__attribute__((constructor)) void g() {}": "unknown attribute 'constructor'",
    "__attribute__((unused, destructor)) void g() {}": "unknown attribute 'destructor'",
    '__attribute__((section("x"))) constant int g = 1;': "unknown attribute 'section'",
    '__attribute__((ifunc("g"))) void h();': "unknown attribute 'ifunc'",
    "__declspec(allocate) int g;": "__declspec is not supported",
    "#include <cstdlib>": f"cstdlib: {ABSENT}",
    "#include <stdio.h>": f"stdio.h: {ABSENT}",
    "#include <msl/all.h>": f"msl/all.h: {ABSENT}",
    '#include "/etc/passwd"': f"/etc/passwd: {ABSENT}",
    '#import "/etc/passwd"': f"/etc/passwd: {ABSENT}",
    '#include "c10/metal/../../../../../../etc/passwd"': f"c10/metal/../../../../../../etc/passwd: {ABSENT}",
    "#include <c10/util/Half.h>": f"c10/util/Half.h: {ABSENT}",
    '#in\\\nclude "/etc/passwd"': f"/etc/passwd: {ABSENT}",
    '/* a */ # /* b */ include "/etc/passwd"': f"/etc/passwd: {ABSENT}",
    "<:<:gnu::unused:>:> void g() {}": "digraphs are not supported",
    "[[gnu::constructor]] void g() {}": "unknown attribute 'constructor'",
    '[[using gnu: unused, section("x")]] constant int g = 1;': "unknown attribute 'section'",
    '%:include "/etc/passwd"': "a digraph begins a line of the preprocessor",
    '#define X "/etc/passwd"\n#include X': "#include does not name a header of Metal's",
    '#include_next "/etc/passwd"': "#include_next does not name a header of Metal's",
    '#embed "/etc/passwd"': "#embed does not name a header of Metal's",
    '#if __has_include("/etc/passwd")\n#endif': "__has_include asks for files of this machine",
    '#define Y __has_\\\ninclude("/etc/passwd")\n#if Y\n#endif': "__has_include asks for files of this machine",
    'asm(".incbin \\"/etc/passwd\\"");': ASSEMBLY,
    'a\\\nsm("nop");': ASSEMBLY,
    'void g() { __asm__ volatile("syscall"); }': ASSEMBLY,
    'int g() __asm("system");': ASSEMBLY,
    "#pragma redefine_extname foo system": "#pragma redefine_extname foo system is not one of Metal's",
    '#pragma GCC dependency "/etc/passwd"': '#pragma GCC dependency "/etc/passwd" is not one of Metal\'s',
    '#define P _Pragma("GCC dependency \\"/etc/passwd\\"")\nP': "_Pragma is not one of Metal's",
    'struct A { A() { __builtin_puts("x"); } }; A a;': PROGRAM_SCOPE,
    "struct A { int a; } a;": PROGRAM_SCOPE,
}
IN_THE_OBJECT = {
    '#define unused section("x")\n__attribute__((unused)) constant int g = 1;': "unknown attribute 'section'",
    '#define L [\nL L gnu::section("x")]] constant int g = 1;': "unknown attribute 'section'",
    'int system(constant char*);\nvoid g() { ::system("touch TARGET"); }': (
        "use of undeclared identifier '_Z6systemPKc'"
    ),
    'void g() { __builtin_execl("/bin/true", "true", (thread char*)0); }': "use of undeclared identifier 'execl'",
    "int g() { return __builtin_fork(); }": "use of undeclared identifier 'fork'",
    'constant int b = __builtin_puts("x");': "use of undeclared identifier 'puts'",
    '#define A(x) as##x\nA(m)("nop");': "inline assembly is not supported",
    "#define J(a, b) a##b\nJ(__attri, bute__)((J(const, ructor))) static void g() {}": (
        "unknown attribute 'constructor'"
    ),
}


@pytest.mark.parametrize("source", BEFORE_COMPILING)
def test_what_is_refused_before_a_compiler_sees_it(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SyntaxError in the form of Metal's, and no C++ compiler has run."""
    monkeypatch.setattr("anymps.metal.compilation._compiler.Compiler.run", _forbidden)
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(source + KERNEL)
    assert str(raised.value).partition("error: ")[2].splitlines()[0] == BEFORE_COMPILING[source]


@pytest.mark.parametrize("source", IN_THE_OBJECT)
def test_what_is_refused_before_it_is_loaded(source: str, tmp_path: Path) -> None:
    """By the compiler, where macros have made it, and by what the object asks for."""
    target = tmp_path / "touched"
    called = KERNEL.replace("x[0] = 1;", "x[0] = 1; g();") if " g()" in source else KERNEL
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(source.replace("TARGET", str(target)) + called)
    assert str(raised.value).partition("error: ")[2].splitlines()[0] == IN_THE_OBJECT[source]
    assert not target.exists()


def test_what_metal_takes_is_taken() -> None:
    """Its headers, constants outside of functions, attributes, pragmas, and words in comments and strings."""
    library = torch.mps.compile_shader(
        '#pragma once\n#include <simd/simd.h>\n#import <metal_math>\n#include "c10/metal/utils.h"\n'
        + HEAD
        + """
// asm, extern "C", #include "/etc/passwd"
/* #include "/etc/passwd"
#include "/etc/passwd" */
#pragma clang diagnostic ignored "-Wunused"
#pragma METAL fp math_mode(safe)
enum Kind { one = 1, two };
struct __attribute__((packed)) Pair { float a; float b; };
typedef float number;
constant float scale = 2.0, more[] = {1, 2};
static constant constexpr int count = 3;
constexpr constant Pair both = {1, 2};
inline float twice(float a);
inline float twice(float a) { return a * scale; }
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {
  _Pragma("clang loop unroll(full)") for (int j = 0; j < count; ++j) x[i] += twice(more[1] + both.b);
}
"""
    )
    x = torch.zeros(4, device="mps")
    library.f(x)
    assert x.tolist() == [24.0] * 4


def _forbidden(*_: object, **__: object) -> None:
    raise AssertionError("a compiler has run")


def test_nothing_hides_a_hostile_line() -> None:
    """Two thousand sources: comments, joined lines, spaces and code around and within the lines that are refused."""
    numbers = random.Random(7)
    refused = [source for source in BEFORE_COMPILING if BEFORE_COMPILING[source] != PROGRAM_SCOPE]
    fills = ["\\\n", "/* x */", " ", "\t", "\\\n\\\n", "/* \\\n */"]
    around = [
        "",
        KERNEL,
        "// x\n",
        '/* " */\n',
        'constant char s[] = "//";\n',
        "#define Q 'x'\n",
        "#if 0\n#endif\n",
        "R\n",
    ]
    for _ in range(2000):
        hostile = numbers.choice(refused)
        begin = hostile.find("include") if "#in" in hostile else -1
        if begin > 0 and numbers.random() < 0.5:
            hostile = f"{hostile[: begin - 1]}#{numbers.choice(fills)}{hostile[begin:]}"
        if "\\" not in hostile[:6] and numbers.random() < 0.5:  # a line that goes on within a word
            at = numbers.randrange(1, 5)
            hostile = f"{hostile[:at]}\\\n{hostile[at:]}"
        source = f"{numbers.choice(around)}{hostile}\n{numbers.choice(around)}"
        assert _host_code.refused_host_code(source, torch_headers()) is not None, source
