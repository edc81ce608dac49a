"""Torch's operators under `torch.jit.trace`: a trace made with one input is given another and compared with eager.

`python -m traced_operators [OPERATOR ...]`, in this folder, goes through torch's whole list, as each night.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

LIMIT = 4
"""Samples of an operator that are traced."""

UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Operators whose results are whatever lay in the memory."""

Call = Callable[..., tuple[torch.Tensor, ...]]
Tensors = tuple[torch.Tensor, ...]


def traced(op: Any, sample: Any) -> tuple[Call, Tensors]:
    """The operator as a function of the tensors of a sample, and these."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, args, kwargs = tree_unflatten(given, spec)
        return tuple(leaf for leaf in tree_leaves(op.op(first, *args, **kwargs)) if isinstance(leaf, torch.Tensor))

    return call, tuple(leaves[place].detach() for place in places)


def pairs(op: Any, device: str, limit: int) -> Iterator[tuple[Call, Tensors, Tensors]]:
    """Calls of an operator, each with two inputs of the same sizes and dtypes that differ in their values."""
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(list(islice(op.sample_inputs("cpu", torch.float32), limit)))
    for first, second in zip(*made, strict=False):
        try:
            (call, tensors), (_, others) = (traced(op, on(device, sample)) for sample in (first, second))
        except (RuntimeError, TypeError):  # mps has no tensors of that kind
            continue
        if tensors and [(one.shape, one.dtype, one.layout) for one in tensors] == [
            (one.shape, one.dtype, one.layout) for one in others
        ]:
            yield call, tensors, others


def on(device: str, sample: Any) -> Any:
    """A sample of the CPU on another device, with the device that a factory is given."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device)
        return torch.device(device) if leaf in ("cpu", torch.device("cpu")) else leaf

    parts = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = tree_map(moved, parts)
    return type(sample)(first, args=args, kwargs=kwargs)


def copies(tensors: Tensors) -> Tensors:
    """The same tensors for a call that may write to them."""
    return tuple(tensor.clone() for tensor in tensors)


def same(found: Any, expected: Tensors) -> bool:
    """Whether the results lie on the same device and have the same values."""
    found = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    if [(one.device, one.dtype, one.shape) for one in found] != [
        (one.device, one.dtype, one.shape) for one in expected
    ]:
        return False
    return all(
        torch.allclose(
            one.to_dense().cpu().to(torch.complex64), other.to_dense().cpu().to(torch.complex64), 1e-4, 1e-4, True
        )
        for one, other in zip(found, expected, strict=True)
    )


def outcomes(op: Any, device: str, limit: int = LIMIT) -> list[str]:
    """What became of each call: `same`, `other` (the trace gives something else) or the trace's error.

    A call that fails by itself, or draws numbers, is left out.
    """
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, first, second in pairs(op, device, limit):
            try:
                expected = call(*copies(second))
                if not same(call(*copies(second)), expected):
                    continue
            except Exception:  # mps lacks it, or the two samples do not fit together
                continue
            try:
                function = torch.jit.trace(call, copies(first), check_trace=False)
                found.append("same" if same(function(*copies(second)), expected) else "other")
            except Exception as error:
                found.append(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    return found


def worse_than_on_the_cpu(op: Any, limit: int = LIMIT) -> list[str]:
    """The outcomes on mps of which a trace on the CPU has none: a trace can go wrong on every device."""
    there = outcomes(op, "mps:0", limit)
    if set(there) <= {"same"}:
        return []
    return there if set(outcomes(op, "cpu", limit)) <= {"same"} else []


def main(names: list[str]) -> int:
    """Trace these operators, or all; 1 if any is worse than on the CPU."""
    import anymps

    anymps.enable(quiet=True)
    from torch.testing._internal.common_methods_invocations import op_db

    failed = compared = 0
    for op in op_db:
        if op.full_name in names if names else op.full_name not in UNDEFINED:
            compared += 1
            if worse := worse_than_on_the_cpu(op):
                failed += 1
                print(f"{op.full_name}: {', '.join(worse)}", flush=True)
    print(f"{compared} operators, {failed} that torch.jit.trace takes wrong on mps")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
