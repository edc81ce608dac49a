"""Other people's compiled extensions: compiles C++ in .mm files, and tells why one does not build or load."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from anymps._text import tell
from anymps.device._after_import import after_import
from anymps.device._objective_c import objective_c

_SUFFIX = ".mm"
_PORT = "port it to the C interface of torch/csrc/inductor/aoti_torch/c/shim_mps.h, with its kernels as Metal text"
_MISSING = re.compile(r"undefined symbol: (\w+)")
# at::mps and at::native::mps as a linker spells them, and Apple's own functions.
_OF_A_MAC = re.compile(r"2at(?:6native)?3mps|^_?(?:objc_|OBJC_)|^MTL")
_OF_TORCH = re.compile(r"2at|3c10|5torch|^(?:aoti_)?torch_")


def install_extensions() -> None:
    """Have torch.utils.cpp_extension compile C++ in .mm files, and explain libraries that lack a function of torch."""
    after_import("torch.utils.cpp_extension", _build_sources)
    _explain(torch._ops._Ops, "load_library")
    _explain(ExtensionFileLoader, "create_module")


def telling_why(compile_shader: Callable[[str], Any], macos: tuple[int, int]) -> Callable[[str], Any]:
    """`compile_shader` for extensions, which says on stderr why text does not compile.

    The exception that an extension makes of a failed call has no reason (`TORCH_ERROR_CODE_CHECK`), and torch prints
    none since 2.14.
    """

    def compile_text(source: str) -> Any:
        try:
            return compile_shader(source)
        except SyntaxError as error:
            reason = str(error).partition("\n")[0]
            on = f"macOS {macos[0]}.{macos[1]}"
            tell(f"anymps: Metal text of a compiled extension does not compile on {on}: {reason}")
            raise

    return compile_text


def _build_sources(module: Any) -> None:
    """All of torch's ways to compile go through these two: a file for ninja, and the compiler of setuptools.

    Read in torch 2.13 and 2.14, torch/utils/cpp_extension.py.
    """
    write, build = module._write_ninja_file, _class_of(module).build_extensions

    @functools.wraps(write)
    def write_ninja_file(path: str, *args: Any, **kwargs: Any) -> None:
        _check(kwargs["sources"], RuntimeError)
        write(path, *args, **kwargs)
        text = Path(path).read_text(encoding="utf-8")
        as_cpp = re.sub(r"^build .*: compile .*\.mm$", r"\g<0>\n  cflags = -x c++ $cflags", text, flags=re.MULTILINE)
        Path(path).write_text(as_cpp, encoding="utf-8")

    @functools.wraps(build)
    def build_extensions(command: Any) -> None:
        from setuptools.errors import CompileError  # setup() prints it as one line

        _check((source for extension in command.extensions for source in extension.sources), CompileError)
        compile_one = getattr(command.compiler, "_compile", None)
        if compile_one is not None:  # what builds without ninja
            command.compiler._compile = functools.partial(_compile, compile_one)
        build(command)

    module._write_ninja_file = write_ninja_file
    _class_of(module).build_extensions = build_extensions


def _class_of(module: Any) -> Any:
    """`BuildExtension`; asking torch 2.13 for that name loads all of setuptools' command."""
    return vars(module).get("_BUILD_EXTENSION_CLASS") or module.BuildExtension


def _compile(
    original: Callable[..., None], target: str, source: str, suffix: str, flags: list[str], *rest: Any
) -> None:
    original(target, source, suffix, [*flags, "-x", "c++"] if suffix == _SUFFIX else flags, *rest)


def _check(sources: Iterable[str], error: type[Exception]) -> None:
    """Raises where a source is Objective-C++, before a compiler is started."""
    for source in sources:
        place = objective_c(Path(source)) if str(source).endswith(_SUFFIX) else None
        if place is not None:
            raise error(f"anymps: {place.path}:{place.line}: `{place.text}` needs a Mac's compiler and torch; {_PORT}")


def _explain(owner: Any, name: str) -> None:
    """Adds to the error of a library that lacks a function of torch what to do."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def loaded(self: Any, what: Any) -> Any:
        try:
            return original(self, what)
        except (ImportError, OSError) as error:
            advice = advice_for(f"{error} {error.__cause__}", torch.__version__)
            if not advice:
                raise
            text = f"{error}; {advice}"
            if isinstance(error, ImportError):
                raise ImportError(text, name=error.name, path=error.path) from error.__cause__
            raise OSError(text) from error.__cause__

    setattr(owner, name, loaded)


def advice_for(error: str, release: str) -> str:
    """What to do about a library that the system's loader refuses; empty where it lacks nothing of torch's."""
    missing = _MISSING.search(error)
    if missing is None:
        return ""
    symbol = missing[1]
    if _OF_A_MAC.search(symbol):
        return f"anymps: {_readable(symbol)} exists in torch's builds for macOS only; {_PORT}"
    if not _OF_TORCH.search(symbol):
        return ""
    if symbol.startswith("_Z"):
        how = f"it was built with another release than torch {release}; build it again with this one"
        return f"anymps: {_readable(symbol)} is missing: {how}"
    return f"anymps: torch {release} has no {symbol} yet; build the library with this torch, or install a newer one"


def _readable(symbol: str) -> str:
    return torch._C._demangle(symbol)
