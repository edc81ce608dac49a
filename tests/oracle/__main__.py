"""`python -m tests.oracle`: compares the device with the Metal kernels that were added (anymps kernels add).

`--write docs/fidelity` replaces the numbers of the installed release, with names of these alone, and renders
docs/fidelity-kernels.md.
`--wheel WHEEL` takes the kernels of another release's macOS wheel beside the installed device, for the kernels that are
named. `--count WHEEL` compares nothing: it counts the kernels of a release's macOS wheel anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # helpers of the tests

import torch

import anymps

if TYPE_CHECKING:
    from anymps.kernels import Metallib


def main() -> int:
    """Compares and prints; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle")
    parser.add_argument("names", nargs="*", help="kernels to compare, all by default")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--wheel", type=Path, metavar="WHEEL")
    parser.add_argument("--count", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    if options.wheel and not options.names:
        parser.error("--wheel needs the names of kernels: the others stand beside the device of their own release")
    if options.count:
        _count(options.count, options.write)
        return 0
    warnings.simplefilter("ignore")
    anymps.enable("M3 Pro 18GB", quiet=True)
    from anymps.device._enable import native
    from anymps.kernels import KernelLibrary
    from anymps.kernels._wheel import read_release

    from .coverage import count
    from .page import merge, save, write_page
    from .pairs import compare_all

    rows = []
    release = read_release(options.wheel) if options.wheel else torch.__version__.partition("+")[0]
    numbers = int(release.split(".")[0]), int(release.split(".")[1])
    with tempfile.TemporaryDirectory() as place:
        wheel = options.wheel and KernelLibrary(_metallib(options.wheel, Path(place)), native())
        library = wheel or anymps.metal_kernels()
        for row in compare_all(library, options.names, numbers):
            rows.append(row)
            print(
                f"{row['operator']:<34} {row['dtype']:<10} {row['verdict']:<10} {row['ulps']:>3}  {row['example']}",
                flush=True,
            )
    verdicts = [row["verdict"] for row in rows]
    print({verdict: verdicts.count(verdict) for verdict in ("equal", "ulp", "different")}, len(rows), "pairs")
    if options.write:
        path = options.write / f"kernels-{numbers[0]}.{numbers[1]}.json"
        rows = merge(path, rows) if path.exists() else rows
        kernels = count(dir(library), numbers)
        path.write_text(save({"torch": release, "kernels": kernels, "rows": rows}), encoding="utf-8")
        write_page(options.write)
    return 0


def _metallib(wheel: Path, folder: Path) -> Metallib:
    """The kernels of a wheel, laid down in a folder."""
    from anymps.kernels import Metallib
    from anymps.kernels._wheel import read_kernels

    path = folder / "kernels.metallib"
    with path.open("wb") as file:
        file.writelines(read_kernels(wheel))
    return Metallib(path)


def _count(wheel: Path, folder: Path | None) -> None:
    """How many kernels of each family a wheel has; replaces those of its release's numbers."""
    from anymps.kernels._wheel import read_release

    from .coverage import count
    from .page import save, write_page

    release = read_release(wheel)
    major, minor, *_ = (int(part) for part in release.split("."))
    with tempfile.TemporaryDirectory() as place:
        counts = count(_metallib(wheel, Path(place)).kernels, (major, minor))
    for name, kernels in counts.items():
        print(f"{kernels:>6}  {name}")
    if folder is not None:
        numbers = folder / f"kernels-{major}.{minor}.json"
        document = json.loads(numbers.read_text(encoding="utf-8"))
        numbers.write_text(save({**document, "kernels": counts}), encoding="utf-8")
        write_page(folder)


if __name__ == "__main__":
    sys.exit(main())
