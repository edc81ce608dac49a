"""A compiled extension is built from .mm files and loaded, by setuptools and by torch's `load`, or told in one line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from processes import run_anymps, run_with_torch

pytestmark = pytest.mark.integration

PORT = "port it to the C interface of torch/csrc/inductor/aoti_torch/c/shim_mps.h, with its kernels as Metal text"
# Neither Python's headers nor torch's: a compiler takes a tenth of a second.
SOURCE = """\
#ifdef __OBJC__
#import <Metal/Metal.h>
#endif
extern "C" int answer() { return 42; }
extern "C" void* PyInit_plain() { return nullptr; }
"""
SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
build = BuildExtension.with_options(use_ninja=False, no_python_abi_suffix=True)
setup(name="plain", ext_modules=[CppExtension("plain", ["plain.mm"])], cmdclass={"build_ext": build})
"""


def test_setup_builds_under_anymps(tmp_path: Path) -> None:
    """`anymps run setup.py build_ext --inplace`: the library is there, and says what its source says."""
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "plain.mm").write_text(SOURCE)
    built = run_anymps("run", "--allow-unused", "setup.py", "build_ext", "--inplace", cwd=tmp_path)
    assert built.status == 0, built.err
    code = f"import ctypes; print(ctypes.CDLL({str(tmp_path / 'plain.so')!r}).answer())"
    assert run_with_torch(code).lines == ["42"]


def test_setup_ends_with_one_line(tmp_path: Path) -> None:
    """Objective-C++ in a setup.py is an error of setuptools: no traceback, and no compiler was started."""
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "plain.mm").write_text(SOURCE + "id<MTLBuffer> buffer;\n")
    refused = run_anymps("run", "--allow-unused", "setup.py", "build_ext", "--inplace", cwd=tmp_path)
    assert refused.status == 1
    error = f"error: anymps: plain.mm:6: `id<MTLBuffer> buffer;` needs a Mac's compiler and torch; {PORT}"
    assert error in refused.err.splitlines() and "Traceback" not in refused.err
    assert refused.out.splitlines()[0] == "running build_ext" and not (tmp_path / "build").exists()


@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch.utils.cpp_extension.load builds with ninja alone")
def test_load_builds(tmp_path: Path) -> None:
    """The real compiler takes the file for C++."""
    (tmp_path / "plain.mm").write_text(SOURCE)
    code = f"""
import ctypes
import anymps
anymps.enable(quiet=True)
from torch.utils.cpp_extension import load
folder = {str(tmp_path)!r}
path = load("plain", [folder + "/plain.mm"], build_directory=folder, is_python_module=False)
print(path, ctypes.CDLL(path).answer())
"""
    assert run_with_torch(code).lines == [f"{tmp_path}/plain.so 42"]


def test_a_library_that_lacks_a_function(tmp_path: Path) -> None:
    """By `torch.ops.load_library` and by `import`: the name that is missing, and what to do."""
    source = tmp_path / "late.cpp"
    source.write_text(
        'extern "C" void torch_of_a_later_release();\n'
        'extern "C" void* PyInit_late() { torch_of_a_later_release(); return nullptr; }\n'
    )
    library = tmp_path / "late.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    code = f"""
import sys
import torch, anymps
anymps.enable(quiet=True)
sys.path.insert(0, {str(tmp_path)!r})
def late():
    import late
for load in (lambda: torch.ops.load_library({str(library)!r}), late):
    try:
        load()
    except (ImportError, OSError) as error:
        print(type(error).__name__, error)
print("late" in sys.modules, torch.ops.loaded_libraries)
print(torch.__version__)
"""
    *lines, release = run_with_torch(code).lines
    how = (
        f"anymps: torch {release} has no torch_of_a_later_release yet; build the library with this torch, or install a "
    )
    assert lines == [
        f"OSError Could not load this library: {library}; {how}newer one",
        f"ImportError {library}: undefined symbol: torch_of_a_later_release; {how}newer one",
        "False set()",
    ]
