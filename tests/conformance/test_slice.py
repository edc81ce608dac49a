"""A few operators of the conformance run: the device does what torch's lists say that a Mac does."""

from __future__ import annotations

import sys
from typing import Any

import pytest

SLICE = (
    "add",
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


def test_pairs_that_take_the_process_down_are_rows(tmp_path: Any) -> None:
    """A worker that dies in a pair costs that pair: it is told as a crash, and the shard goes on behind it."""
    from conformance import shards

    script = tmp_path / "worker.py"
    script.write_text(
        "import json, os, sys\n"
        "for n in range(int(sys.argv[3]), 4):\n"
        "    print(json.dumps({'begin': n, 'pair': ['forward', n, ''], 'row': {'operator': str(n)}}), flush=True)\n"
        "    if n == 2: os.abort()\n"
        "    print(json.dumps({'done': n, 'seconds': 0, 'row': {'operator': str(n), 'actual': 'runs'}}), flush=True)\n"
        "print(json.dumps({'end': 4}), flush=True)\n"
    )
    told: list[str] = []
    rows = shards.run(1, "M3 Pro 18GB", tell=told.append, worker=[sys.executable, str(script)])
    assert [("0", "runs"), ("1", "runs"), ("2", "crash"), ("3", "runs")] == [(r["operator"], r["actual"]) for r in rows]
    assert 1 == len(told)


def test_silence_is_a_hang(tmp_path: Any) -> None:
    """A worker that says nothing for too long is ended, and its pair told as a hang."""
    from conformance import shards

    script = tmp_path / "worker.py"
    script.write_text(
        "import json, sys, time\n"
        "if sys.argv[3] == '0':\n"
        "    print(json.dumps({'begin': 0, 'pair': ['forward', 0, ''], 'row': {'operator': 'x'}}), flush=True)\n"
        "    time.sleep(60)\n"
        "print(json.dumps({'end': 1}), flush=True)\n"
    )
    rows = shards.run(1, "M3 Pro 18GB", worker=[sys.executable, str(script)], patience=0.5)
    assert [("x", "hang")] == [(row["operator"], row["actual"]) for row in rows]
