"""The native core is compiled once, safely, and says clearly what stands in its way (small sources stand in for it)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anymps._errors import BuildError, UnsupportedTorchError
from anymps.device import _build, _toolchain
from anymps.device._build import interprocess_lock
from anymps.rules import SUPPORTED, _wheel, version_rules
from processes import wait_until

SOURCE_ROOT = Path(_build.__file__).parents[2]

MODULE = """
#include <Python.h>
int answer();
static PyObject* call(PyObject*, PyObject*) { return PyLong_FromLong(answer()); }
static PyMethodDef methods[] = {{"answer", call, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods};
PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
"""
ANSWER = '#include "answer.h"\nint answer() { return ANSWER; }\n'

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")), reason="no C++ compiler on this machine"
)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source directory of two files and a header, and an empty cache; both paths hold blanks and a dollar sign."""
    directory = tmp_path / "my $ources" / "native"
    directory.mkdir(parents=True)
    (directory / "module.cpp").write_text(MODULE)
    (directory / "answer.cpp").write_text(ANSWER)
    (directory / "answer.h").write_text("#define ANSWER 42\n")
    monkeypatch.setattr(_build, "SOURCE_DIRECTORY", directory)
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "my $ache"))
    monkeypatch.delenv("CXX", raising=False)
    return directory


def load_and_ask(path: Path) -> int:
    """Load a built module in a process of its own (a loaded one cannot be unloaded) and call its function."""
    code = (
        "import sys, torch, importlib.util\n"
        "spec = importlib.util.spec_from_file_location('anymps.device._native', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(module.answer())"
    )
    answer = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return int(answer.stdout)


