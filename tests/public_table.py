"""A table: which public Metal sources compile here, and which of their kernels can be used.

`cd tests && ANYMPS_PUBLIC_KERNELS=FOLDER python -m public_table [FAMILY]`. A source passes the compiler with all its
instances; no code is made of it, which takes minutes for thousands of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from anymps.metal._shim import SHIM
from anymps.metal.compilation._compile import POISONED, prepare, refused_globals, refused_host_code
from anymps.metal.compilation._compiler import find_compiler
from anymps.metal.compilation._headers import includes_torch, precompiled, torch_headers, translated_headers
from anymps.metal.compilation._preprocess import SOURCE_NAME, PreprocessorError
from anymps.metal.translation._launchers import launchers
from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._rewrite import translate
from public_kernels import VARIABLE, joined

FAMILIES = {  # repository: where its sources lie, and its folders of headers for each
    "ml-explore/mlx": ("mlx/backend/metal/kernels", ()),
    "ggml-org/ggml": ("src/ggml-metal", ("src",)),
    "huggingface/kernels-community": ("", ("gpt-oss-metal-kernels/gptoss_kernels/source/include",)),
    "EricLBuehler/mistral.rs": ("", ()),
}


@dataclass
class Row:
    """What is known of a family."""

    sources: int = 0
    compiled: int = 0
    kernels: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


def read(text: str, row: Row) -> str:
    """Takes a source into the row; returns why it does not compile, or nothing."""
    compiler = find_compiler()
    refused = refused_host_code(text, torch_headers())
    if refused is not None:
        return refused.text
    try:
        prepared = prepare(text, compiler).text
        with_torch = includes_torch(prepared)
        made = translate(prepared, translated_headers()[1] if with_torch else frozenset(), loops=True, chains=True)
    except (PreprocessorError, Unsupported) as said:
        return str(said).splitlines()[0]
    if (refused := refused_globals(made.structure)) is not None:
        return refused.text
    kinds: Counter[str] = Counter()

    def say(missing: Unsupported) -> str:
        kinds["function constants" if "function constant" in str(missing) else str(missing).partition(",")[0]] += 1
        return ""

    behind = launchers(made.kernels, say)
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "unit.cpp"
        unit.write_text(f'{POISONED}\n#line 1 "{SOURCE_NAME}"\n{made.rewritten.text}{behind}', encoding="utf-8")
        headers = [f"-I{translated_headers()[0]}"] if with_torch else []
        flags = [*compiler.shader_flags(), *precompiled(compiler), f"-I{SHIM}", *headers]
        answer = compiler.run([*flags, "-fsyntax-only", str(unit)])
    if answer.returncode != 0:
        return next((line for line in answer.stderr.splitlines() if "error:" in line), answer.stderr)
    row.kernels += len(made.kernels)
    row.refused.update(kinds)
    return ""


def family(repository: str) -> Row:
    """The row of a repository."""
    row = Row()
    root = Path(os.environ[VARIABLE]) / repository
    start, folders = FAMILIES[repository]
    for path in sorted((root / start).rglob("*.metal")):
        name = path.relative_to(root)
        own = [str(Path(*name.parts[:2]))] if not start else []
        why = read(joined(root, [str(name)], [*folders, *own]), row)
        row.sources += 1
        row.compiled += not why
        if why:
            row.failed["Metal 4 tensor operations" if "MetalPerformancePrimitives" in why else why] += 1
        print(name, why or "compiles", file=sys.stderr, flush=True)
    return row


def main(wanted: list[str]) -> None:
    """Prints the table."""
    print("| family | sources that compile | kernels | usable | refused, and why |")
    print("| --- | --- | --- | --- | --- |")
    for repository in wanted or FAMILIES:
        row = family(repository)
        usable = row.kernels - row.refused.total()
        why = [f"{count:,} {what}" for what, count in row.refused.most_common()]
        why += [f"{count} sources: {what}" for what, count in row.failed.most_common()]
        print(
            f"| {repository} | {row.compiled} of {row.sources} | {row.kernels:,} | {usable:,} | {'; '.join(why)} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
