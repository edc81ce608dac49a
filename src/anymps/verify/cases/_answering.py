"""A case, its answer as plain data (results with layout, digest and some values, or a refusal), and how two differ."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from anymps.numerics import Bound, Kind, bound_of, differences

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A case by its `id`, the same on every machine; `ask` gives the answer, and raises nothing of the device's."""

    id: str
    ask: Callable[[], Answer]


def in_turn(rows: Sequence[Sequence[Case]]) -> list[Case]:
    """The cases of all rows, in rounds: one of each row, and in each round every row at another of its places.

    So a run that its time cuts off has something of every row (an operator) and of every place in one (a dtype).
    """
    rounds = range(max(map(len, rows), default=0))
    return [row[(number + turn) % len(row)] for turn in rounds for number, row in enumerate(rows) if turn < len(row)]


def answered(call: Callable[[], Any], keep: int, *, values: bool = True) -> Answer:
    """Call, and say what came of it; a late error, which only reading the results brings out, counts as its own.

    Of each result at most `keep` values are kept. Without `values` only what it looks like is: for random numbers.
    """
    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.set_warn_always(True)  # torch tells of a fallback once in a process
        try:
            results = [_result(leaf, keep, values) for leaf in tree_leaves(call())]
        except Exception as error:
            return refusal(error)
        finally:
            torch.set_warn_always(always)
    answer: Answer = {"does": "computes", "results": results}
    warned = dict.fromkeys(str(one.message) for one in told if "mps" in str(one.message).lower())
    return {**answer, "warns": list(warned)} if warned else answer


def refusal(error: BaseException) -> Answer:
    """A refusal: the class and the whole text."""
    return {"does": "refuses", "error": type(error).__name__, "text": str(error)}


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """Eight hexadecimal digits of what these CPU tensors hold."""
    found = hashlib.sha256()
    for one in tensors:
        found.update(f"{one.dtype} {tuple(one.shape)}".encode())
        found.update(_bytes(_plain(one)))
    return found.hexdigest()[:8]


def sampled(count: int, keep: int) -> list[int]:
    """Which of `count` elements are kept: all, or `keep` at equal distances, the first and the last among them."""
    return list(range(count)) if count <= keep else [at * (count - 1) // (keep - 1) for at in range(keep)]


def _result(leaf: Any, keep: int, values: bool) -> Answer:
    if not isinstance(leaf, torch.Tensor):
        return {"python": type(leaf).__name__, "value": repr(leaf) if values else ""}
    entry: Answer = {"dtype": str(leaf.dtype).removeprefix("torch."), "shape": list(leaf.shape)}
    if leaf.layout == torch.strided:
        entry["strides"] = list(leaf.stride())
    else:
        entry["layout"] = str(leaf.layout).removeprefix("torch.")
    if leaf.device.type != "mps":
        entry["device"] = leaf.device.type
    host = leaf.detach().to("cpu")  # also where only its looks are kept: a late error comes out here
    if values:
        flat = _plain(host)
        entry["digest"] = hashlib.sha256(_bytes(flat)).hexdigest()[:16]
        entry["values"] = base64.b64encode(_bytes(flat[sampled(flat.numel(), keep)])).decode("ascii")
    return entry


def _plain(host: torch.Tensor) -> torch.Tensor:
    """A CPU tensor's elements in a row, with one kind of NaN: which one an operation gives depends on the processor."""
    dense = host.detach().to_dense() if host.layout != torch.strided else host.detach()
    flat = dense.resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        real = torch.view_as_real(flat)
        return torch.view_as_complex(torch.where(real.isnan(), torch.full_like(real, torch.nan), real))
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return torch.where(flat.isnan(), torch.full_like(flat, torch.nan), flat)
    return flat


def _bytes(flat: torch.Tensor) -> bytes:
    """The memory of a contiguous CPU tensor, which torch alone hands out through numpy."""
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""


def value_difference(theirs: dict[str, Any], ours: dict[str, Any], operator: str) -> tuple[str, str] | None:
    """How the values that two devices gave for one call differ beyond rounding: theirs and ours; None if they do not.

    Both are results of `answered`, of the same dtype and shape. Each may be as far from the exact number as the
    operator's bound allows; where that depends on what the file does not keep (the terms of a sum), as far as PyTorch's
    own tests of mps allow.
    """
    mine, other = _kept_values(ours), _kept_values(theirs)
    if mine.shape != other.shape:
        return f"{other.numel()} values kept", f"{mine.numel()} values kept"
    found = differences(mine, other, _bound(operator, mine.dtype))
    if found is None:
        return None
    where = f"at {found.index[0]}; {found.wrong} of {found.count} kept values differ"
    return f"{found.found} {where}", str(found.expected)


def _kept_values(result: dict[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, result["dtype"])
    raw = bytearray(base64.b64decode(result.get("values", "")))
    return torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)


def _bound(operator: str, dtype: torch.dtype) -> Bound:
    bound = bound_of(operator, dtype)
    if bound.kind in (Kind.SUM, Kind.STEP) or bound.of_input:
        bound = bound_of("", dtype)
    return bound.of_two()
