"""What Metal's compiler refuses is refused here, in its words and at its places; what it takes is taken."""

from __future__ import annotations

import importlib
import re
import warnings

import pytest
import torch
from clang import cindex

from anymps.metal import language
from anymps.metal.compilation._compiler import find_compiler
from anymps.metal.compilation._headers import torch_headers
from anymps.metal.compilation._preprocess import prepare
from anymps.metal.language._rules import refused_here
from metal_shaders import HEAD
from processes import run_with_torch

FIRST = HEAD.count("\n") + 1
POINTER = "pointer type must have explicit address space qualifier"
REFERENCE = "reference type must have explicit address space qualifier"
PROGRAM_SCOPE = "program scope variable must reside in constant address space"
SHARED = "variables in the threadgroup address space cannot be declared in a non-qualified function"
MIXED = "expecting input declarations with either all scalar types or all vector types with the same number of elements"
KERNEL = "kernel void k(device float* x, constant float* c, uint i [[thread_position_in_grid]]) "

# Source: what is said of it, each with line and column. No line is said where Metal's compiler takes the source.
RULES: dict[str, list[str]] = {
    # Pointers and references name their address space (4).
    "void f(float* p) {}": [f"1:13: {POINTER}"],
    "void f(thread float* p) {}": [],
    "void f(float *a, device float *b, const float *c) {}": [f"1:14: {POINTER}", f"1:47: {POINTER}"],
    "float sum(float& a) { return a; }": [f"1:16: {REFERENCE}"],
    "float sum(thread float& a, const constant float& b) { return a; }": [],
    "struct S { float* p; device float* q; };": [f"1:17: {POINTER}"],
    "struct S { device float* q; };": [],
    "float* f(thread float* p) { return p; }": [f"1:6: {POINTER}"],
    "template <class T> void f(T* p, thread T* q) {}": [f"1:28: {POINTER}"],
    "template <class T> void f(device T*& p, thread T& q) {}": [],  # as MLX has it
    "typedef float* floats;": [f"1:14: {POINTER}"],
    "using floats = float*;": [f"1:21: {POINTER}"],
    "typedef device float* floats;\nfloat first(floats p) { return *p; }": [],
    "void f() {\n  float a[2];\n  float *p = a;\n}": [f"3:9: {POINTER}"],
    "void f() { float a[2]; thread float *p = a; auto q = p; auto r = &a[0]; }": [],
    "void f(thread uint* p) { int a = *(int*)p; }": [f"1:39: {POINTER}"],
    "void f(thread uint* p) { int a = *(thread int*)p; }": [],
    "void f(thread uint* p) { int a = *reinterpret_cast<int *>(p); }": [f"1:56: {POINTER}"],
    "void f(device uint* p) { thread const device uint* rows[2] = {p, p}; }": [],  # as mistral.rs has it
    "void f() { auto g = [](float* p) {}; }": [f"1:29: {POINTER}"],
    "void f(device float* x) { auto g = [&](uint i) { return x[i]; }; g(1); }": [],
    # One address space is not another (4, 4.2 to 4.4).
    KERNEL + "{ thread float* p = x; }": [
        "1:103: cannot initialize a variable of type 'float *' with an lvalue of type 'device float *'"
    ],
    KERNEL + "{ float a[2]; device float* p = &a[1]; }": [
        "1:115: cannot initialize a variable of type 'device float *' with an rvalue of type 'float *'"
    ],
    KERNEL + "{ device const float* p = x + 2; constant float* q = &c[1]; }": [],
    KERNEL + "{ threadgroup float s[2]; device float* p; p = s; p = c; p = x; }": [
        "1:134: assigning to 'device float *' from incompatible type 'threadgroup float[2]'",
        "1:141: assigning to 'device float *' from incompatible type 'constant float *'",
    ],
    "float g(thread float* p) { return *p; }\n" + KERNEL + "{ float a[2]; g(a);\n  g(x);\n}": [
        "3:3: no matching function for call to 'g'"
    ],
    "float g(thread float& r) { return r; }\n" + KERNEL + "{ float a = 1; g(a);\n  g(x[0]);\n}": [
        "3:3: no matching function for call to 'g'"
    ],
    "float g(thread float* p) { return *p; }\nfloat g(device float* p) { return *p; }\n"
    + KERNEL
    + "{ float a[2]; g(a); g(x);\n  threadgroup float s[2];\n  g(s);\n}": ["5:3: no matching function for call to 'g'"],
    "template <class T> T g(thread T* p) { return *p; }\ntemplate <class T> T h(device T* p) { return g(p); }\n"
    + KERNEL
    + "{ float a[2]; x[0] = g(a) + h(x); }": ["2:46: no matching function for call to 'g'"],
    "template <class P> float g(P p) { return *p; }\n" + KERNEL + "{ float a[2]; x[0] = g(a) + g(x) + g(c); }": [],
    "device float* g(thread float* p) { return p; }": [
        "1:43: cannot initialize return object of type 'device float *' with an lvalue of type 'float *'"
    ],
    "struct H { device float* p; H(device float* q) : p(q) {} };\n" + KERNEL + "{ float a[2]; H h(x);\n  H g(a);\n}": [
        "3:5: no matching constructor for initialization of 'H'"
    ],
    KERNEL + "{ thread float& r = x[0]; device float& s = x[1]; }": [
        "1:103: reference to type 'float' could not bind to an lvalue of type 'device float'"
    ],
    KERNEL + "{ float a = *(thread float*)x; float b = *(device float*)&x[1]; }": [
        "1:100: C-style cast from 'device float *' to 'float *' converts between mismatching address spaces"
    ],
    KERNEL + "{ auto p = reinterpret_cast<device uint*>(c); auto q = reinterpret_cast<constant uint*>(c); }": [
        "1:98: reinterpret_cast from 'constant float *' to 'device uint *' (aka 'device unsigned int *') is not allowed"
    ],
    KERNEL + "{ float a[2]; auto p = i > 1 ? x : a; auto q = i > 1 ? x : x + 1; }": [
        "1:116: incompatible operand types ('device float *' and 'float *')"
    ],
    "struct P { float a; float get() const { return a; } };\nkernel void k(device float* x, constant P& p) "
    "{ P q = p; x[0] = q.get() + p.a; }": [],
    # Types (2.1), statements and declarations (1.5.4).
    "void f() { double d = 1; }": ["1:12: 'double' is not supported in Metal"],
    "void f() { float d = 1.0 + 2; auto e = 0.5; long l = 1; }": [],
    "struct S { long double d; };": ["1:12: 'long double' is not supported in Metal"],
    "void f(unsigned long long a) { long long b = a; }": [
        "1:8: 'unsigned long long' is not supported in Metal",
        "1:32: 'long long' is not supported in Metal",
    ],
    "void f(unsigned long a, long b, uint64_t c) {}": [],
    "// double\nconstant int doubled = 2;": [],
    "thread_local int a;": ["1:1: 'thread_local' is not supported in Metal", f"1:18: {PROGRAM_SCOPE}"],
    "void f() { register int a = 1; }": ["1:12: Metal does not support the 'register' storage class specifier"],
    "void f() {\n  goto end;\nend:;\n}": ["2:3: 'goto' is not supported in Metal"],
    "void f(int n) { switch (n) { case 1: break; default: n = 2; } while (true) { if (n) continue; break; } }": [],
    "void f() { thread int* p = new int(1); delete p; }": [
        "1:28: 'new' is not supported in Metal",
        "1:40: 'delete' is not supported in Metal",
    ],
    "struct S { virtual void f(); };": ["1:25: virtual member functions are not supported in Metal"],
    "struct S { void f() const; };": [],
    "int main() { return 0; }": ["1:5: non-qualified function cannot be called 'main'"],
    "float f(int n) {\n  float a[n + 1];\n  return a[0];\n}": [
        "2:10: variable length arrays are not supported in Metal"
    ],
    "constant int N = 4;\ntemplate <int K> float f() { const int n = 3; float a[N * 2], b[K], c[n]; "
    "return a[0] + b[0] + c[0]; }": [],
    # Variables (4): of the program constant ones alone, threadgroup memory in kernels alone.
    "int a = 1;": [f"1:5: {PROGRAM_SCOPE}"],
    "constexpr int a = 1;": [f"1:15: {PROGRAM_SCOPE}"],
    "namespace n { static const float a[2] = {1, 2}; }": [f"1:34: {PROGRAM_SCOPE}"],
    "constant int a = 1;\nstatic constant float b[2] = {1, 2};\nconstexpr constant int c = 3;": [],
    "struct S { static constant constexpr const int a = 1; };": [],
    "constant int a;": ["1:14: variable in constant address space must be initialized"],
    "constant int a [[function_constant(0)]];": [],
    "struct S { static constant constexpr const int a[2] = {1, 2}; };\nconstant constexpr const int S::a[2];": [],
    "constant int a = popcount(3u), b[2] = {int(ceil(1.5)), 2};": [],
    "void f(constant int v) {}": ["1:21: parameter may not be qualified with an address space"],
    "void f(thread const int& v, int w) {}": [],
    "void f() { device float a; }": ["1:25: automatic variable qualified with an address space"],
    "void f() { thread float a = 1; device float* b = nullptr; }": [],
    "struct S { device float a; };": ["1:25: field may not be qualified with an address space"],
    "device float f();": ["1:14: return type cannot be qualified with address space"],
    "extern int a;": ["1:12: extern variable must reside in constant address space"],
    "int f() { static int calls = 0; return ++calls; }": [
        "1:22: variables in function scope cannot be declared static"
    ],
    "int f() { const int calls = 0; constexpr int more = 1; return calls + more; }": [],
    "float f() { threadgroup float s[2]; return s[0]; }": [f"1:13: {SHARED}"],
    "float f(threadgroup float* s) { return s[0]; }\n" + KERNEL + "{ threadgroup float s[2]; f(s); }": [],
    # Kernels (5.1, 5.2).
    "kernel int k(device int* x) { return x[0]; }": ["1:12: invalid return type 'int' for kernel function"],
    "[[kernel]] void k(device int* x) {}": [],
    "struct S { kernel void k(device int* x) {} };": ["1:24: kernel function cannot be a member function"],
    "kernel void k(device int* a [[buffer(0)]], device int* b [[buffer(0)]]) {}": [
        "1:56: cannot reserve 'buffer' resource location at index 0"
    ],
    "kernel void k(device int* a [[buffer(31)]]) {}": [
        "1:31: 'buffer' attribute parameter is out of bounds: must be between 0 and 30"
    ],
    "kernel void k(device int* a [[buffer(0)]], device int* b [[buffer(30)]]) {}": [],
    "kernel void k(device int* x, int n) {}": ["1:34: invalid type 'int' for input declaration in a kernel function"],
    "kernel void k(device int* x, uint i [[thread_position_in_grid]], uint3 g [[threads_per_threadgroup]]) {}": [
        f"1:13: {MIXED}"
    ],
    "kernel void k(device int* x, uint2 i [[thread_position_in_grid]], ushort2 g [[threads_per_threadgroup]],\n"
    "uint l [[thread_index_in_simdgroup]]) {}": [],
    "kernel void k(device int* x, int i [[thread_position_in_grid]]) {}": [
        "1:38: type 'int' is not valid for attribute 'thread_position_in_grid'"
    ],
    "kernel void k(device int* x, uint2 i [[thread_index_in_threadgroup]]) {}": [
        "1:40: type 'uint2' is not valid for attribute 'thread_index_in_threadgroup'"
    ],
    # Atomics (6.15): relaxed alone, up to Metal 4.0, and what there is for a type.
    "void f(device atomic_int* a) { atomic_fetch_add_explicit(a, 1, memory_order_seq_cst); }": [
        "1:32: no matching function for call to 'atomic_fetch_add_explicit'"
    ],
    "int f(device atomic_int* a) { return atomic_load_explicit(a, memory_order_acquire); }": [
        "1:38: no matching function for call to 'atomic_load_explicit'"
    ],
    "int f(device atomic_int* a, threadgroup atomic_uint* b, device atomic_float* c, device atomic_ulong* d) {\n"
    "  atomic_store_explicit(a, 1, memory_order_relaxed);\n"
    "  atomic_fetch_max_explicit(&b[1], 1, memory_order_relaxed);\n"
    "  atomic_fetch_add_explicit(c, 1, memory_order_relaxed);\n  atomic_max_explicit(d, 1ul, memory_order_relaxed);\n"
    "  return atomic_load_explicit(a, memory_order_relaxed);\n}": [],
    "void f(device atomic_float* a) { atomic_fetch_max_explicit(a, 1.0, memory_order_relaxed); }": [
        "1:34: no matching function for call to 'atomic_fetch_max_explicit'"
    ],
    "void f(device atomic_ulong* a) { atomic_fetch_add_explicit(a, 1ul, memory_order_relaxed); }": [
        "1:34: no matching function for call to 'atomic_fetch_add_explicit'"
    ],
    "void f(threadgroup atomic_float* a) { atomic_fetch_add_explicit(a, 1.0, memory_order_relaxed); }": [
        "1:39: no matching function for call to 'atomic_fetch_add_explicit'"
    ],
    "template <class T> void f(device atomic<T>* a) { atomic_fetch_or_explicit(a, T(1), memory_order_relaxed); }\n"
    "void g(device atomic_int* a, device atomic_bool* b) { f(a); f(b); }": [
        "1:50: no matching function for call to 'atomic_fetch_or_explicit'"
    ],
    # What C++ compilers have and Metal's has not, by a macro or by itself.
    "#define TYPE double\nstruct S {\n  TYPE a;\n};": ["3:1: 'double' is not supported in Metal"],
    "#define POINTER(T) device T*\nvoid f(POINTER(float) p) {}": [],
    "struct S { int linux; float unix; };": [],
    "void f(coherent(device) device float* a, device coherent int* b) { float coherent = a[0]; }": [],
}


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize("source", [source for source, said in RULES.items() if said])
def test_what_is_refused(source: str) -> None:
    """Each place of it, with the words."""
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(HEAD + source)
    places = [line for line in str(raised.value).splitlines() if line.startswith("program_source:")]
    expected = []
    for place in RULES[source]:
        line, _, rest = place.partition(":")
        column, _, text = rest.partition(": ")
        expected.append(f"program_source:{int(line) + FIRST - 1}:{column}: error: {text}")
    assert places == expected


