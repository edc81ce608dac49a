"""What the native core is compiled with, or which one a wheel has brought: torch, the C++ compiler, the flags.

Nothing here imports torch: its version, headers and libraries are read from the installed files, so that a build (and
`anymps doctor`) works in a process where torch is not loaded, or cannot be.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anymps._errors import BuildError, UnsupportedTorchError
from anymps._numbers import whole
from anymps._own_process import printed_by
from anymps.rules import NEWEST, OLDEST, SUPPORTED, installed_torch, version_rules

_LIBRARIES = ("torch", "torch_cpu", "c10", "torch_python")
_DEFINES = (
    "TORCH_EXTENSION_NAME=_native",
    "TORCH_API_INCLUDE_EXTENSION_H",
    # As the wheels are built: some headers declare other members without it.
    "NDEBUG",
    # Torch's headers then include the operators that they use, not all 2,700.
    "AT_PER_OPERATOR_HEADERS",
    # What Python's `#` formats ask for, before Python.h: whichever source comes first where several are joined.
    "PY_SSIZE_T_CLEAN",
    # The string ABI of all of torch's builds since 2.7 (`torch._C._GLIBCXX_USE_CXX11_ABI`); libc++ has no such switch.
    "_GLIBCXX_USE_CXX11_ABI=1",
)
# Cores that a wheel brings, one for each release of torch. A core fits the CPU build and the CUDA builds of a release:
# they come from one commit, and of their headers only caffe2/core/macros.h differs, by flags that the core does not
# read (torch 2.13.0, wheels for Linux).
CORES = Path(__file__).with_name("cores")


@dataclass(frozen=True)
class TorchInstall:
    """The installed torch, as its files say."""

    root: Path
    version: str
    release: tuple[int, int]
    git_version: str

    @property
    def public_version(self) -> str:
        """The version without the local part: ``2.13.0`` of ``2.13.0+cpu``."""
        return self.version.partition("+")[0]

    @property
    def include_directories(self) -> list[Path]:
        """The directories that `torch.utils.cpp_extension.include_paths()` gives."""
        include = self.root / "include"
        return [include, include / "torch" / "csrc" / "api" / "include"]

    @property
    def library_directory(self) -> Path:
        """Where libtorch and libc10 lie."""
        return self.root / "lib"

    def cpp_standard(self) -> str:
        """The C++ standard that this torch compiles its own extensions with: ``c++17`` or ``c++20``.

        Read from `torch/utils/cpp_extension.py`; the headers of 2.15 refuse anything below C++20
        (torch 2.15 wheel, torch/csrc/api/include/torch/all.h).
        """
        try:
            text = (self.root / "utils" / "cpp_extension.py").read_text(encoding="utf-8")
        except OSError:
            return "c++20"
        return "c++20" if "-std=c++20" in text else "c++17"

    def binary_size(self) -> int:
        """Bytes of the CPU library (0 if not found): tells apart two builds that carry the same version."""
        for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
            path = self.library_directory / name
            if path.is_file():
                return path.stat().st_size
        return 0


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: how to call it, and what it says it is."""

    command: tuple[str, ...]
    identity: str

    def compile_command(self, torch: TorchInstall, source: str, output: str, own: Sequence[Path] = ()) -> list[str]:
        """Return the command that compiles one source file to one object file; `own`: where our headers are."""
        includes = [*torch.include_directories, *python_include_directories()]
        flags = ["-c", "-O2", "-DNDEBUG", "-fPIC", f"-std={torch.cpp_standard()}", "-fdiagnostics-color=never"]
        flags += ["-fno-semantic-interposition"] if sys.platform == "linux" else []  # our functions are our own: inline
        flags += ["-fvisibility=hidden"]  # extensions find `aoti_torch_mps_*` in it, and nothing that is in them, too
        flags += [f"-D{define}" for define in _DEFINES]
        flags += [f"-I{path}" for path in own]
        for path in includes:
            # -isystem: ignore warnings in torch's headers.
            flags += ["-isystem", str(path)]
        return [*self.command, *flags, source, "-o", output]

    def link_command(self, torch: TorchInstall, objects: list[str], output: str) -> list[str]:
        """Return the command that links the object files to one extension module.

        No run path is written: torch is always loaded first, and the loader then knows its libraries by name.
        """
        # macOS is not tested. Symbols of the interpreter stay open there, as for every extension module.
        macos = sys.platform == "darwin"
        kind = ["-bundle", "-undefined", "dynamic_lookup"] if macos else ["-shared", "-Wl,-Bsymbolic-functions"]
        libraries = [f"-l{name}" for name in _LIBRARIES] + self._runtime()
        return [*self.command, *kind, *objects, f"-L{torch.library_directory}", *libraries, "-o", output]

    def _runtime(self) -> list[str]:
        """The shared libstdc++ by its path, for an installation whose linker would find only the static one.

        Torch brings the shared one into the process. A second copy inside the core has other locale facets than the
        streams that it is handed, and writing a number into one crashes.
        """
        for name in ("libstdc++.so", "libstdc++.so.6"):
            path = Path(printed_by([*self.command, f"-print-file-name={name}"]))
            if path.is_absolute() and path.is_file():
                return [] if name.endswith(".so") else [str(path)]
        return []


