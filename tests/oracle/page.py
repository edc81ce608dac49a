"""Renders docs/fidelity-kernels.md from the numbers of each release."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .card import section
from .coverage import table
from .reasons import reason

Row = dict[str, Any]

_HEAD = """# Beside PyTorch's own kernels

Operators of the virtual device were compared with the Metal kernels of PyTorch's macOS wheel, which
[run here](kernels.md): the same kernel code as the Mac's, up to what Apple's driver does with `exp`, `log`, `sin` and
division, and to the order inside a SIMD group. No Mac was used.

Do not edit this page: add the kernels of the installed release (`anymps kernels add`) and run
`python -m tests.oracle --write docs/fidelity`.

A pair is an operator and a dtype. Its inputs are values at the edges of the dtype, random values, and those samples of
torch's database of operators that consist only of tensors; dense, transposed and broadcast. Sums, means, extremes
and truth get matrices of 3 to 28,000 numbers, by rows, by columns and as a whole. Norms of layers get rows of 3 to 1000
numbers, and of 5000 and more. Clamps, scans, places, pools, group norms, fills, searches,
joins, triangles, slices, upsampling and grids get the database's samples, also backward where a launch is described.
Sorts get rows of 7 to 70,000 numbers; if equal numbers have no order, the numbers at the indices are compared.
Attention, long scans, powers, norms along any dimension, matrix products and factors get separate calls, and so do
copies of tensors with the negative bit. `PYTORCH_MPS_PREFER_METAL` marks pairs for which the program had set it.

- *equal*: every bit of every result, where any NaN equals any other.
- *within n ulp*: no result is further away than n units in the last place, 64 at most.
- *different*: at least one result is another number, or NaN or infinite on only one side.

Subnormal results, which the kernels give as zero, are left out.
Integers are not divided by zero or shifted by more than their width: that is undefined on a GPU.
Polynomials have orders up to 30.

Random numbers are drawn from the same seed and offset. Fused optimizers take three steps; all tensors that they
write are compared after each.

Of torch 2.15 most matrix products and some factors are missing. Its arithmetic and
functions of one or two tensors that torch 2.13 has, too, stand beside its own device, and all others beside that of
torch 2.13.
At the end of each release a table tells which of its kernels were not compared, and why.
"""


def load(folder: Path) -> list[dict[str, Any]]:
    """The numbers of all releases, the oldest first."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("kernels-*.json")]
    return sorted(documents, key=lambda document: [int(part) for part in document["torch"].split(".")])


def save(document: dict[str, Any]) -> str:
    """The numbers of a release as JSON, a row a line."""
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in document["rows"])
    head = f'"torch": {json.dumps(document["torch"])}, "kernels": {json.dumps(document["kernels"])}'
    return f'{{{head}, "rows": [\n{rows}\n]}}\n'


def merge(path: Path, rows: list[Row]) -> list[Row]:
    """The rows of a file with these in the place of those of the same operators; what is new comes last."""
    before: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    anew: dict[str, list[Row]] = {}
    for row in rows:
        anew.setdefault(row["operator"], []).append(row)
    kept = []
    for row in before:
        kept += anew.pop(row["operator"], []) if row["operator"] in anew else []
        kept += [] if any(row["operator"] == one["operator"] for one in rows) else [row]
    return kept + [row for these in anew.values() for row in these]


def render(documents: Iterable[dict[str, Any]], cards: Iterable[dict[str, Any]] = ()) -> str:
    """The page; `cards` is what `card.load` gives."""
    documents = list(documents)
    explained: set[str] = set()
    lines = [_HEAD, "| torch | pairs | equal | within n ulp | different |", "| --- | ---: | ---: | ---: | ---: |"]
    for document in documents:
        verdicts = [row["verdict"] for row in document["rows"]]
        counts = " | ".join(str(verdicts.count(verdict)) for verdict in ("equal", "ulp", "different"))
        lines.append(f"| {document['torch']} | {len(verdicts)} | {counts} |")
    for document in documents:
        lines += ["", f"## torch {document['torch']}", ""]
        lines += ["| operator | equal | within n ulp | different |", "| --- | --- | --- | --- |"]
        operators: dict[str, list[Row]] = {}
        for row in document["rows"]:
            operators.setdefault(row["operator"], []).append(row)
        lines += [_line(name, rows) for name, rows in operators.items()]
        lines += ["", f"### What differs in torch {document['torch']}, and why", ""]
        different = {name: [row for row in rows if row["verdict"] == "different"] for name, rows in operators.items()}
        different = {name: far for name, far in different.items() if far}
        for name, far in different.items():
            if name in explained:
                continue
            dtypes = ", ".join(row["dtype"] for row in far)
            lines += [
                f"- `{name}` ({dtypes}): {reason(far[0]['kernel'], far[0]['dtype'])}",
                f"  First seen: {_example(far[0])}.",
            ]
        again = [f"`{name}`" for name in different if name in explained]
        if again:
            lines += textwrap.wrap(
                f"- For the reasons that stand above: {', '.join(again)}.", 120, subsequent_indent="  "
            )
        explained |= different.keys()
        lines += [
            "",
            f"### What was not compared in torch {document['torch']}, and why",
            "",
            *table(document["kernels"]),
        ]
    for document in cards:
        lines += section(document)
    return "\n".join(lines) + "\n"


def _line(name: str, rows: list[Row]) -> str:
    cells = []
    for verdict in ("equal", "ulp", "different"):
        these = [row for row in rows if row["verdict"] == verdict]
        cells.append(", ".join(row["dtype"] + (f" ({row['ulps']})" if verdict == "ulp" else "") for row in these))
    return f"| {name} | {' | '.join(cells)} |"


def _example(row: Row) -> str:
    return f"{row['dtype']} {row['example']}"