@pytest.mark.usefixtures("virtual_device")
def test_what_is_taken() -> None:
    """By the rules one by one, and by the C++ compiler in one source, each in a namespace of its own."""
    accepted = [source for source, said in RULES.items() if not said]
    assert [
        source for source in accepted if language.refused_by_language(expanded(HEAD + source), torch_headers())
    ] == []
    parts = [
        f"namespace n{number} {{\n{re.sub(r' k[(]', f' k{number}(', source)}\n}}\n"
        for number, source in enumerate(accepted)
        if "function_constant" not in source  # one, without a kernel, is nothing to compile
    ]
    names = dir(torch.mps.compile_shader(HEAD + "".join(parts)))
    assert len(names) == sum(" k(" in source for source in accepted)


@pytest.mark.parametrize(
    "module",
    [
        *("metal_shaders", "test_metal_cache", "test_metal_check", "test_metal_check_calls", "test_metal_check_clean"),
        *("test_metal_dialect", "test_metal_loops", "test_metal_places", "test_metal_tape"),
    ],
)
def test_the_sources_of_the_other_tests_are_taken(module: str) -> None:
    """All of them that are constants of their modules; what the tests write themselves, they compile."""
    constants = vars(importlib.import_module(module)).values()
    sources = {
        text
        for constant in constants
        for text in (constant.values() if isinstance(constant, dict) else [constant])
        if _is_source(text)
    }
    assert sources
    refused = {text: language.refused_by_language(expanded(text), torch_headers()) for text in sources}
    assert {text: said for text, said in refused.items() if said} == {}


