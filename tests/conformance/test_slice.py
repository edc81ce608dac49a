"""Torch's database in float32, and a few operators in all dtypes: the device does what its lists say of a Mac."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SLICE = (
    "cat",
    "linalg.inv",
    "linalg.svd",
    "matmul",
    "mode",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.conv2d",
    "nn.functional.linear",
    "nn.functional.silu",
    "nn.functional.nll_loss",
    "scatter_reduce.prod",
    "searchsorted",
    "special.bessel_j0",
    "sum",
    "trace",
    "where",
)
"""Each mechanism has one here: plain kernels, a fallback, a refused dtype, a refused shape, a widened dtype."""


@pytest.fixture(scope="module")
def expectations(virtual_device: Any) -> Any:
    """Torch's lists; needs a device that is there when they are imported."""
    from conformance.expectations import Expectations

    return Expectations()


def test_the_device_does_what_a_mac_does(expectations: Any) -> None:
    """Every scored pair of the slice agrees, and pairs that a copy of the CPU gets wrong are among them."""
    from conformance import summary, worker

    rows = [worker.check(expectations, *pair) for pair in worker.pairs(expectations, set(SLICE))]
    found = {row["operator"] for row in rows}
    assert set(SLICE) == found
    assert [] == [(row["kind"], row["operator"], row["dtype"]) for row in rows if summary.agrees(row) is False]
    special = [row for row in rows if summary.discriminates(row)]
    assert {"runs", "refuses"} <= {row["expected"] for row in special}


@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")  # before the error that is expected
@pytest.mark.parametrize("part", range(4))
def test_every_operator_in_float32(part: int, expectations: Any) -> None:
    """Results, gradients and wrong inputs of all: only what docs/fidelity.md names is another than on a Mac."""
    from conformance import summary, worker

    pairs = [pair for pair in worker.pairs(expectations) if pair[2] in ("float32", "") and pair[1] % 4 == part]
    rows = [worker.check(expectations, *pair) for pair in pairs]
    [known] = [
        {tuple(row[:2]) for row in release["disagreements"]}
        for release in summary.load(Path(__file__).parents[2] / "docs" / "fidelity")
        if torch.__version__.split(".")[:2] == release["torch"].split(".")[:2]
    ]
    layers = ("differs", "nn.functional")  # also where the lists do not tell, as of convolutions in three dimensions
    found = [row for row in rows if summary.agrees(row) is False or (row["actual"], row["family"]) == layers]
    assert {(summary.KINDS[row["kind"]], row["operator"]) for row in found} <= known


def test_pairs_that_take_the_process_down_are_rows(tmp_path: Any) -> None:
    """A worker that dies or falls silent in a pair costs that pair, and the shard goes on behind it."""
    from conformance import shards

    script = tmp_path / "worker.py"
    script.write_text(
        "import json, os, sys, time\n"
        "for n in range(int(sys.argv[3]), 4):\n"
        "    print(json.dumps({'begin': n, 'pair': ['forward', n, ''], 'row': {'operator': str(n)}}), flush=True)\n"
        "    if n == 1: os.abort()\n"
        "    if n == 2: time.sleep(60)\n"
        "    print(json.dumps({'done': n, 'seconds': 0, 'row': {'operator': str(n), 'actual': 'runs'}}), flush=True)\n"
        "print(json.dumps({'end': 4}), flush=True)\n"
    )
    told: list[str] = []
    rows = shards.run(1, "M3 Pro 18GB", tell=told.append, worker=[sys.executable, str(script)], patience=2)
    assert [("0", "runs"), ("1", "crash"), ("2", "hang"), ("3", "runs")] == [(r["operator"], r["actual"]) for r in rows]
    assert 2 == len(told)
