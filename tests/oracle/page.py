"""Renders docs/fidelity-kernels.md from the numbers of each release."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .coverage import table
from .reasons import reason

Row = dict[str, Any]

_HEAD = """# Beside PyTorch's own kernels

This page compares the virtual device's operators with the Metal kernels in PyTorch's macOS wheel, which
[run on this machine](kernels.md). They are the kernels that a Mac runs. Two things may still differ there: how Apple's
driver computes `exp`, `log`, `sin` and division, and the order of sums inside a SIMD group. No Mac was used.

Do not edit this page. To update it, add the kernels of the installed release (`anymps kernels add`) and run
`python -m tests.oracle --write docs/fidelity`.

## How the comparison works

A pair is an operator and a dtype. The inputs of a pair are values at the limits of the dtype, random values, and the
samples in torch's operator database (OpInfo) that consist only of tensors. Each is tried dense, transposed and
broadcast. Some groups of operators get inputs of their own:

- Reductions (`sum`, `mean`, `amax`, `any` and the like) get matrices of 3 to 28,000 elements, reduced by rows, by
  columns and completely.
- Layer norms get rows of 3 to 1,000 elements, and of 5,000 and more.
- Sorts get rows of 7 to 70,000 elements. If the order of equal elements is undefined, the elements at the returned
  indices are compared.
- Clamps, scans, scatters, pools, group norms, upsampling and grid samplers get the database's samples. Their gradients
  are compared where the launch of the kernel is described.
- Attention, long scans, powers, norms along any dimension, matrix products and factorizations get separate calls.
- Polynomials are tried up to order 30.
- Random numbers are drawn from the same seed and offset on both sides.

`PYTORCH_MPS_PREFER_METAL` marks pairs that were run with this variable set.

A pair has one of three results:

- *equal*: every bit of every result is the same. Any NaN equals any other.
- *within n ulp*: no result differs by more than n units in the last place; n is at most 64.
- *different*: at least one result differs by more, or is NaN or infinite on one side only.

Two kinds of results are left out: subnormal ones, which the kernels flush to zero, and integers divided by zero or
shifted by more than their width, which is undefined on a GPU.

Of torch 2.15, most matrix products and some factorizations are missing. Its functions of one or two tensors that torch
2.13 also has are compared with the virtual device of torch 2.15. All others are compared with that of torch 2.13.
Operators that only move data (`cat`, `gather`, `index`, `index_select`, `nonzero`, `unique`, fills, triangles, pads
and the like: 475 pairs, all equal) were last compared on 26 November 2026, and others whose results are the same bits
(`argmax`, `any`, `cummax`, `searchsorted`, `index_reduce`, forward pools, nearest neighbours, `where`, `frexp`,
`nll_loss`, medians of all numbers, ranges of integers, steps of fused optimizers and the like) on 28 November 2026.
Since then, `--kernels real` leaves them to the CPU, and so it does copies to another dtype, `clone`, `angle`,
`complex`, `polar`, `square` and `rms_norm`. Clamps, matrix products of integers and medians followed on 29 November
2026, and with them those of floats that `PYTORCH_MPS_PREFER_METAL` brings to kernels, scans that several groups of
threads share, `renorm`, `linalg.householder_product`, the backward of `cdist` and of draws from gamma and Dirichlet
distributions, and of torch 2.15 convolutions, products with vectors, `ctc_loss`, `glu`, `grouped_mm`, `matrix_exp`,
`geqrf`, LU factors, small inverses and triangular systems. Each release ends with a table of the kernels that were not
compared, with the reasons.

## Results
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


def render(documents: Iterable[dict[str, Any]], on_a_card: str) -> str:
    """The page; it ends with what was seen on a card."""
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
            lines += textwrap.wrap(f"- For the reasons given above: {', '.join(again)}.", 120, subsequent_indent="  ")
        explained |= different.keys()
        lines += [
            "",
            f"### What was not compared in torch {document['torch']}, and why",
            "",
            *table(document["kernels"]),
        ]
    return "\n".join([*lines, "", on_a_card])


def page(folder: Path) -> str:
    """The page of the numbers in `folder`; nothing makes those of a card anew."""
    return render(load(folder), (folder / "kernels-on-a-card.txt").read_text(encoding="utf-8"))


def write_page(folder: Path) -> None:
    """Render docs/fidelity-kernels.md from the numbers in `folder`."""
    folder.with_name("fidelity-kernels.md").write_text(page(folder), encoding="utf-8")


def _line(name: str, rows: list[Row]) -> str:
    cells = []
    for verdict in ("equal", "ulp", "different"):
        these = [row for row in rows if row["verdict"] == verdict]
        cells.append(", ".join(row["dtype"] + (f" ({row['ulps']})" if verdict == "ulp" else "") for row in these))
    return f"| {name} | {' | '.join(cells)} |"


def _example(row: Row) -> str:
    return f"{row['dtype']} {row['example']}"