def test_types_that_are_not_known_are_left_alone() -> None:
    """A function of them looks like a variable to libclang."""
    name = "metal::unknown"
    for source in (f"void f({name}<float> t) {{}}", f"{name}<float> g({name} t);", f"{name} h(thread {name}& t) {{}}"):
        assert language.refused_by_language(source, torch_headers()) == []


def _is_source(text: object) -> bool:
    return isinstance(text, str) and "kernel void" in text


def expanded(source: str) -> str:
    """What the preprocessor makes of it."""
    return prepare(source, find_compiler(), always=True).text if "#define" in source else source


@pytest.mark.usefixtures("virtual_device")
def test_the_whole_message() -> None:
    """Text, line and mark, as Metal's compiler gives them."""
    with pytest.raises(SyntaxError) as raised:
        torch.mps.compile_shader(
            "float twice(float* p) { return 2 * *p; }\nkernel void f(device float* x) { double d; }\n"
        )
    assert str(raised.value) == (
        "program_source:1:18: error: pointer type must have explicit address space qualifier\n"
        "float twice(float* p) { return 2 * *p; }\n"
        "                 ^\n"
        "program_source:2:34: error: 'double' is not supported in Metal\n"
        "kernel void f(device float* x) { double d; }\n"
        "                                 ^\n"
    )


