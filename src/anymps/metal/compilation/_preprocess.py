"""The preprocessor, run first where lines are not what they seem: macros that make kernels, and `#if`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymps.cleanup import PrivateFolder
from anymps.metal._shim import METAL_MACROS, SHIM
from anymps.metal.compilation._compiler import Compiler
from anymps.metal.compilation._headers import torch_headers
from anymps.metal.compilation._host_code import without_foreign_includes

SOURCE_NAME = "program_source"  # what Metal calls a source without a file
_CONDITION = re.compile(r"^[ \t]*#[ \t]*if", re.MULTILINE)
_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*?(?:\bkernel\b|\bhost_name\b|\[\[|\bsimd_|\bsimdgroup_|\bquad_)",
    re.MULTILINE,
)
_TORCH_MACRO = re.compile(r"^[ \t]*(?:REGISTER|INSTANTIATE)_\w+\s*\(", re.MULTILINE)
_TORCH_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]c10/metal/[^>"\n]+[>"]', re.MULTILINE)
_KEPT = "#pragma anymps "
_LINE = re.compile(r'^#line (\d+) "([^"\n]*)"$')


@dataclass(frozen=True)
class Prepared:
    """A source that can be translated. `physical` gives for a line of the user's text the line that it became."""

    text: str
    physical: dict[int, int]


class PreprocessorError(Exception):
    """What the preprocessor said."""


def prepare(source: str, compiler: Compiler, always: bool = False) -> Prepared:
    """The source as it is, or preprocessed where that changes what there is to see, or `always`.

    Raises PreprocessorError with the compiler's output.
    """
    known = without_foreign_includes(source, torch_headers())
    always = always or known is not source
    by_torch = _TORCH_MACRO.search(source) is not None and _TORCH_INCLUDE.search(source) is not None
    if not (always or by_torch or _CONDITION.search(source) or _MACRO.search(source)):
        return Prepared(source, {})
    # Headers whose macros are not needed stay an `#include`: they were translated before.
    given = known if by_torch else _TORCH_INCLUDE.sub(lambda match: _KEPT + match.group().strip(), known)
    with PrivateFolder("anymps-headers-") as folder:
        for header in SHIM.rglob("*"):
            if header.is_file() and header.parent.name != "msl":
                stand_in = folder / header.relative_to(SHIM)
                stand_in.parent.mkdir(exist_ok=True)
                stand_in.touch()
        (folder / "c10").mkdir()
        (folder / "c10" / "metal").symlink_to(torch_headers() / "c10" / "metal")
        answer = compiler.run(
            [
                "-E",
                "-x",
                "c++",
                *("-std=gnu++17", "-Ulinux", "-Uunix"),
                "-w",
                "-nostdinc",
                *METAL_MACROS,
                f"-I{folder}",
                "-",
            ],
            stdin=f'#line 1 "{SOURCE_NAME}"\n{given}',
        )
    if answer.returncode != 0:
        raise PreprocessorError(answer.stderr)
    text = re.sub(r'^# (\d+) ("[^"\n]*").*$', r"#line \1 \2", answer.stdout, flags=re.MULTILINE)
    text = text.replace(_KEPT, "")
    return Prepared(text, _physical_lines(text))


def _physical_lines(text: str) -> dict[int, int]:
    physical: dict[int, int] = {}
    said, ours = 1, False
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is not None:
            said, ours = int(match[1]), match[2] == SOURCE_NAME
            continue
        if ours:
            physical.setdefault(said, number)
        said += 1
    return physical
