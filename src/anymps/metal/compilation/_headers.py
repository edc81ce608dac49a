"""The headers that a shader includes: ours as a precompiled one, and those of `c10/metal` from the installed torch.

PyTorch's headers are Metal source, too: they are translated once for each torch and kept in the cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from pathlib import Path

from anymps.metal._shim import SHIM
from anymps.metal.compilation._cache import cache_directory, find_or_make, work_folder
from anymps.metal.compilation._compiler import Compiler, shim_digest, tool_key
from anymps.metal.translation import call_names, closure, read_structure, tokenize, translate

_INCLUDES = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](c10/metal/[^>"]+)[>"]', re.MULTILINE)
_SYNCED = "synced.json"
_precompiled: dict[Path, Path] = {}  # by folder


def includes_torch(text: str) -> bool:
    """Whether a source includes headers of `c10/metal`."""
    return _INCLUDES.search(text) is not None


def torch_headers() -> Path:
    """The include folder of the installed torch, with `c10/metal` in it."""
    import torch

    return Path(torch.__file__).parent / "include"


@functools.cache
def translated_headers() -> tuple[Path, frozenset[str]]:
    """An include folder with the translated headers of the installed torch, and which of their functions synchronise.

    Raises BuildError if the cache cannot be written.
    """
    sources = {
        path.relative_to(torch_headers()).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((torch_headers() / "c10" / "metal").glob("*.h"))
    }
    digest = hashlib.sha256(shim_digest().encode())
    for name, text in sources.items():
        digest.update(name.encode() + b"\0" + text.encode() + b"\0")
    directory = cache_directory("headers") / digest.hexdigest()[:16]
    if not (directory / _SYNCED).is_file():
        names: dict[str, set[str]] = {}
        with work_folder(cache_directory("headers")) as folder:
            for name, text in sources.items():
                tokens = tokenize(text)
                for called, inside in call_names(
                    tokens, read_structure([t for t in tokens if not t.directive])
                ).items():
                    names.setdefault(called, set()).update(inside)
                path = folder / "new" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(translate(text).rewritten.text, encoding="utf-8")
            (folder / "new").mkdir(exist_ok=True)
            (folder / "new" / _SYNCED).write_text(json.dumps(sorted(closure(names))), encoding="utf-8")
            try:
                (folder / "new").rename(directory)
            except OSError:
                if not (directory / _SYNCED).is_file():  # no other process was first
                    raise
    return directory, frozenset(json.loads((directory / _SYNCED).read_text(encoding="utf-8")))


def precompiled(compiler: Compiler) -> list[str]:
    """The arguments that bring our headers, precompiled; without a precompiled one where the compiler makes none."""
    name = "all.h.pch" if compiler.is_clang else "all.h.gch"
    directory = cache_directory("shim", tool_key(compiler))

    def make(path: Path) -> None:
        arguments = [
            *compiler.shader_flags(),
            "-x",
            "c++-header",
            f"-I{SHIM}",
            str(SHIM / "msl" / "all.h"),
            "-o",
            str(path),
        ]
        answer = compiler.run(arguments)
        if answer.returncode != 0:
            path.write_text("")  # compilers differ: the header itself serves as well

    # Found once a process: to see that so large a file is whole takes as long as a small kernel.
    found = _precompiled.get(directory)
    if found is None or not found.is_file():
        found = _precompiled[directory] = find_or_make(directory, "all", f".{name}", make)
    if found.stat().st_size == 0:
        return ["-include", str(SHIM / "msl" / "all.h")]
    if compiler.is_clang:
        return ["-include-pch", str(found)]
    # g++ takes `x.gch` for a header `x` of the same name.
    return ["-include", str(found.with_suffix(""))]
