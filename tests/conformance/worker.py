"""One process of the run: checks the pairs that it is given, and tells of each before and after in JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT = 24
"""Samples that are run of a pair that a Mac runs; most have fewer."""
LIMIT_REFUSED = 1000
"""Samples of any other pair: the one that a Mac refuses may stand anywhere, and the first refusal ends the pair."""


def pairs(expectations: Any, names: set[str] | None = None) -> list[tuple[str, int, str]]:
    """Every (kind, operator number, dtype name) of the run, an operator's together; `names` restricts the operators."""
    from conformance.expectations import GRADIENTS, TESTED

    found: list[tuple[str, int, str]] = []
    for index, op in enumerate(expectations.operators):
        if names is not None and op.full_name not in names:
            continue
        found.extend(("forward", index, str(dtype).removeprefix("torch.")) for dtype in TESTED)
        if op.supports_autograd:
            found.extend(("gradient", index, str(dtype).removeprefix("torch.")) for dtype in GRADIENTS)
        if expectations.errors(index) is not None:
            found.append(("errors", index, ""))
    return found


def expected_row(expectations: Any, kind: str, index: int, dtype_name: str) -> dict[str, Any]:
    """The row of a pair before it is run: what a Mac does with it."""
    import torch

    from conformance.expectations import family_of

    op = expectations.operators[index]
    if kind == "errors":
        expected = expectations.errors(index)
    else:
        expected = getattr(expectations, kind)(index, getattr(torch, dtype_name))
    return {
        "kind": kind,
        "operator": op.full_name,
        "dtype": dtype_name,
        "family": family_of(op),
        "expected": expected.what,
        "why": expected.why,
        "on_cpu": expected.on_cpu,
    }


def check(
    expectations: Any,
    kind: str,
    index: int,
    dtype_name: str,
    tell: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Runs one pair: its row, with what the device did; `tell` is called after every sample of results."""
    import torch

    from conformance import checks
    from conformance.expectations import RUNS

    row = expected_row(expectations, kind, index, dtype_name)
    op = expectations.operators[index]
    limit = LIMIT if row["expected"] == RUNS else LIMIT_REFUSED
    torch.manual_seed(0)
    if kind == "errors":
        outcome = checks.errors(op, limit, expectations.returned_errors)
    else:
        outcome = getattr(checks, kind)(op, getattr(torch, dtype_name), limit, tell)
    return {**row, "actual": outcome.what, "detail": outcome.detail, "samples": outcome.samples}


def main() -> None:
    """`python -m conformance.worker SHARD SHARDS START MAC [OPERATOR ...]`: a shard's pairs, from number START on."""
    shard, shards, start, mac, *names = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", buffering=1)  # what torch prints does not reach the report
    os.dup2(2, 1)
    import torch

    import anymps

    anymps.enable(mac)
    torch.set_num_threads(1)
    from conformance.expectations import Expectations

    expectations = Expectations()
    todo = [pair for pair in pairs(expectations, set(names) or None) if pair[1] % int(shards) == int(shard)]
    for number, pair in enumerate(todo[int(start) :], int(start)):
        print(json.dumps({"begin": number, "pair": pair, "row": expected_row(expectations, *pair)}), file=out)
        begun = time.perf_counter()
        row = check(expectations, *pair, tell=lambda: print(json.dumps({"alive": True}), file=out))
        print(json.dumps({"done": number, "seconds": round(time.perf_counter() - begun, 3), "row": row}), file=out)
    print(json.dumps({"end": len(todo)}), file=out)


if __name__ == "__main__":
    main()
