"""A shader from its source to a library that can be loaded: translated, compiled once, kept by its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from anymps._errors import BuildError
from anymps.metal._cache import cache_directory, find, keep, work_folder
from anymps.metal._compiler import RUNTIME, SHIM, Compiler, find_compiler, tool_key
from anymps.metal._diagnostics import source_line, syntax_error
from anymps.metal._headers import includes_torch, precompiled, translated_headers
from anymps.metal._launchers import launchers
from anymps.metal._preprocess import SOURCE_NAME, PreprocessorError, prepare
from anymps.metal._rewrite import Unsupported, translate


def compile_shader(source: str) -> Path:
    """The compiled library of a source, from the cache if it is there.

    Raises SyntaxError, in the form of Metal's own compiler, for what does not compile; RuntimeError for a feature that
    is not there; BuildError without a compiler or a place to keep the result.
    """
    compiler = find_compiler()
    directory = cache_directory("kernels")
    key = _key(source, compiler)
    found = find(directory, key, ".so")
    if found is not None:
        return found
    with work_folder(directory) as folder:
        library = folder / "made.so"
        _make(source, compiler, library)
        return keep(library, directory, key, ".so")


def compile_runtime() -> Path:
    """The compiled runtime that all shaders of a process share.

    Raises BuildError without a compiler, or if it fails.
    """
    compiler = find_compiler()
    directory = cache_directory("runtime")
    key = tool_key(compiler)
    found = find(directory, key, ".so")
    if found is not None:
        return found
    with work_folder(directory) as folder:
        library = folder / "made.so"
        answer = compiler.run(
            [
                *("-std=c++17", "-O2", "-w", "-fPIC", "-shared", "-pthread"),
                *(f"-I{SHIM}", *map(str, sorted(RUNTIME.glob("*.cpp"))), "-o", str(library)),
            ]
        )
        if answer.returncode != 0:
            raise BuildError(f"the runtime for Metal shaders cannot be compiled:\n{answer.stderr.strip()}")
        return keep(library, directory, key, ".so")


def _key(source: str, compiler: Compiler) -> str:
    digest = hashlib.sha256(f"{tool_key(compiler)}\0".encode())
    if includes_torch(source):
        digest.update(translated_headers()[0].name.encode() + b"\0")
    digest.update(source.encode())
    return digest.hexdigest()[:24]


def _make(source: str, compiler: Compiler, library: Path) -> None:
    try:
        prepared = prepare(source, compiler)
    except PreprocessorError as said:
        raise syntax_error(str(said), source) from None
    text = prepared.text
    with_torch = includes_torch(text)
    synced = translated_headers()[1] if with_torch else frozenset()

    def say(missing: Unsupported) -> str:
        line = source_line(prepared, missing.offset)
        return f"anymps: {missing} ({SOURCE_NAME}:{line}) cannot be used on the virtual mps device"

    try:
        translation = translate(text, synced)
    except Unsupported as missing:
        raise RuntimeError(say(missing)) from None
    behind = launchers(translation.kernels, say)
    unit = library.with_name("shader.cpp")
    unit.write_text(f'#line 1 "{SOURCE_NAME}"\n{translation.rewritten.text}{behind}', encoding="utf-8")
    include = [f"-I{translated_headers()[0]}"] if with_torch else []
    answer = compiler.run(
        [
            *compiler.shader_flags(),
            *precompiled(compiler),
            f"-I{SHIM}",
            *include,
            "-shared",
            str(unit),
            "-o",
            str(library),
        ]
    )
    if answer.returncode != 0:
        raise syntax_error(answer.stderr, source, prepared, translation.rewritten)
