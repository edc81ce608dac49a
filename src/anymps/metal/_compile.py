"""A shader from its source to a library that can be loaded: translated, compiled once, kept by its content."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from anymps._errors import BuildError
from anymps.metal._cache import cache_directory, find, keep, work_folder
from anymps.metal._compiler import RUNTIME, SHIM, Compiler, find_compiler, tool_key
from anymps.metal._headers import includes_torch, precompiled, torch_headers, translated_headers
from anymps.metal._launchers import launchers
from anymps.metal._rewrite import Translation, Unsupported, needs_preprocessor, translate

SOURCE_NAME = "program_source"  # what Metal calls a source without a file
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_SHOWN = 5


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
            ["-std=c++17", "-O2", "-w", "-fPIC", "-shared", "-pthread", f"-I{SHIM}", str(RUNTIME), "-o", str(library)]
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
    text = _preprocessed(source, compiler) if needs_preprocessor(source) else source
    with_torch = includes_torch(source)
    synced = translated_headers()[1] if with_torch else frozenset()
    try:
        translation = translate(text, synced)
        behind = launchers(translation.kernels)
    except Unsupported as missing:
        line = text.count("\n", 0, missing.offset) + 1
        raise RuntimeError(
            f"anymps: {missing} ({SOURCE_NAME}:{line}) cannot be used on the virtual mps device"
        ) from None
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
        raise _error(answer.stderr, text, translation)


def _preprocessed(source: str, compiler: Compiler) -> str:
    """The source behind the preprocessor, with Metal's headers left out and those of torch in."""
    with tempfile.TemporaryDirectory() as name:
        for header in SHIM.glob("*"):
            if header.is_file():
                (Path(name) / header.name).touch()
        arguments = ["-E", "-x", "c++", "-std=gnu++17", "-w", "-D__METAL__=1", "-D__METAL_VERSION__=310", "-nostdinc"]
        answer = compiler.run(
            [*arguments, f"-I{name}", f"-I{torch_headers()}", "-"], stdin=f'#line 1 "{SOURCE_NAME}"\n{source}'
        )
    if answer.returncode != 0:
        raise _error(answer.stderr, source, None)
    return re.sub(r'^# (\d+) ("[^"\n]*").*$', r"#line \1 \2", answer.stdout, flags=re.MULTILINE)


def _error(output: str, text: str, translation: Translation | None) -> Exception:
    """What Metal's compiler would raise, from what the C++ compiler said."""
    lines = text.splitlines()
    shown = []
    for match in _ERROR.finditer(output):
        if match["file"] != SOURCE_NAME:
            continue
        number, column = int(match["line"]), int(match["column"])
        if translation is not None:
            column = translation.rewritten.source_column(number, column)
        line = lines[number - 1] if number <= len(lines) else ""
        message = _plain(match["text"])
        mark = re.sub(r"[^\t]", " ", line[: column - 1]) + "^"
        shown.append(f"{SOURCE_NAME}:{number}:{column}: error: {message}\n{line}\n{mark}\n")
    if shown:
        return SyntaxError("".join(shown[:_SHOWN]))
    first = next((match.group() for match in _ERROR.finditer(output)), output.strip()[:2000])
    return SyntaxError(f"{first}\n")


def _plain(message: str) -> str:
    """Our names for what the user wrote."""
    for ours, theirs in (
        (r"anymps_vectors::vec<([\w ]+?), (?:\(unsigned int\))?(\d)>", r"\1\2"),
        (r"anymps_vectors::packed<([\w ]+?), (?:\(unsigned int\))?(\d)>", r"packed_\1\2"),
        (r"_Float16", "half"),
        (r"unsigned int", "uint"),
        (r"ANYMPS_KERNEL", "kernel"),
    ):
        message = re.sub(ours, theirs, message)
    return message.replace("‘", "'").replace("’", "'")