def find_torch() -> TorchInstall:
    """Find the installed torch and check its release.

    Raises UnsupportedTorchError if there is none, its version cannot be read, or its release is outside of the range
    that `rules` knows. With ``ANYMPS_ALLOW_ANY_TORCH=1`` the last is a UserWarning.
    """
    wheel = installed_torch()
    torch = TorchInstall(
        root=wheel.path, version=str(wheel.version), release=wheel.version.release, git_version=wheel.git_version
    )
    if OLDEST <= torch.release <= NEWEST:
        return torch
    age = "old" if torch.release < OLDEST else "new"
    text = f"torch {torch.version} is too {age}: anymps supports {SUPPORTED}"
    if os.environ.get("ANYMPS_ALLOW_ANY_TORCH") != "1":
        raise UnsupportedTorchError(f"{text}; ANYMPS_ALLOW_ANY_TORCH=1 tries it anyway")
    nearest = version_rules(wheel.version).version
    warnings.warn(
        f"{text}; continuing because of ANYMPS_ALLOW_ANY_TORCH=1: treated as torch {nearest.major}.{nearest.minor}, "
        "without known bugs",
        UserWarning,
        stacklevel=2,
    )
    return torch


def core_name(torch: TorchInstall) -> str:
    """The file name of the core for this torch, Python and platform: `2.13.0-cf30153c4c13.cpython-311-….so`."""
    return f"{torch.public_version}-{torch.git_version[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def find_prebuilt(torch: TorchInstall) -> Path | None:
    """The core that came with this installation of anymps for this torch."""
    path = CORES / core_name(torch)
    return path if path.is_file() else None


def find_compiler() -> Compiler | None:
    """Find the C++ compiler: the command in ``CXX``, else the platform's usual names. None if there is none.

    Raises BuildError if ``CXX`` is set to something that cannot be run.
    """
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as error:  # a quotation mark is open
            raise BuildError(
                f"the C++ compiler CXX={chosen} cannot be read ({error}): correct CXX, or unset it"
            ) from None
        compiler = _identify(command) if command and command[0] else None
        if compiler is None:
            raise BuildError(f"the C++ compiler CXX={chosen} cannot be run: correct CXX, or unset it")
        return compiler
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            compiler = _identify((name,))
            if compiler is not None:
                return compiler
    return None


def _identify(command: tuple[str, ...]) -> Compiler | None:
    """Ask a compiler who it is; None if it cannot be run or fails."""
    lines = printed_by([*command, "--version"]).splitlines()
    if not lines:
        return None
    # All lines: clang names the target machine only in the second.
    return Compiler(command=command, identity=" | ".join(line.strip() for line in lines[:3]))


def python_include_directories() -> list[Path]:
    """Return the directories of the interpreter's header files, without repeats."""
    names = [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
    return [Path(name) for name in dict.fromkeys(name for name in names if name)]


def python_headers() -> Path | None:
    """Return the path of Python.h, or None if it is not installed."""
    for directory in python_include_directories():
        if (directory / "Python.h").is_file():
            return directory / "Python.h"
    return None


def job_count() -> int:
    """How many compilers run at a time: ``MAX_JOBS`` (torch's own habit), else the number of usable CPUs."""
    asked = whole(os.environ.get("MAX_JOBS", ""))
    if asked:
        return asked
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
