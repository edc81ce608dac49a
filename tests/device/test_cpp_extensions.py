"""Compiled extensions: C++ in .mm files is compiled as such, Objective-C++ and what does not load is told."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from anymps.device import native, state
from anymps.device._extensions import advice_for
from anymps.device._objective_c import objective_c
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")

PORT = "port it to the C interface of torch/csrc/inductor/aoti_torch/c/shim_mps.h, with its kernels as Metal text"
PLAIN = """\
// #import <Metal/Metal.h>
/* #include <ATen/native/mps/OperationUtils.h>
   @autoreleasepool { [encoder endEncoding]; } */
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>
#ifdef __OBJC__
#import <Metal/Metal.h>
#else
struct Buffer;
#endif
#if !defined(__APPLE__)
const char* shader = R"METAL(
#include <metal_stdlib>
#import "other"
kernel void f(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
)METAL";
#endif
[[nodiscard]] [[using gnu : always_inline]] inline int of(int* values, int i) {
  int sizes[sizeof (int)] = {1'000'000}, more[3] = {};
  auto [first, second] = pair_of(more);
  auto get = [this, i] { return values[ i ]; };
  throw Error("mail@example.org", '@', "[obj msg]");
}
"""
FOREIGN = {
    "#import <Foundation/Foundation.h>": "an import",
    "# include <Metal/Metal.h>": "a framework",
    "#include <ATen/mps/MPSStream.h>": "the internals",
    "#include <ATen/native/mps/OperationUtils.h>": "more of them",
    "@autoreleasepool {": "a keyword",
    'NSString* name = @"fill";': "a literal",
    "[encoder endEncoding];": "a message",
    "[[MTLDevice alloc] init];": "two messages",
    "  return [self.device newBuffer:size];": "a message with an argument",
    "id<MTLBuffer> buffer = nil;": "a protocol",
}


def test_cpp_is_told_from_objective_cpp(tmp_path: Path) -> None:
    """Comments, strings, Metal text, attributes and what is kept for a Mac's compiler are not Objective-C++."""
    source = tmp_path / "kernel.mm"
    source.write_text(PLAIN)
    assert objective_c(source) is None
    for line in FOREIGN:
        source.write_text(PLAIN + line + "\n")
        found = objective_c(source)
        assert found is not None and found == (source, len(PLAIN.splitlines()) + 1, line.strip())
    assert objective_c(tmp_path / "not_there.mm") is None


def test_headers_of_the_source_are_read(tmp_path: Path) -> None:
    """The line is the header's own; two headers that include each other are read once."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "kernel.mm").write_text('#include <vector>\n#include "../helpers.h"\n')
    (tmp_path / "helpers.h").write_text('#include "csrc/kernel.mm"\n#include <Metal/Metal.h>\n')
    found = objective_c(tmp_path / "csrc" / "kernel.mm")
    assert found == (tmp_path / "helpers.h", 2, "#include <Metal/Metal.h>")


def test_ninja_compiles_such_sources_as_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` builds by a file for ninja: the source that ends in .mm gets a flag, and no other does."""
    builds: list[str] = []
    monkeypatch.setattr(cpp_extension, "verify_ninja_availability", lambda: None)
    monkeypatch.setattr(cpp_extension, "_run_ninja_build", lambda folder, *_, **__: builds.append(folder))
    monkeypatch.setattr(cpp_extension, "_import_module_from_library", lambda *_: None)
    for name in ("kernel.mm", "other.cpp"):
        (tmp_path / name).write_text("int one() { return 1; }\n")
    sources = [str(tmp_path / name) for name in ("kernel.mm", "other.cpp")]
    cpp_extension.load("plain", sources, build_directory=str(tmp_path))
    assert builds == [str(tmp_path)]
    steps = (tmp_path / "build.ninja").read_text().split("build ")[1:]
    assert steps[0] == f"kernel.o: compile {sources[0]}\n  cflags = -x c++ $cflags\n"
    assert steps[1].strip() == f"other.o: compile {sources[1]}"


