"""What the tables of dtypes in `anymps.rules` lack for the installed torch, derived from the database of operators.

    python -m tests.conformance.derive

Runs the samples of every pair that a Mac runs or refuses, watching which operators (aten overloads) are called with
which dtype. From that:

* widened: where a Mac runs a pair and a CPU kernel has no such dtype, the operator that said so;
* refused: where a Mac refuses a pair that runs here, the operators called with that dtype by no pair that a Mac runs.

What is printed to refuse and names no operator of its own depends on more than a dtype (`limits.cpp` in the native
core), or is no refusal on a Mac but another result.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import anymps
from anymps.rules import installed_torch, refused_dtype, widened_dtypes
from conformance import checks
from conformance.expectations import GRADIENTS, REFUSES, RUNS, TESTED, Expectations
from conformance.worker import LIMIT

_MISSING_KERNEL = ("not implemented for", "not supported for relu", "doesn't support tensors of type")


class _Watch(TorchDispatchMode):
    """Notes (operator, dtype of its first tensor) of every call, and the call that the CPU has no kernel for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[tuple[str, str], None] = {}
        self.lacking: tuple[str, str] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = next((leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)), None)
        dtype = first.dtype if first is not None else kwargs.get("dtype")
        call = (func._schema.name.partition("::")[2].removesuffix("_"), str(dtype).removeprefix("torch."))
        self.calls[call] = None
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if any(words in str(error) for words in _MISSING_KERNEL):
                self.lacking = call
            raise


def observe(op: Any, dtype: torch.dtype, with_gradient: bool) -> tuple[_Watch, bool]:
    """Calls the operator's samples, backward too where asked; whether none raised."""
    watch = _Watch()
    wants_gradients = (dtype.is_floating_point or dtype.is_complex) and op.supports_autograd
    try:
        samples = list(islice(op.sample_inputs("mps:0", dtype, requires_grad=wants_gradients), LIMIT))
        for sample in samples:
            call, _ = checks._calls(op, sample)
            with watch:
                result = call()
                outputs = checks._differentiable(result) if with_gradient else []
                if outputs:
                    ones = [torch.ones_like(output) for output in outputs]
                    torch.autograd.grad(outputs, checks._differentiable(call.values), ones, allow_unused=True)
    except Exception:  # refused, here or by a kernel that is missing: `lacking` tells
        return watch, False
    return watch, True


def main() -> None:
    """Prints the rows that the tables lack."""
    anymps.enable()
    warnings.simplefilter("ignore")
    version = installed_torch().version
    expectations = Expectations()
    run_by_a_mac: set[tuple[str, str]] = set()
    lacking: dict[str, set[str]] = defaultdict(set)
    suspects: list[tuple[str, str, _Watch]] = []
    for index, op in enumerate(expectations.operators):
        for dtype in TESTED:
            expected = expectations.forward(index, dtype)
            if expected.what not in (RUNS, REFUSES):
                continue
            gradient = dtype in GRADIENTS and expectations.gradient(index, dtype).what == RUNS
            watch, ran = observe(op, dtype, gradient)
            if expected.what == RUNS and watch.lacking is not None:
                lacking[watch.lacking[0]].add(watch.lacking[1])
            if expected.what == RUNS and ran:
                run_by_a_mac.update(watch.calls)
            if expected.what == REFUSES and ran:
                suspects.append((op.full_name, str(dtype).removeprefix("torch."), watch))
    print("to widen:")
    for operator, dtypes in sorted(lacking.items()):
        new = sorted(dtypes.difference(widened_dtypes(operator, version)))
        if new:
            print(f"  {operator}: {' '.join(new)}")
    print("to refuse:")
    for name, dtype, watch in suspects:
        candidates = [
            operator for operator, used in watch.calls if used == dtype and (operator, used) not in run_by_a_mac
        ]
        known = [operator for operator in candidates if refused_dtype(operator, dtype, version) is not None]
        if not known:
            print(f"  {name} {dtype}: {' '.join(candidates) or 'no operator of its own'}")


if __name__ == "__main__":
    main()
