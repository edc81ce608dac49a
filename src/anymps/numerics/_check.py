"""The check of numbers: the native core hands over the calls that are due, and wrong results are reported."""

from __future__ import annotations

import json
import re
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from anymps._text import base_name, first_line, tell
from anymps._threads import calling_thread_alone
from anymps.numerics._comparing import Comparison, Wrong
from anymps.numerics._differences import Loudness
from anymps.numerics._operations import RANDOM, UNINITIALISED, Operation, drops, operation
from anymps.numerics._reference import (
    LARGEST,
    copied_to_cpu,
    fresh_results,
    is_plain,
    read_on_cpu,
    tensors_in,
    tensors_or_none,
)
from anymps.numerics._terms import multiplications_of

MARK: Final = "anymps::numbers"

KINDS: Final = {Loudness.NOT_FINITE: "not finite", Loudness.NUMBER: "number", Loudness.FLUSHED: "flushed"}

REFUSED: Final = "refused"
"""The kind of a call that the CPU rejects because of an index."""

SHARED: Final = 1 << 30
"""Multiplications from which a call's comparison is shared among torch's threads: two matrices of 1,024 by 1,024 in
float64, which take 40 ms on one core. Below that, and without products, threads wait for one another longer than they
save: on two busy cores their processor time was 2 to 15 times that of one thread."""

_OUTSIDE: Final = re.compile(
    r"ind(?:ex|ices)\b.*(?:out of (?:range|bounds)|(?:must|should) be)|out of bounds|Expected idx >= 0"
)

TOO_LARGE: Final = "more than 134 million elements"
LAYOUT: Final = "sparse, quantised or nested tensors"
EARLY: Final = "copies to the CPU with non_blocking=True"
OF_THIS_CPU: Final = "computed by this machine's CPU"
ON_CPU_RAISES: Final = "the CPU raises an error"


@dataclass(frozen=True)
class Found:
    """A wrong result as data: what is written on the tape, and what `check_numbers` returns.

    `expected`, `found` and `allowed` are texts, as they were computed; `order` counts the wrong results of the run.
    `follows` is the order of the wrong result that was among its inputs, 0 for none.
    """

    kind: str
    operator: str
    dtype: str
    shapes: list[list[int]]
    layout: str
    expected: str
    backward: bool
    order: int
    result: int = 0
    index: list[int] = field(default_factory=list)
    found: str = ""
    allowed: str = ""
    bound: str = ""
    source: str = ""
    wrong: int = 1
    count: int = 1
    mpsgraph: bool = False
    follows: int = 0

    @property
    def share(self) -> float:
        """The share of wrong elements."""
        return self.wrong / self.count


@dataclass(frozen=True)
class _Kept:
    """What is kept of a call while it runs."""

    operation: Operation
    arguments: tuple[Any, ...]
    copies: tuple[Any, ...] | None  # where it overwrites what it reads
    by_kernels: int  # how many calls PyTorch's own kernels had computed before; -1 where they are not counted


