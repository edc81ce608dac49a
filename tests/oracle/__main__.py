"""`python -m tests.oracle`: compares the device with the Metal kernels that were added (anymps kernels add).

`--write docs/fidelity` replaces the numbers of the installed release, with names of these alone, and renders
docs/fidelity-kernels.md. `--keep FILE` and `--kept FILE` compare where the kernels cannot run (kept.py), as on a card.
`--wheel WHEEL` takes the kernels of another release's macOS wheel beside the installed device, for the kernels that are
named. `--count WHEEL` compares nothing: it counts the kernels of a release's macOS wheel anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import anymps

if TYPE_CHECKING:
    from anymps.kernels import Metallib


def main() -> int:
    """Compares and prints; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle")
    parser.add_argument("names", nargs="*", help="kernels to compare, all by default")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write there what the kernels answer")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="take what is there in the place of the kernels")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write all rows there, as JSON")
    parser.add_argument("--substrate", default=os.environ.get("ANYMPS_SUBSTRATE") or "host")
    parser.add_argument("--wheel", type=Path, metavar="WHEEL")
    parser.add_argument("--count", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    if options.wheel and not options.names:
        parser.error("--wheel needs the names of kernels: the others stand beside the device of their own release")
    if options.count:
        _count(options.count, options.write)
        return 0
    warnings.simplefilter("ignore")
    anymps.enable("M3 Pro 18GB", substrate=options.substrate, quiet=True)
    from anymps.device._enable import native
    from anymps.kernels import KernelLibrary
    from anymps.kernels._wheel import read_release

    from .card import load as cards
    from .coverage import count
    from .kept import Answers, KeepingLibrary, KeptLibrary, keeping, reading
    from .page import load, merge, render, save
    from .pairs import compare_all

    how = reading(options.kept) if options.kept else keeping() if options.keep else nullcontext(Answers())
    rows = []
    release = read_release(options.wheel) if options.wheel else torch.__version__.partition("+")[0]
    numbers = int(release.split(".")[0]), int(release.split(".")[1])
    with how as answers, tempfile.TemporaryDirectory() as place:
        library: Any
        if options.kept:
            library = KeptLibrary(answers)
        elif options.wheel:
            library = KernelLibrary(_metallib(options.wheel, Path(place)), native())
        else:
            library = anymps.metal_kernels()
        if options.keep:
            library = KeepingLibrary(answers, library)
        try:
            for row in compare_all(library, options.names, numbers):
                rows.append(row)
                print(
                    f"{row['operator']:<34} {row['dtype']:<10} {row['verdict']:<10} {row['ulps']:>3}  {row['example']}",
                    flush=True,
                )
        finally:  # what is interrupted has kept a part
            if options.keep:
                answers.save(options.keep)
    if options.kept:
        print(f"{answers.found} calls had an answer in {options.kept}, {answers.missing} had none")
    if options.rows:
        options.rows.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    verdicts = [row["verdict"] for row in rows]
    print({verdict: verdicts.count(verdict) for verdict in ("equal", "ulp", "different")}, len(rows), "pairs")
    if options.write:
        path = options.write / f"kernels-{numbers[0]}.{numbers[1]}.json"
        rows = merge(path, rows) if path.exists() else rows
        kernels = count(dir(library), numbers)
        path.write_text(save({"torch": release, "kernels": kernels, "rows": rows}), encoding="utf-8")
        page = options.write.with_name("fidelity-kernels.md")
        page.write_text(render(load(options.write), cards(options.write)), encoding="utf-8")
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

    from .card import load as cards
    from .coverage import count
    from .page import load, render, save

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
        folder.with_name("fidelity-kernels.md").write_text(render(load(folder), cards(folder)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
