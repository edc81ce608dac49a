"""What `anymps.rules._metal_dtypes` says of rare dtypes, against the kernels of macOS wheels of torch.

    python -m tests.conformance.kernel_dtypes torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl ...

For every operator in the table and every rare dtype: a kernel of the name that the operator asks for, although the
table says there is none, or none although the table says there is one; and operators whose name no kernel has with any
common dtype. Exit code 1 if anything differs. A wheel comes with

    pip download --no-deps --only-binary=:all: --platform macosx_14_0_arm64 torch==2.13.0
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from anymps.kernels._metallib import _HEADER, _read_list
from anymps.rules._metal_dtypes import kernel_names

METAL = {"uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float8_e4m3fn": "float8_e4m3fn"}
_COMMON = ("float", "int", "bool")
_LIBRARY = "torch/lib/libtorch_cpu.dylib"


def kernels_of(wheel: Path) -> set[str]:
    """The names of the kernels that the wheel's libraries hold."""
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(_LIBRARY)
    names: set[str] = set()
    at = data.find(b"MTLB")
    while at >= 0:
        try:
            size = _HEADER.unpack_from(data, at)[8]
            names.update(_read_list(io.BytesIO(data[at : at + size]).read, size))
            at += size
        except (ValueError, KeyError, OverflowError):
            at += 4
        at = data.find(b"MTLB", at)
    return names


def release_of(wheel: Path) -> tuple[int, int]:
    """(2, 13) of `torch-2.13.0-...whl`."""
    major, minor = wheel.name.split("-")[1].split(".")[:2]
    return int(major), int(minor)


def differences(names: Collection[str], release: tuple[int, int]) -> Iterator[str]:
    """What the table says otherwise than the names do, a line each."""
    for operator, kernel in sorted(kernel_names(release).items()):

        def found(metal: str, name: str = kernel.name) -> str | None:
            pattern = name.replace("%O", r"\w+")
            for place, by in {"%L": r"\w+?", "%B": r"\w+?", "%T": metal, "%I": metal}.items():
                pattern = pattern.replace(place, by)
            return next((one for one in names if re.fullmatch(pattern, one)), None)

        where = f"torch {release[0]}.{release[1]}: {operator}"
        if not any(map(found, _COMMON)):
            yield f"{where}: no kernel is called {kernel.name}"
        for dtype, metal in METAL.items():
            kernel_of = found(metal)
            if (kernel_of is not None) == (dtype in kernel.missing):
                yield f"{where} {dtype}: {kernel_of or 'no kernel'}"


def main() -> int:
    """Prints what differs."""
    lines = [line for wheel in map(Path, sys.argv[1:]) for line in differences(kernels_of(wheel), release_of(wheel))]
    print("\n".join(lines) or f"{len(sys.argv) - 1} wheels: no difference")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