class NumberCheck:
    """Compares calls; `by_mpsgraph` says of an operator's name whether MPSGraph computes it on this Mac and release.

    `by_kernels` counts the calls that PyTorch's own kernels have computed, where those that they do not compute are
    this CPU's; `in_host_memory` says that the device's memory can be read in place.
    """

    def __init__(
        self,
        by_mpsgraph: Callable[[str], bool],
        told: Callable[[Found, int], None] | None = None,
        limit: int = 1000,
        *,
        by_kernels: Callable[[], int] | None = None,
        in_host_memory: bool = False,
    ) -> None:
        self._by_mpsgraph, self._told, self._limit = by_mpsgraph, told, limit
        self._by_kernels = by_kernels if by_kernels is not None else _not_counted
        self._in_host_memory = in_host_memory
        self.compared: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.found: list[Found] = []
        self._tainted: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def begin(self, name: str, overload: str, arguments: tuple[Any, ...]) -> object | None:
        """Before a call: what `end` needs of it, or None to let it go."""
        known = operation(name, overload)
        reason = known.reason or _why_not(known, arguments)
        if reason:
            if reason != UNINITIALISED:
                self.left_out[reason] += 1
            return None
        if not known.written:
            return _Kept(known, arguments, None, self._by_kernels())
        with calling_thread_alone():
            return _Kept(known, arguments, copied_to_cpu(arguments), self._by_kernels())

    def end(self, kept: _Kept, results: tuple[Any, ...], site: int, backward: bool) -> str | None:
        """After it: compare, and say what is wrong as the text of a mark; None if nothing is."""
        if self._is_of_this_cpu(kept):
            self.left_out[OF_THIS_CPU] += 1
            return None
        with _threads_for(kept, results):
            return self._compare(kept, results, site, backward)

    def _is_of_this_cpu(self, kept: _Kept) -> bool:
        """Whether no kernel of PyTorch's took part although they are there: the CPU would be compared with itself.

        Only torch's operators: a program's own may be computed by its own Metal kernels.
        """
        return kept.by_kernels >= 0 and kept.by_kernels == self._by_kernels() and kept.operation.is_torchs

    def _compare(self, kept: _Kept, results: tuple[Any, ...], site: int, backward: bool) -> str | None:
        known = kept.operation
        arguments = kept.copies if kept.copies is not None else read_on_cpu(kept.arguments, self._in_host_memory)
        fresh = tensors_or_none(fresh_results(known, results))[: known.results]
        written = [tensor for place in sorted(known.written) for tensor in tensors_in(kept.arguments[place])]
        mpsgraph = self._by_mpsgraph(known.base)
        try:
            found = read_on_cpu([*fresh, *written], self._in_host_memory)
            by_host = self._in_host_memory and known.is_torchs
            wrong = Comparison(known, arguments, found, mpsgraph, by_host).wrong()
        except Exception as error:
            if isinstance(error, IndexError) or _OUTSIDE.search(str(error)):
                return self._refused(known, kept, error, backward, site)
            self.left_out[f"{ON_CPU_RAISES}: {known.name}: {str(error).partition(chr(10))[0][:120]}"] += 1
            return None
        self.compared[known.name] += 1
        if wrong is None:
            return None
        return self._note(known, kept, [*fresh, *written], wrong, backward, mpsgraph, site)

    def _refused(self, known: Operation, kept: _Kept, error: Exception, backward: bool, site: int) -> str | None:
        """The CPU's kernel rejects an index; the device computed something."""
        self.compared[known.name] += 1
        inputs = _inputs(kept)
        dtype = str(inputs[0].dtype).removeprefix("torch.") if inputs else ""
        found = self._found(known, inputs, backward, kind=REFUSED, dtype=dtype, expected=first_line(str(error))[:300])
        return self._tell(found, site)

    def _found(self, known: Operation, inputs: list[torch.Tensor], backward: bool, **more: Any) -> Found:
        """The next wrong result."""
        self.wrong[known.name] += 1
        return Found(
            operator=known.name,
            shapes=[list(tensor.shape) for tensor in inputs][:8],
            layout=_layout(inputs),
            backward=backward,
            order=sum(self.wrong.values()),
            **more,
        )

    def facts(self) -> dict[str, object]:
        """What was compared and what was not, for the recording."""
        return {
            "compared": sum(self.compared.values()),
            "operators": len(self.compared),
            "wrong": sum(self.wrong.values()),
            "left_out": dict(self.left_out),
        }

    def _note(
        self,
        known: Operation,
        kept: _Kept,
        results: list[Any],
        wrong: Wrong,
        backward: bool,
        mpsgraph: bool,
        site: int,
    ) -> str | None:
        inputs = _inputs(kept)
        follows = min((number for tensor in inputs if (number := self._order_of(tensor))), default=0)
        difference = wrong.difference
        found = self._found(
            known,
            inputs,
            backward,
            kind=KINDS[difference.loudness],
            dtype=str(wrong.dtype).removeprefix("torch."),
            result=wrong.place,
            index=list(difference.index),
            expected=_number(difference.expected),
            found=_number(difference.found),
            allowed=f"{difference.allowed:.2g}",
            bound=wrong.bound.words,
            source=wrong.bound.source,
            wrong=difference.wrong,
            count=difference.count,
            mpsgraph=mpsgraph,
            follows=follows,
        )
        for tensor in results:
            if tensor is not None and tensor.device.type == "mps" and len(self._tainted) < self._limit:
                self._tainted[id(tensor)] = weakref.ref(tensor), follows or found.order
        return self._tell(found, site)

    def _tell(self, found: Found, site: int) -> str | None:
        if len(self.found) < self._limit:
            self.found.append(found)
        if self._told is not None:
            self._told(found, site)
        return f"{MARK} {json.dumps(asdict(found), sort_keys=True)}" if found.order <= self._limit else None

    def _order_of(self, tensor: torch.Tensor) -> int:
        reference, order = self._tainted.get(id(tensor), (None, 0))
        return order if reference is not None and reference() is tensor else 0


def _inputs(kept: _Kept) -> list[torch.Tensor]:
    return [tensor for value in kept.arguments for tensor in tensors_in(value)]


def _not_counted() -> int:
    return -1


def _why_not(known: Operation, arguments: tuple[Any, ...]) -> str:
    tensors = [tensor for value in arguments for tensor in tensors_in(value)]
    named = {said.name: value for said, value in zip(known.arguments, arguments, strict=False)}
    if drops(named):
        return RANDOM
    if not all(is_plain(tensor) for tensor in tensors):
        return LAYOUT
    if sum(tensor.numel() for tensor in tensors) > LARGEST:
        return TOO_LARGE
    if base_name(known.name) == "copy" and len(arguments) > 2 and arguments[2] and arguments[0].device.type == "cpu":
        return EARLY
    if known.base == "_to_copy" and named.get("non_blocking") and "cpu" in str(named.get("device")):
        return EARLY
    return ""


def _threads_for(kept: _Kept, results: tuple[Any, ...]) -> AbstractContextManager[None]:
    """Torch's threads for large products, the calling thread alone for all else."""
    inputs = [tuple(tensor.shape) for tensor in _inputs(kept)]
    made = [tuple(tensor.shape) for tensor in tensors_in(results)]
    work = multiplications_of(kept.operation.base, inputs, made)
    return nullcontext() if work >= SHARED else calling_thread_alone()


def _layout(tensors: list[torch.Tensor]) -> str:
    """`contiguous`, or the strides of the first input that is not."""
    for tensor in tensors:
        if not tensor.is_contiguous():
            return f"strides {list(tensor.stride())}"
    return "contiguous"


def _number(value: complex | float | int | bool) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value)


def say(text: str) -> None:
    """One line for the user, on standard error."""
    tell(f"anymps: {text}")