def test_the_library_of_the_rules_has_no_errors() -> None:
    """Nor have PyTorch's own headers anything that is refused."""
    tree = language.Tree("", torch_headers())
    assert [str(one) for one in tree._unit.diagnostics] == []
    for path in sorted((torch_headers() / "c10" / "metal").glob("*.h")):
        text = path.read_text(encoding="utf-8").replace("#pragma once", "")
        assert (path.name, language.refused_by_language(text, torch_headers())) == (path.name, [])


def test_without_libclang_it_is_said_once() -> None:
    """The shader compiles, and a warning says what was not looked at, also when the cache has the shader already."""
    code = (
        "import sys, warnings\nsys.modules['clang'] = None\nimport anymps, torch\nanymps.enable(quiet=True)\n"
        "with warnings.catch_warnings(record=True) as said:\n    warnings.simplefilter('always')\n"
        "    for name in 'ab':\n"
        "        source = 'float twice(float* p) { return *p; } kernel void %s(device float* x) {}' % name\n"
        "        torch.mps.compile_shader(source)\n"
        "print(*(str(one.message) for one in said if 'libclang' in str(one.message)), sep='\\n')\n"
    )
    for _ in range(2):
        answer = run_with_torch(code)
        assert (answer.out, answer.err) == (
            "anymps: Metal shaders are not checked against the rules of Metal's language, because libclang is not "
            "installed: what compiles here may be refused on a Mac (pip install libclang)\n",
            "",
        )


def test_what_libclang_gives_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning names it, and the C++ compiler judges alone."""

    def give_up(*_: object, **__: object) -> None:
        raise cindex.TranslationUnitLoadError("Error parsing translation unit.")

    with monkeypatch.context() as patch:
        patch.setattr(cindex.Index, "parse", give_up)
        assert refused_here("int a = 1;", torch_headers()) is None
    monkeypatch.setattr("anymps.metal.language._rules._ask", lambda *_: None)
    with pytest.warns(RuntimeWarning) as said:
        assert language.refused_by_language("int a = 1;", torch_headers()) == []
    assert [str(one.message) for one in said] == [
        "anymps: a Metal shader is not checked against the rules of Metal's language, because libclang cannot parse it"
    ]


def test_no_warning_with_libclang() -> None:
    """It is installed where the tests run."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert language.refused_by_language("constant int a = 1;", torch_headers()) == []
    assert language.has_parser()
