"""`python -m tests.oracle`: compares the device with the Metal kernels that were added (anymps kernels add).

`--write docs/fidelity` replaces the numbers of the installed release, with names of these alone, and renders
docs/fidelity-kernels.md. `--keep FILE` and `--kept FILE` compare where the kernels cannot run (kept.py), as on a card.
`--count WHEEL` compares nothing: it counts the kernels of a release's macOS wheel anew.
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

import torch

import anymps


def main() -> int:
    """Compares and prints; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle")
    parser.add_argument("names", nargs="*", help="kernels to compare, all by default")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write there what the kernels answer")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="take what is there in the place of the kernels")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write all rows there, as JSON")
    parser.add_argument("--substrate", default=os.environ.get("ANYMPS_SUBSTRATE") or "host")
    parser.add_argument("--count", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    if options.count:
        _count(options.count, options.write)
        return 0
    warnings.simplefilter("ignore")
    anymps.enable("M3 Pro 18GB", substrate=options.substrate, quiet=True)
    from .card import load as cards
    from .coverage import count
    from .kept import Answers, NoLibrary, keeping, reading
    from .page import load, merge, render, save
    from .pairs import compare_all

    how = reading(options.kept) if options.kept else keeping() if options.keep else nullcontext(Answers())
    rows = []
    with how as answers:
        library = NoLibrary() if options.kept else anymps.metal_kernels()
        try:
            for row in compare_all(library, options.names):  # type: ignore[arg-type]
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
        release = torch.__version__.partition("+")[0]
        minor = ".".join(release.split(".")[:2])
        path = options.write / f"kernels-{minor}.json"
        rows = merge(path, rows) if options.names else rows
        kernels = count(dir(anymps.metal_kernels()), (int(minor.split(".")[0]), int(minor.split(".")[1])))
        path.write_text(save({"torch": release, "kernels": kernels, "rows": rows}), encoding="utf-8")
        page = options.write.with_name("fidelity-kernels.md")
        page.write_text(render(load(options.write), cards(options.write)), encoding="utf-8")
    return 0


def _count(wheel: Path, folder: Path | None) -> None:
    """How many kernels of each family a wheel has; replaces those of its release's numbers."""
    from anymps.metal.kernels._metallib import Metallib
    from anymps.metal.kernels._wheel import read_kernels, read_release

    from .card import load as cards
    from .coverage import count
    from .page import load, render, save

    release = read_release(wheel)
    major, minor, *_ = (int(part) for part in release.split("."))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "kernels.metallib")
        with path.open("wb") as file:
            file.writelines(read_kernels(wheel))
        counts = count(Metallib(path).kernels, (major, minor))
    for name, kernels in counts.items():
        print(f"{kernels:>6}  {name}")
    if folder is not None:
        numbers = folder / f"kernels-{major}.{minor}.json"
        document = json.loads(numbers.read_text(encoding="utf-8"))
        numbers.write_text(save({**document, "kernels": counts}), encoding="utf-8")
        folder.with_name("fidelity-kernels.md").write_text(render(load(folder), cards(folder)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
