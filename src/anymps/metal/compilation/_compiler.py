"""Which compiler compiles a shader, with which flags, and what distinguishes its results from another's."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from anymps._errors import BuildError
from anymps._own_process import printed_by, without_preloads
from anymps.metal._shim import CHECKING, METAL_MACROS, RUNTIME, SHIM

FAST_MATH_VARIABLE = "PYTORCH_MPS_FAST_MATH"
_NAMES = ("clang++", *(f"clang++-{version}" for version in range(24, 13, -1)), "g++", "c++")
_HALVES = "__FLT16_MANT_DIG__"  # a macro of compilers that know _Float16: clang from 15 on x86, g++ from 12
_SHADER_FLAGS = (
    *("-std=gnu++17", "-Ulinux", "-Uunix"),  # names that a shader may use
    "-O3",
    "-nostdinc",
    "-nostdinc++",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",  # else the two forms of a shader choose other products to fuse
    "-fno-strict-aliasing",
    "-fsigned-char",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    *METAL_MACROS,
)
# Of the checked form. The sanitizers' own libraries are not linked: checking/hooks.cpp has what they would have.
_CHECKED_FLAGS = (
    *("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"),
    *("-DANYMPS_CHECKED=1", "-fsanitize=thread"),
)
_CHECKED_CLANG = (
    *(
        "-fsanitize=shift-exponent,integer-divide-by-zero,array-bounds,alignment",
        "-Wuninitialized",
        "-Wsometimes-uninitialized",
    ),
    *("-mllvm", "-tsan-instrument-func-entry-exit=0"),
)
_CHECKED_GCC = (
    *(
        "-fsanitize=shift-exponent,integer-divide-by-zero,bounds-strict,alignment",
        "-Wuninitialized",
        "-Wmaybe-uninitialized",
    ),
    *("--param", "tsan-instrument-func-entry-exit=0"),
)


SECONDS = 300  # of the processor, for one shader
_MIB = 8 << 10
_LIMITED = '{ ulimit -c 0; ulimit -t "$1"; ulimit -v "$2"; } 2>/dev/null; shift 2; exec "$@"'
_NOT_RUN = (126, 127)  # what a shell returns
_GIVEN_UP = re.compile(
    r"internal compiler error|terminated program|out of memory|bad_alloc|CPU time limit|frontend command failed"
    r"|exceeds maximum of \d+"
)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, whether it is clang, who it is, whether it makes the checked form of shaders."""

    command: tuple[str, ...]
    is_clang: bool
    identity: str
    checked: bool = False

    def shader_flags(self) -> tuple[str, ...]:
        """The flags that every part of a shader is compiled with."""
        native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
        own = (
            ("-Wno-everything", "-ferror-limit=20", "-fno-caret-diagnostics")
            if self.is_clang
            else ("-fmax-errors=20", "-fdiagnostics-color=never", "-fno-diagnostics-show-caret")
        )
        if not self.checked:
            return (*_SHADER_FLAGS, "-w", native, *own)
        return (*_SHADER_FLAGS, native, *own, *_CHECKED_FLAGS, *(_CHECKED_CLANG if self.is_clang else _CHECKED_GCC))

    def run(self, arguments: list[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs it within limits. Raises BuildError if it cannot be started, RuntimeError if it gives the text up."""
        answer = self._run(arguments, stdin)
        if answer.returncode in _NOT_RUN:
            raise BuildError(f"the compiler {self.command[0]} cannot be run ({answer.stderr.strip()})")
        if answer.returncode < 0 or _GIVEN_UP.search(answer.stderr):
            raise RuntimeError(
                "anymps: the C++ compiler gave this Metal shader up: it is nested too deeply, or takes more than "
                f"{SECONDS} s or {_MIB >> 10} GiB to compile. Split long expressions, and let templates call "
                "themselves less often"
            )
        return answer

    def _run(self, arguments: list[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["/bin/sh", "-c", _LIMITED, "sh", str(SECONDS), str(_MIB << 10), *self.command, *arguments],
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env={**without_preloads(), "LC_ALL": "C"},  # messages are read here
            )
        except OSError as error:
            raise BuildError(f"the compiler {self.command[0]} cannot be run ({error.strerror or error})") from None


@functools.cache
def find_compiler() -> Compiler:
    """The compiler for shaders: the command in ``CXX``, else clang++, else g++. Asks each one who it is.

    Raises BuildError if there is none.
    """
    chosen = os.environ.get("CXX", "").strip()
    too_old = ""
    for words in [shlex.split(chosen)] if chosen else [[name] for name in _NAMES if shutil.which(name)]:
        version = printed_by([*words, "--version"])
        if not version:
            continue
        if printed_by([*words, "-x", "c++", "-E", "-dM", "-"]).find(_HALVES) < 0:
            too_old = too_old or version.splitlines()[0]
            continue
        lines = version.splitlines()[:3]
        identity, is_clang = " | ".join(line.strip() for line in lines), "clang" in version
        return Compiler(tuple(words), is_clang, identity)
    what = "none was found"
    if too_old:
        what = f"{too_old} has no 16-bit floats"
    elif chosen:
        what = f"CXX={chosen} cannot be run"
    raise BuildError(
        f"Metal shaders are compiled with a C++ compiler, and {what}: install clang 15 or g++ 12, or a newer one "
        "(apt install g++), or name one in CXX"
    )


_COMPILING = ("preprocess", "host_code", "compile", "elf", "diagnostics")
"""Modules beside this one that say what a compiled shader holds."""


@functools.cache
def shim_digest() -> str:
    """Tells one state of the shim, the runtime and the translation from another."""
    digest = hashlib.sha256()
    here = SHIM.parent
    sources = [
        *SHIM.rglob("*"),
        *RUNTIME.iterdir(),
        *CHECKING.glob("*.[ch]*"),
        *(here / "translation").glob("*.py"),
        *(here / "language").iterdir(),
        *(Path(__file__).with_name(f"_{name}.py") for name in _COMPILING),
    ]
    for path in sorted(sources):
        if path.is_file():
            digest.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def processor() -> str:
    """What `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = re.findall(r"^(?:model name|flags|Features|CPU part)\s*:.*$", text, re.MULTILINE)
    return " | ".join(sorted(set(lines)))


def tool_key(compiler: Compiler) -> str:
    """A short name for everything but the source that a compiled shader depends on."""
    parts = (
        shim_digest(),
        compiler.identity,
        *compiler.command,
        *compiler.shader_flags(),
        processor(),
        os.environ.get(FAST_MATH_VARIABLE, ""),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