@needs_compiler
def test_build_makes_a_loadable_module(sources: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first build compiles and says so; the module loads; the second build is silent and gives the same path."""
    assert not _build.is_built()
    path = _build.build()
    said = capfd.readouterr().err.splitlines()
    version = _toolchain.find_torch().public_version
    jobs = _toolchain.job_count()
    assert said[0] == f"anymps: building the native core for torch {version}, once: 2 units, {jobs} at a time ..."
    assert said[1] == "anymps: unit 1 of 2 compiled, about 5 s left"
    assert said[2].startswith("anymps: native core built in ") and said[2].endswith(" s")
    assert len(said) == 3
    assert path.name == "_native" + str(sysconfig.get_config_var("EXT_SUFFIX"))
    assert path.parent.parent == _build.cache_directory()
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, "sha256"]
    assert load_and_ask(path) == 42

    assert _build.is_built()
    assert _build.build() == path
    assert capfd.readouterr() == ("", "")


@needs_compiler
@pytest.mark.skipif(
    sys.platform != "linux", reason="the loader of Linux alone lets one library's function replace another's"
)
def test_calls_within_the_core_are_direct(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of a function of the core's own is looked up by name, which costs more than many a function itself."""
    compiler = _toolchain.find_compiler()
    assert compiler is not None
    core = _build.build()
    (tmp_path / "other.cpp").write_text("int answer() { return 1; }\n")
    other = tmp_path / "other.so"
    subprocess.run([*compiler.command, "-shared", "-fPIC", tmp_path / "other.cpp", "-o", other], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(other))
    assert load_and_ask(core) == 42


@needs_compiler
def test_a_changed_source_is_a_new_build(sources: Path) -> None:
    """A change in a header alone gives another path, and the new text is in the new module; the old one stays."""
    old = _build.build()
    (sources / "answer.h").write_text("#define ANSWER 43\n")
    assert not _build.is_built()
    new = _build.build()
    assert new != old and old.is_file()
    assert load_and_ask(new) == 43


@pytest.mark.slow
@needs_compiler
def test_the_module_sees_torch_headers(sources: Path) -> None:
    """Sources may include torch's headers, and the one that says what its release does."""
    (sources / "answer.cpp").write_text(
        "#include <anymps/release.h>\n"
        "#include <c10/core/ScalarType.h>\n"
        "#include <torch/csrc/Exceptions.h>\n"
        "int answer() {\n"
        "  return anymps::release::oldest_macos + 100 * c10::elementSize(c10::kDouble);\n"
        "}\n"
    )
    assert load_and_ask(_build.build()) == version_rules(_toolchain.find_torch().version).oldest_macos + 800


@needs_compiler
def test_a_finished_core_needs_no_compiler(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that is built is used although the compiler has gone (an image built in two stages)."""
    path = _build.build()
    monkeypatch.setattr(_build, "find_compiler", lambda: None)
    assert _build.is_built()
    assert _build.build() == path


def test_no_compiler(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error says how to get one, for this platform."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(BuildError) as error:
        _build.build()
    assert str(error.value) == (
        "no C++ compiler was found to build the native core with: "
        "install one (apt install g++, dnf install gcc-c++), or name it in CXX"
    )
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BuildError) as error:
        _build.build()
    assert str(error.value) == (
        "no C++ compiler was found to build the native core with: "
        "install the command line tools (xcode-select --install), or name a compiler in CXX"
    )


def test_cxx_that_does_not_run(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong CXX is an error of its own: no other compiler is taken in its place."""
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(BuildError) as error:
        _build.build()
    assert str(error.value) == "the C++ compiler CXX=no-such-compiler -m64 cannot be run: correct CXX, or unset it"


@needs_compiler
def test_no_python_headers(sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Python.h the error names the directory looked into and the package to install."""
    monkeypatch.setattr(_build, "python_include_directories", lambda: [tmp_path / "include"])
    monkeypatch.setattr(_build, "python_headers", lambda: None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(BuildError) as error:
        _build.build()
    assert str(error.value) == (
        f"the header files of Python {version} are missing (no Python.h in {tmp_path / 'include'}): "
        f"install them (apt install python{version}-dev, dnf install python3-devel)"
    )


@needs_compiler
def test_no_write_access(sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache that cannot be written gives an error with the path, the reason and the variable to set."""
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(in_the_way))
    with pytest.raises(BuildError) as error:
        _build.build()
    assert str(error.value) == (
        f"the native core cannot be kept in {in_the_way / 'native'} (Not a directory): "
        "make it writable, or name another place in ANYMPS_CACHE_DIR"
    )


@needs_compiler
def test_compile_error(sources: Path) -> None:
    """A compile error shows the compiler's first error and the log; nothing half-made stays."""
    (sources / "answer.cpp").write_text("#error on purpose\n")
    with pytest.raises(BuildError) as error:
        _build.build()
    first, second, *_ = str(error.value).splitlines()
    (log,) = _build.cache_directory().glob("*.log")
    compiler = _toolchain.find_compiler()
    assert compiler is not None
    name = compiler.identity.partition(" | ")[0]
    assert first == f"the native core did not compile with {name}; the whole output is in {log}"
    assert second.startswith(f"  {sources / 'answer.cpp'}:1:2: error: ")
    assert second.endswith("on purpose")
    assert "on purpose" in log.read_text()
    assert sorted(path.suffix for path in _build.cache_directory().iterdir()) == [".lock", ".log"]
    assert not _build.is_built()


# Builds with the source directory and the compiler of the environment, says where the module lies.
BUILD_SCRIPT = """
import os
from pathlib import Path
from anymps.device import _build
_build.SOURCE_DIRECTORY = Path(os.environ["TEST_SOURCES"])
print(_build.build())
"""


def start_build(sources: Path, compiler: Path, first: str = "") -> subprocess.Popen[str]:
    """Start a process that builds, after some lines of Python."""
    environment = {**os.environ, "CXX": f"'{compiler}'", "TEST_SOURCES": str(sources), "PYTHONPATH": str(SOURCE_ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", BUILD_SCRIPT.replace("print", f"{first}\nprint")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def gated_compiler(tmp_path: Path) -> Path:
    """A compiler that notes each file that it is given and then waits until the file `gate` exists."""
    path = tmp_path / "gated"
    path.write_text(
        "#!/bin/sh\n"
        f"here='{tmp_path}'\n"
        'case " $* " in *" -c "*)\n'
        '  echo "$*" >> "$here/compiled"\n'
        '  while [ ! -e "$here/gate" ]; do sleep 0.05; done ;;\n'
        "esac\n"
        'exec c++ "$@"\n'
    )
    path.chmod(0o755)
    return path


@needs_compiler
def test_two_processes_at_once(sources: Path, gated_compiler: Path, tmp_path: Path) -> None:
    """Of two processes that build at once one compiles, the other waits and says so, and both get the same module."""
    first = start_build(sources, gated_compiler)
    assert first.stderr is not None and first.stderr.readline().startswith("anymps: building the native core")
    second = start_build(sources, gated_compiler)
    assert second.stderr is not None
    waiting = second.stderr.readline()
    (tmp_path / "gate").touch()
    first_out, first_err = first.communicate()
    second_out, second_err = second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), first_err + second_err
    assert waiting == "anymps: another process is building the native core, waiting for it ...\n"
    assert second_err == ""
    assert first_out == second_out
    assert len((tmp_path / "compiled").read_text().splitlines()) == 2  # each of the two units once
    assert load_and_ask(Path(first_out.strip())) == 42


@needs_compiler
def test_a_killed_build_leaves_nothing(sources: Path, gated_compiler: Path, tmp_path: Path) -> None:
    """A build killed in the middle is not taken for finished; the next one clears its remains and succeeds."""
    killed = start_build(sources, gated_compiler)
    assert killed.stderr is not None and killed.stderr.readline().startswith("anymps: building the native core")
    while not (tmp_path / "compiled").exists():
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert [path.is_dir() for path in _build.cache_directory().glob("*.building-*")] == [True]
    (tmp_path / "gate").touch()
    again = start_build(sources, gated_compiler)
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert list(_build.cache_directory().glob("*.building-*")) == []
    assert load_and_ask(Path(out.strip())) == 42


TERMINATED = "from anymps.cleanup import termination_raises as held\nheld = held()\nheld.__enter__()"  # as commands are


@needs_compiler
@pytest.mark.parametrize(("how", "first"), [(signal.SIGTERM, ""), (signal.SIGKILL, ""), (signal.SIGTERM, TERMINATED)])
def test_a_killed_build_ends_its_compilers(
    sources: Path, gated_compiler: Path, tmp_path: Path, how: signal.Signals, first: str
) -> None:
    """A command takes its folder away too."""
    gated_compiler.write_text(
        gated_compiler.read_text().replace('  echo "$*"', f'  echo $$ >> "{tmp_path}/pids"\n  echo "$*"')
    )
    build = start_build(sources, gated_compiler, first)
    wait_until(lambda: (tmp_path / "compiled").exists())
    build.send_signal(how)
    build.communicate()
    started = [int(word) for word in (tmp_path / "pids").read_text().split()]
    wait_until(lambda: not any(map(_runs, started)))
    assert len(list(_build.cache_directory().glob("*.building-*"))) == (not first)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_remains_of_other_cores(sources: Path) -> None:
    """What killed builds of other sources have left goes as well, but not what is being built."""
    cache = _build.cache_directory()
    left, other = cache / "one.building-1", cache / "two.building-2"
    for folder in (left, other):
        folder.mkdir(parents=True)
    (cache / "one.lock").touch()
    with interprocess_lock(cache / "two.lock", on_wait=lambda: None):
        _build._remove_leftovers(cache / "three")
    assert list(cache.glob("*.building-*")) == [other]
    _build._remove_leftovers(cache / "three")
    assert list(cache.glob("*.building-*")) == []


@pytest.fixture
def other_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that is found as the installed torch."""
    root = tmp_path / "torch"
    root.mkdir()
    (root / "__init__.py").write_text("raise AssertionError('the build must not import torch')\n")
    spec = importlib.util.spec_from_file_location("torch", root / "__init__.py")
    monkeypatch.setattr(_wheel, "find_spec", lambda name: spec)
    _wheel.installed_torch.cache_clear()
    yield root
    _wheel.installed_torch.cache_clear()


@pytest.mark.parametrize(
    ("version", "word"), [("2.10.1", "old"), ("2.99.0.dev20270101+cpu", "new"), ("1.13.1", "old"), ("3.0.0", "new")]
)
def test_unsupported_torch(other_torch: Path, monkeypatch: pytest.MonkeyPatch, version: str, word: str) -> None:
    """A torch outside of the supported range is refused; ANYMPS_ALLOW_ANY_TORCH=1 makes a warning of it."""
    (other_torch / "version.py").write_text(f"__version__ = '{version}'\ngit_version = 'abc'\n")
    text = f"torch {version} is too {word}: anymps supports {SUPPORTED}"
    nearest = SUPPORTED.split(" to ")[word == "new"]
    monkeypatch.delenv("ANYMPS_ALLOW_ANY_TORCH", raising=False)
    with pytest.raises(UnsupportedTorchError) as error:
        _build.build()
    assert str(error.value) == f"{text}; ANYMPS_ALLOW_ANY_TORCH=1 tries it anyway"
    monkeypatch.setenv("ANYMPS_ALLOW_ANY_TORCH", "1")
    with pytest.warns(UserWarning) as warned:
        assert _toolchain.find_torch().version == version
    assert [str(warning.message) for warning in warned] == [
        f"{text}; continuing because of ANYMPS_ALLOW_ANY_TORCH=1: treated as torch {nearest}, without known bugs"
    ]


def test_supported_torch_is_read_from_its_files(other_torch: Path) -> None:
    """Version and commit come from version.py, the C++ standard from what torch compiles its own extensions with."""
    (other_torch / "version.py").write_text(
        "from typing import Optional\n"
        "__version__ = '2.11.0+cu128'\n"
        "debug = False\n"
        "cuda: Optional[str] = '12.8'\n"
        "git_version = '70d99e998b'\n"
    )
    torch = _toolchain.find_torch()
    assert (torch.version, torch.public_version, torch.git_version) == ("2.11.0+cu128", "2.11.0", "70d99e998b")
    assert torch.release == (2, 11)
    (other_torch / "utils").mkdir()
    (other_torch / "utils" / "cpp_extension.py").write_text("flags = ['-std=c++17']\n")
    assert torch.cpp_standard() == "c++17"
    (other_torch / "utils" / "cpp_extension.py").write_text("flags = ['-std=c++20']\n")
    assert torch.cpp_standard() == "c++20"


def test_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the error says so."""
    monkeypatch.setattr(_wheel, "find_spec", lambda name: None)
    _wheel.installed_torch.cache_clear()
    with pytest.raises(UnsupportedTorchError, match="torch is not installed"):
        _build.build()


def test_flags_agree_with_torch() -> None:
    """The string ABI and the include directories are those that torch itself names."""
    torch = pytest.importorskip("torch", reason="compares with the installed torch")
    from torch.utils import cpp_extension

    install = _toolchain.find_torch()
    assert [str(path) for path in install.include_directories] == cpp_extension.include_paths()
    assert f"_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}" in _toolchain._DEFINES
    assert install.version == torch.__version__
    assert install.git_version == torch.version.git_version


@pytest.mark.parametrize("has_link", [True, False])
def test_the_static_runtime_is_never_linked(tmp_path: Path, has_link: bool) -> None:
    """Where the linker would find libstdc++.a alone, the shared library is named by its path."""
    shared = tmp_path / "libstdc++.so.6"
    shared.touch()
    known = [shared.name]
    if has_link:
        (tmp_path / "libstdc++.so").touch()
        known.append("libstdc++.so")
    compiler = tmp_path / "c++"
    answers = "\n".join(f'[ "$1" = -print-file-name={name} ] && echo "{tmp_path / name}" && exit' for name in known)
    compiler.write_text(f'#!/bin/sh\n{answers}\necho "${{1#-print-file-name=}}"\n')
    compiler.chmod(0o755)
    command = _toolchain.Compiler((str(compiler),), "fake").link_command(_toolchain.find_torch(), ["core.o"], "core.so")
    assert (str(shared) in command) is not has_link
    assert str(tmp_path / "libstdc++.so") not in command


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ANYMPS_CACHE_DIR is used if set, else the user's cache directory; it is not made by asking."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "here"))
    assert _build.cache_directory() == tmp_path / "here" / "native"
    assert not (tmp_path / "here").exists()
    monkeypatch.delenv("ANYMPS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert _build.cache_directory() == tmp_path / "xdg" / "anymps" / "native"


def test_job_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_JOBS limits the number of compilers; anything but a positive number is ignored."""
    monkeypatch.setenv("MAX_JOBS", "3")
    assert _toolchain.job_count() == 3
    monkeypatch.setenv("MAX_JOBS", "0")
    assert _toolchain.job_count() >= 1