def test_objective_cpp_is_refused_before_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the file, the line, and what to port it to; nothing is written."""
    monkeypatch.setattr(cpp_extension, "verify_ninja_availability", lambda: None)
    source = tmp_path / "unpack.mm"
    source.write_text("#include <torch/extension.h>\n#import <Metal/Metal.h>\n")
    with pytest.raises(RuntimeError) as error:
        cpp_extension.load("foreign", [str(source)], build_directory=str(tmp_path))
    assert str(error.value) == (
        f"anymps: {source}:2: `#import <Metal/Metal.h>` needs a Mac's compiler and torch; {PORT}"
    )
    assert not (tmp_path / "build.ninja").exists()


def test_nothing_changes_without_the_device(tmp_path: Path) -> None:
    """Off, torch builds as it does; on, also where its module was loaded before."""
    source = tmp_path / "foreign.mm"
    source.write_text("#import <Metal/Metal.h>\n")
    code = f"""
import torch
from torch.utils import cpp_extension
cpp_extension.verify_ninja_availability = lambda: None
cpp_extension._run_ninja_build = cpp_extension._import_module_from_library = lambda *_, **__: print("built")
def load(name):
    try:
        cpp_extension.load(name, [{str(source)!r}], build_directory={str(tmp_path)!r})
    except RuntimeError as error:
        print(str(error).partition("`")[0])
load("before")
print("-x c++" in open({str(tmp_path / "build.ninja")!r}).read())
import anymps
anymps.enable(quiet=True)
load("after")
"""
    assert run_with_torch(code).lines == ["built", "built", "False", f"anymps: {source}:1: "]


LACKS = {
    "_ZN2at3mps19getCurrentMPSStreamEv": "at::mps::getCurrentMPSStream() exists in torch's builds for macOS only; "
    + PORT,
    "objc_msgSend": "objc_msgSend exists in torch's builds for macOS only; " + PORT,
    "_ZNK3c106SymInt9normalizeEv": "c10::SymInt::normalize() const is missing: it was built with another release than "
    "torch 2.13.0; build it again with this one",
    "torch_mps_set_arg_bytes": "torch 2.13.0 has no torch_mps_set_arg_bytes yet; build the library with this torch, or "
    "install a newer one",
}


@pytest.mark.parametrize("name", LACKS)
def test_what_a_library_lacks(name: str) -> None:
    """A function of a Mac's torch, of another release, or of a newer one."""
    assert advice_for(f"/x/_C.so: undefined symbol: {name}", "2.13.0") == f"anymps: {LACKS[name]}"


def test_other_errors_stay() -> None:
    """Advice is for functions of torch alone."""
    assert advice_for("/x/_C.so: undefined symbol: PyLong_AsInt", "2.13.0") == ""
    assert advice_for("/x/_C.so: cannot open shared object file: No such file or directory", "2.13.0") == ""
    with pytest.raises(OSError, match=r"^Could not load this library: /not/there\.so$"):
        torch.ops.load_library("/not/there.so")


def test_metal_text_that_does_not_compile(capfd: pytest.CaptureFixture[str]) -> None:
    """An extension is told that its call failed, and stderr why: torch's check of the call knows no reason."""
    library, current = ctypes.c_void_p(1), state()
    assert current is not None and current.mac is not None
    text = b"#if __METAL_VERSION__ < 9000\n#error needs Metal 90\n#endif\n"
    create = ctypes.CDLL(native().__file__).aoti_torch_mps_create_shader_library
    assert (create(text, ctypes.byref(library)), library.value) == (1, None)
    on = "macOS {}.{}".format(*current.mac.macos)
    told = f"anymps: Metal text of a compiled extension does not compile on {on}: "
    assert f"{told}program_source:2:2: error: #error needs Metal 90" in capfd.readouterr().err.splitlines()
