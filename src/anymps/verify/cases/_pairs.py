"""Cases that need nothing but torch: an operator and a dtype at the edges of the dtype, and sums over matrices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from anymps.verify.cases._answering import answered, digest_of
from anymps.verify.cases._case import Answer, Case, in_turn
from anymps.verify.cases._moving import portable, to_mps
from anymps.verify.cases._operators import OPERATORS, Operator
from anymps.verify.cases._reductions import LAID, MATRICES, ROWS, matrices
from anymps.verify.cases._values import DTYPES, inputs

_VALUES: Final = 700
_VALUES_OF_ROWS: Final = 40
_DIMENSIONS: Final = (0, 1, None)


def pair_cases() -> list[Case]:
    """All cases, operators and dtypes in turn."""
    names = [(dtype, str(dtype).removeprefix("torch.")) for dtype in DTYPES]
    pairs = [
        [Case(f"pair {operator.title} {name}", functools.partial(_pair, operator, dtype)) for dtype, name in names]
        for operator in OPERATORS
    ]
    rows = [
        [Case(f"rows {title} {name}", functools.partial(_rows, title, dtype)) for dtype, name in names]
        for title in ROWS
    ]
    return in_turn([*pairs, *rows])


def _pair(operator: Operator, dtype: torch.dtype) -> Answer:
    if isinstance(operator.alpha, float) and not dtype.is_floating_point:
        return {"does": "unasked", "text": "integers do not take this scalar"}
    return _asked(_calls(operator, dtype), operator.entry.rpartition(".")[2], _VALUES)


def _calls(operator: Operator, dtype: torch.dtype) -> Iterator[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    for given in inputs(operator, dtype, samples=False):
        yield operator.call, given


def _rows(title: str, dtype: torch.dtype) -> Answer:
    call, over = ROWS[title]
    dims: tuple[int | None, ...] = _DIMENSIONS if over else (None,)
    calls = (
        (functools.partial(_laid, call, laid, {"dim": dim} if dim is not None else {}), (x,))
        for x in matrices(dtype, *MATRICES)
        for laid, dim in itertools.product(LAID, dims)
    )
    return _asked(calls, title.partition(",")[0].rpartition(".")[2], _VALUES_OF_ROWS)


def _laid(
    call: Callable[..., Any], laid: Callable[[torch.Tensor], torch.Tensor], options: dict[str, int], x: torch.Tensor
) -> Any:
    return call(laid(x), **options)


def _asked(calls: Iterable[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]], operator: str, keep: int) -> Answer:
    samples = []
    for call, given in calls:
        exact = tuple(map(portable, given))

        def on_mps(call: Callable[..., Any] = call, exact: tuple[torch.Tensor, ...] = exact) -> Any:
            return call(*map(to_mps, exact))

        asked = {"inputs": digest_of(exact), "shapes": [list(one.shape) for one in exact]}
        samples.append({**answered(on_mps, keep), **asked})
    return {"samples": samples, "operator": operator}
