"""A shader from its source to a library that can be loaded: translated, compiled once, kept by its content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anymps._errors import BuildError
from anymps.metal._shim import CHECKING, RUNTIME, SHIM
from anymps.metal.compilation._allowed_symbols import why_refused
from anymps.metal.compilation._cache import cache_directory, find, keep, work_folder
from anymps.metal.compilation._compiler import Compiler, find_compiler, tool_key
from anymps.metal.compilation._diagnostics import metal_error, source_line, syntax_error
from anymps.metal.compilation._elf import defer_initialisers
from anymps.metal.compilation._headers import includes_torch, precompiled, torch_headers, translated_headers
from anymps.metal.compilation._host_code import POISONED, refused_globals, refused_host_code
from anymps.metal.compilation._preprocess import SOURCE_NAME, Prepared, PreprocessorError, prepare
from anymps.metal.compilation._unset_variables import find_unset
from anymps.metal.language import has_parser, refused_by_language, warn_without_parser
from anymps.metal.translation import (
    CALLED,
    INITIALISERS,
    Refused,
    Translation,
    Unsupported,
    launchers,
    refused_buffers,
    translate,
)

FIBERS_VARIABLE = "ANYMPS_METAL_FIBERS"  # set: no kernel runs as loops over the threads of a group


def runs_loops() -> bool:
    """Whether kernels whose threads meet may run as loops over the threads of a group."""
    return not os.environ.get(FIBERS_VARIABLE)


def compile_shader(source: str, checked: bool = False, loops: bool = True) -> Path:
    """The compiled library of a source, from the cache if it is there; `checked`: in the form that tells what it does.

    With `loops`, kernels whose threads meet at the top of their bodies alone run without fibers.

    Raises SyntaxError, in the form of Metal's own compiler, for what does not compile; RuntimeError for a feature that
    is not there; BuildError without a compiler or a place to keep the result.
    """
    compiler = replace(find_compiler(), checked=checked)
    directory = cache_directory("kernels")
    loops = loops and not checked and runs_loops()
    key = _key(source, compiler, loops)
    warn_without_parser()  # also where the library is in the cache already
    found = find(directory, key, ".so")
    if found is not None:
        return found
    with work_folder(directory) as folder:
        library = folder / "made.so"
        _make(source, compiler, library, loops)
        return keep(library, directory, key, ".so")


def compile_runtime() -> Path:
    """The compiled runtime that all shaders of a process share.

    Raises BuildError without a compiler, or if it fails.
    """
    return _compile_own("runtime", RUNTIME, ("-O2", "-pthread"))


def compile_checker() -> Path:
    """The compiled checker, which checked shaders call. Raises BuildError as `compile_runtime`."""
    return _compile_own("checker", CHECKING, ("-O2", "-fno-omit-frame-pointer"))


def _compile_own(name: str, sources: Path, flags: Sequence[str]) -> Path:
    compiler = find_compiler()
    directory = cache_directory(name)
    key = tool_key(compiler)
    found = find(directory, key, ".so")
    if found is not None:
        return found
    with work_folder(directory) as folder:
        library = folder / "made.so"
        answer = compiler.run(
            [
                *("-std=c++17", "-w", "-fPIC", "-shared", *flags),
                *(f"-I{SHIM}", *map(str, sorted(sources.glob("*.cpp"))), "-o", str(library)),
            ]
        )
        if answer.returncode != 0:
            raise BuildError(f"the {name} for Metal shaders cannot be compiled:\n{answer.stderr.strip()}")
        return keep(library, directory, key, ".so")


def _key(source: str, compiler: Compiler, loops: bool) -> str:
    digest = hashlib.sha256(f"{tool_key(compiler)}\0{loops:d}{has_parser():d}\0".encode())
    if includes_torch(source):
        digest.update(translated_headers()[0].name.encode() + b"\0")
    digest.update(source.encode())
    return digest.hexdigest()[:24]


def _make(source: str, compiler: Compiler, library: Path, loops: bool, chains: bool = True) -> None:
    prepared, expanded = _prepared(source, compiler)
    translation = _translated(source, prepared, expanded, loops, chains)
    # Debuggers' tables name a line by this file's own name where `#line` stands at its top.
    unit = library.with_name(SOURCE_NAME if compiler.checked else "shader.cpp")
    behind = launchers(translation.kernels, lambda missing: _sentence(missing, prepared), compiler.checked)
    unit.write_text(f'{POISONED}\n#line 1 "{SOURCE_NAME}"\n{translation.rewritten.text}{behind}', encoding="utf-8")
    include = [f"-I{translated_headers()[0]}"] if includes_torch(prepared.text) else []
    made = unit.with_suffix(".o") if compiler.checked else library
    answer = compiler.run(
        [
            *compiler.shader_flags(),
            *precompiled(compiler),
            f"-I{SHIM}",
            *include,
            *(("-c", f"-fdebug-prefix-map={library.parent}=.", "-x", "c++") if compiler.checked else ("-shared",)),
            str(unit),
            "-o",
            str(made),
        ]
    )
    if answer.returncode != 0 and (
        any(kernel.group for kernel in translation.kernels) or CALLED in translation.rewritten.text
    ):
        _make(source, compiler, library, loops=False, chains=False)  # what is wrong is said of the source as it stands
        return
    if answer.returncode != 0:
        raise syntax_error(answer.stderr, source, prepared, translation.rewritten)
    if compiler.checked:
        _link_checked(compiler, translation, made, answer.stderr, library)
    foreign = why_refused(library)
    if not foreign:
        library.write_bytes(defer_initialisers(library.read_bytes(), INITIALISERS))
    else:
        name = foreign.split("'")[1] if "'" in foreign else ""
        offset = max(source.find(name), 0) if name else 0
        raise _refusal(Refused(foreign, offset), source, source)


def _prepared(source: str, compiler: Compiler) -> tuple[Prepared, Prepared]:
    """The source as it is translated, and with its macros expanded; host code in either is refused."""
    refused = refused_host_code(source, torch_headers())
    if refused is not None:
        raise _refusal(refused, source, source)
    try:
        prepared = expanded = prepare(source, compiler)
    except PreprocessorError as said:
        raise syntax_error(str(said), source) from None
    if prepared.text is source and "define" in source:
        with contextlib.suppress(PreprocessorError):  # which the compiler says below
            expanded = prepare(source, compiler, always=True)
    if expanded.text is not source:  # what macros have made is seen now
        refused = refused_host_code(re.sub(r"^#line .*$", "", expanded.text, flags=re.MULTILINE), torch_headers())
        if refused is not None:
            place = f"{SOURCE_NAME}:{source_line(expanded, refused.offset)}:1"
            raise syntax_error(f"{place}: error: {refused.text}", source)
    return prepared, expanded


def _translated(source: str, prepared: Prepared, expanded: Prepared, loops: bool, chains: bool) -> Translation:
    """The source in C++; what no Metal compiler takes is refused."""
    text = prepared.text
    synced = translated_headers()[1] if includes_torch(text) else frozenset()
    try:
        translation = translate(text, synced, loops, chains)
    except Unsupported as missing:
        raise RuntimeError(_sentence(missing, prepared)) from None
    if chains:
        _hold_to_law(source, expanded)
    refused = refused_globals(translation.structure) or refused_buffers(
        kernel.function for kernel in translation.kernels
    )
    if refused is not None:
        line, column = source_line(prepared, refused.offset), refused.offset - text.rfind("\n", 0, refused.offset)
        raise syntax_error(f"{SOURCE_NAME}:{line}:{column}: error: {refused.text}", source)
    return translation


def _sentence(missing: Unsupported, prepared: Prepared) -> str:
    return missing.sentence(f"{SOURCE_NAME}:{source_line(prepared, missing.offset)}")


def _link_checked(compiler: Compiler, translation: Translation, made: Path, said: str, library: Path) -> None:
    """Link a checked shader: with the flags that compiled it, it would ask for the sanitizers' own libraries."""
    notes = library.with_name("notes.cpp")
    names: dict[str, list[str]] = {}
    for kernel in translation.kernels:
        names.setdefault(kernel.function.name, []).append(kernel.name)
    unset = json.dumps(find_unset(said, names))
    notes.write_text(f'extern "C" __attribute__((visibility("default"))) const char anymps_unset[] = {unset};\n')
    answer = compiler.run(["-shared", "-fPIC", str(made), str(notes), "-o", str(library)])
    if answer.returncode != 0:
        raise BuildError(f"a checked shader cannot be linked:\n{answer.stderr.strip()}")


def _hold_to_law(source: str, seen: Prepared) -> None:
    """Raises what Metal's compiler says of a source; `seen` is what the preprocessor makes of it."""
    found = []
    lines, theirs = source.splitlines(), seen.text.splitlines()
    for refused in refused_by_language(seen.text, torch_headers()):
        line = source_line(seen, refused.offset)
        column = refused.offset - seen.text.rfind("\n", 0, refused.offset)
        physical = seen.text.count("\n", 0, refused.offset)
        if not 0 < line <= len(lines) or lines[line - 1].rstrip() != theirs[physical].rstrip():
            column = 1  # a macro's: where in the line is not known
        found.append((line, column, refused.text))
    if found:
        raise metal_error(source, found)


def _refusal(refused: Refused, text: str, source: str) -> SyntaxError:
    """The error of Metal's compiler at that place."""
    line = text.count("\n", 0, refused.offset) + 1
    column = refused.offset - text.rfind("\n", 0, refused.offset)
    return syntax_error(f"{SOURCE_NAME}:{line}:{column}: error: {refused.text}", source)
