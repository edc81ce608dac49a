"""A shader from its source to a library that can be loaded: translated, compiled once, kept by its content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anymps._errors import BuildError
from anymps.metal._shim import CHECKING, RUNTIME, SHIM
from anymps.metal.compilation._cache import cache_directory, find_or_make
from anymps.metal.compilation._compiler import Compiler, find_compiler, tool_key
from anymps.metal.compilation._diagnostics import find_unset, metal_error, source_line, syntax_error
from anymps.metal.compilation._elf import defer_initialisers, why_refused
from anymps.metal.compilation._headers import includes_torch, precompiled, torch_headers, translated_headers
from anymps.metal.compilation._host_code import POISONED, refused_host_code
from anymps.metal.compilation._preprocess import SOURCE_NAME, PreprocessorError, prepare
from anymps.metal.language import has_parser, refused_by_language, warn_without_parser
from anymps.metal.translation import (
    CALLED,
    INITIALISERS,
    Translation,
    Unsupported,
    launchers,
    refused_buffers,
    translate,
)

FIBERS_VARIABLE = "ANYMPS_METAL_FIBERS"  # set: no kernel runs as loops over the threads of a group


def compile_shader(source: str, checked: bool = False, loops: bool = True) -> Path:
    """The compiled library of a source, from the cache if it is there; `checked`: in the form that tells what it does.

    With `loops`, kernels whose threads meet at the top of their bodies alone run without fibers.

    Raises SyntaxError, in the form of Metal's own compiler, for what does not compile; RuntimeError for a feature that
    is not there; BuildError without a compiler or a place to keep the result.
    """
    compiler = replace(find_compiler(), checked=checked)
    directory = cache_directory("kernels")
    loops = loops and not checked and not os.environ.get(FIBERS_VARIABLE)
    key = _key(source, compiler, loops)
    warn_without_parser()  # also where the library is in the cache already
    return find_or_make(directory, key, ".so", lambda library: _Shader(source, compiler).compile(library, loops))


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

    def make(library: Path) -> None:
        files = map(str, sorted(sources.glob("*.cpp")))
        options = ("-std=c++17", "-w", "-fPIC", "-shared", *flags, f"-I{SHIM}")
        answer = compiler.run([*options, *files, "-o", str(library)])
        if answer.returncode != 0:
            raise BuildError(f"the {name} for Metal shaders cannot be compiled:\n{answer.stderr.strip()}")

    return find_or_make(cache_directory(name), tool_key(compiler), ".so", make)


def _key(source: str, compiler: Compiler, loops: bool) -> str:
    digest = hashlib.sha256(f"{tool_key(compiler)}\0{loops:d}{has_parser():d}\0".encode())
    if includes_torch(source):
        digest.update(translated_headers()[0].name.encode() + b"\0")
    digest.update(source.encode())
    return digest.hexdigest()[:24]


class _Shader:
    """A source on its way to a library: as it is translated, and with its macros expanded.

    Raises SyntaxError for host code, and for what the preprocessor refuses.
    """

    def __init__(self, source: str, compiler: Compiler) -> None:
        self.source, self.compiler = source, compiler
        self._refuse_host_code(source)
        try:
            self.prepared = self.expanded = prepare(source, compiler)
        except PreprocessorError as said:
            raise syntax_error(str(said), source) from None
        if self.prepared.text is source and "define" in source:
            with contextlib.suppress(PreprocessorError):  # which the compiler says below
                self.expanded = prepare(source, compiler, always=True)
        if self.expanded.text is not source:  # what macros have made is seen now
            self._refuse_host_code(re.sub(r"^#line .*$", "", self.expanded.text, flags=re.MULTILINE))

    def compile(self, library: Path, loops: bool) -> None:
        """Writes the library. Raises as `compile_shader`."""
        translation = self._translate(loops, chains=True)
        self._refuse_by_language()
        self._refuse_buffers(translation)
        made, answer = self._run_compiler(translation, library)
        if answer.returncode != 0 and (
            any(kernel.group for kernel in translation.kernels) or CALLED in translation.rewritten.text
        ):
            translation = self._translate(loops=False, chains=False)  # report the error for the source as it stands
            made, answer = self._run_compiler(translation, library)
        if answer.returncode != 0:
            raise syntax_error(answer.stderr, self.source, self.prepared, translation.rewritten)
        if self.compiler.checked:
            self._link_checked(translation, made, answer.stderr, library)
        foreign = why_refused(library)
        if foreign:
            name = foreign.split("'")[1] if "'" in foreign else ""
            raise self._refusal(foreign, max(self.source.find(name), 0) if name else 0)
        library.write_bytes(defer_initialisers(library.read_bytes(), INITIALISERS))

    def _translate(self, loops: bool, chains: bool) -> Translation:
        synced = translated_headers()[1] if includes_torch(self.prepared.text) else frozenset()
        try:
            return translate(self.prepared.text, synced, loops, chains)
        except Unsupported as missing:
            raise RuntimeError(self._sentence(missing)) from None

    def _run_compiler(self, translation: Translation, library: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        """Compiles a translation: the file that is made, and what the compiler said."""
        checked = self.compiler.checked
        # Debuggers' tables name a line by this file's own name where `#line` stands at its top.
        unit = library.with_name(SOURCE_NAME if checked else "shader.cpp")
        behind = launchers(translation.kernels, self._sentence, checked)
        unit.write_text(f'{POISONED}\n#line 1 "{SOURCE_NAME}"\n{translation.rewritten.text}{behind}', encoding="utf-8")
        include = [f"-I{translated_headers()[0]}"] if includes_torch(self.prepared.text) else []
        made = unit.with_suffix(".o") if checked else library
        form = ("-c", f"-fdebug-prefix-map={library.parent}=.", "-x", "c++") if checked else ("-shared",)
        options = [*self.compiler.shader_flags(), *precompiled(self.compiler), f"-I{SHIM}", *include, *form]
        return made, self.compiler.run([*options, str(unit), "-o", str(made)])

    def _link_checked(self, translation: Translation, made: Path, said: str, library: Path) -> None:
        """Link a checked shader: with the flags that compiled it, it would ask for the sanitizers' own libraries."""
        notes = library.with_name("notes.cpp")
        names: dict[str, list[str]] = {}
        for kernel in translation.kernels:
            names.setdefault(kernel.function.name, []).append(kernel.name)
        unset = json.dumps(find_unset(said, names))
        notes.write_text(f'extern "C" __attribute__((visibility("default"))) const char anymps_unset[] = {unset};\n')
        answer = self.compiler.run(["-shared", "-fPIC", str(made), str(notes), "-o", str(library)])
        if answer.returncode != 0:
            raise BuildError(f"a checked shader cannot be linked:\n{answer.stderr.strip()}")

    def _refuse_host_code(self, text: str) -> None:
        """Raises what is said of host code in the source, or in what its macros make of it."""
        refused = refused_host_code(text, torch_headers())
        if refused is not None and text is self.source:
            raise self._refusal(refused.text, refused.offset)
        if refused is not None:
            raise metal_error(self.source, [(source_line(self.expanded, refused.offset), 1, refused.text)])

    def _refuse_by_language(self) -> None:
        """Raises what Metal's compiler says of the source with its macros expanded."""
        found = []
        lines, theirs = self.source.splitlines(), self.expanded.text.splitlines()
        for refused in refused_by_language(self.expanded.text, torch_headers()):
            line = source_line(self.expanded, refused.offset)
            column = refused.offset - self.expanded.text.rfind("\n", 0, refused.offset)
            physical = self.expanded.text.count("\n", 0, refused.offset)
            if not 0 < line <= len(lines) or lines[line - 1].rstrip() != theirs[physical].rstrip():
                column = 1  # a macro's: where in the line is not known
            found.append((line, column, refused.text))
        if found:
            raise metal_error(self.source, found)

    def _refuse_buffers(self, translation: Translation) -> None:
        """Raises what Metal's compiler says of too many buffers."""
        refused = refused_buffers(kernel.function for kernel in translation.kernels)
        if refused is not None:
            column = refused.offset - self.prepared.text.rfind("\n", 0, refused.offset)
            raise metal_error(self.source, [(source_line(self.prepared, refused.offset), column, refused.text)])

    def _sentence(self, missing: Unsupported) -> str:
        return missing.sentence(f"{SOURCE_NAME}:{source_line(self.prepared, missing.offset)}")

    def _refusal(self, words: str, offset: int) -> SyntaxError:
        """The error of Metal's compiler at that place of the source."""
        line = self.source.count("\n", 0, offset) + 1
        return metal_error(self.source, [(line, offset - self.source.rfind("\n", 0, offset), words)])
