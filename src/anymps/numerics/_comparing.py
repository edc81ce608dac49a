"""Compares one call's results with the CPU's: the cheap comparison first, the others only if it fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any, Final

import torch

from anymps.numerics._bounds import Bound, Kind, bound_of, unit_roundoff
from anymps.numerics._differences import Difference, Loudness, Unsettled, differences
from anymps.numerics._functions import MOVES
from anymps.numerics._operations import Operation
from anymps.numerics._reference import compute, same_arguments, tensors_in, wide_arguments, widened
from anymps.numerics._scales import ADDITIONS, LINEAR, absolute_sums, largest_input, moved
from anymps.numerics._ties import settles, undecided

_PLACES: Final = frozenset((torch.int64, torch.int32, torch.bool))
"""What indices and masks are of."""


@dataclass(frozen=True)
class Wrong:
    """A result that is not the CPU's, within the bound. `place` is its number among the results."""

    place: int
    difference: Difference
    bound: Bound
    dtype: torch.dtype
    shape: tuple[int, ...]


_ILL_CONDITIONED: Final = (Kind.SUM, Kind.TESTED, Kind.STEP)
"""Kinds of bounds of operators whose results may move far with their inputs."""


def _until_it_fails(trying: Iterator[list[Any]]) -> Iterator[list[Any]]:
    with suppress(Exception):  # of an operator that the CPU lacks in the wider type
        yield from trying


class Comparison:
    """A call with the arguments that it had, on the CPU, and what was `found`: its results, what it wrote into.

    `by_host` says that kernels computed it with the functions of this machine.
    """

    def __init__(
        self,
        operation: Operation,
        arguments: Sequence[Any],
        found: Sequence[Any],
        mpsgraph: bool,
        by_host: bool = False,
    ) -> None:
        self._operation, self._arguments, self._by_host = operation, arguments, by_host
        self._found: list[Any] = [None if result is None else result.detach().to("cpu") for result in found]
        self._mpsgraph = mpsgraph
        self._named = {said.name: value for said, value in zip(operation.arguments, arguments, strict=False)}
        self._shapes = [tuple(tensor.shape) for value in arguments for tensor in tensors_in(value)]
        self._overwritten = {id(one) for place in operation.written for one in tensors_in(arguments[place])}
        self._wide: dict[int, torch.Tensor] = {}
        self._expected: list[Any] = []
        self._native: list[Any] | None = None
        self._sums: list[torch.Tensor] | None = None
        self._summed = False
        self._moves: dict[tuple[torch.dtype, int], Iterator[list[Any]]] = {}

    def wrong(self) -> Wrong | None:
        """The loudest of the results that are wrong; None if none is. Raises what the CPU's kernel raises."""
        fresh, written = compute(self._operation, self._exact_arguments())
        self._expected = [*fresh, *written]
        seen = [
            wrong
            for place, (expected, found) in enumerate(zip(self._expected, self._found, strict=False))
            if expected is not None and found is not None and expected.shape == found.shape
            if (wrong := self._wrong_at(place, expected, found)) is not None
        ]
        return min(seen, key=lambda wrong: (wrong.difference.loudness, wrong.place), default=None)

    def _wrong_at(self, place: int, expected: torch.Tensor, found: torch.Tensor) -> Wrong | None:
        bound = self._bound(found)
        unsettled = Unsettled(expected, found, bound)
        if not unsettled or settles(self._operation.base, self._arguments, self._named, expected, found):
            return None
        scale = self._scale(place, bound, expected)
        if scale is not None and unsettled.settle(scale):
            return None
        allowance: torch.Tensor | None = None
        for allowance in self._moved(place, bound):
            if unsettled.settle(scale, allowance):
                return None
        excused = self._excused(place, found)
        if differences(expected, found, bound, scale=scale, allowance=allowance, excused=excused) is None:
            return None
        allowance = self._allowance(place, bound, expected, allowance)
        left = differences(expected, found, bound, scale=scale, allowance=allowance, excused=excused)
        subnormal = self._of_subnormals(found, bound)
        if left is not None and subnormal is not None and not self._is_flushed(place, found, bound):
            left = differences(expected, found, bound, scale=scale, allowance=allowance, excused=excused | subnormal)
        if left is not None and left.loudness is not Loudness.FLUSHED and self._is_flushed(place, found, bound):
            left = replace(left, loudness=Loudness.FLUSHED)
        return None if left is None else Wrong(place, left, bound, found.dtype, tuple(found.shape))

    def _exact_arguments(self) -> tuple[Any, ...]:
        """The arguments in the wider type, or as they are where numbers of one dtype are only moved."""
        if self._operation.base in MOVES:
            dtypes = {tensor.dtype for value in self._arguments for tensor in tensors_in(value)}
            dtypes |= {found.dtype for found in self._found if found is not None}
            if len(dtypes - _PLACES) == 1:
                return same_arguments(self._operation, self._arguments)
        return wide_arguments(self._operation, self._arguments, self._widened)

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        """Those that nothing is written into are widened once."""
        if id(tensor) in self._overwritten:
            return widened(tensor)
        if id(tensor) not in self._wide:
            self._wide[id(tensor)] = widened(tensor)
        return self._wide[id(tensor)]

    def _bound(self, found: torch.Tensor) -> Bound:
        floats = [
            tensor.dtype
            for value in self._arguments
            for tensor in tensors_in(value)
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex
        ]
        dtype = found.dtype
        if dtype.is_floating_point or dtype.is_complex:
            # float32 results of half inputs are as exact as the halves were.
            dtype = max([dtype, *floats], key=lambda one: (unit_roundoff(one), one.is_complex))
        bound = bound_of(self._operation.name, dtype, self._shapes, tuple(found.shape), mpsgraph=self._mpsgraph)
        if self._operation.base in ADDITIONS and self._named.get("alpha") not in (None, 1):
            # The product is rounded before the sum.
            bound = replace(bound, of_input=True, relative=2 * bound.relative)
        return bound

    def _excused(self, place: int, found: torch.Tensor) -> torch.Tensor:
        """Elements that the CPU's own kernel of these dtypes gives, too, and casts of what an integer can't hold."""
        excused = self._undecided(place, found)
        if self._native is None:
            try:
                fresh, written = compute(self._operation, same_arguments(self._operation, self._arguments))
                self._native = [*fresh, *written]
            except Exception:  # the CPU lacks the dtype
                self._native = []
        native = self._native[place] if place < len(self._native) else None
        if native is not None and native.shape == found.shape:
            other = native.to(found.dtype)
            excused |= (other == found) | (other.isnan() & found.isnan())
        if not (found.dtype.is_floating_point or found.dtype.is_complex or found.dtype is torch.bool):
            source = next((t for value in reversed(self._arguments) for t in tensors_in(value)), None)
            if source is not None and source.dtype.is_floating_point and source.shape == found.shape:
                limits = torch.iinfo(found.dtype)
                number = source.to(torch.float64)
                excused |= ~((number >= limits.min) & (number <= limits.max))
        return excused

    def _undecided(self, place: int, found: torch.Tensor) -> torch.Tensor:
        """Elements for which any number is right: of a factorisation whose end rounding decides, or that has none.

        Its numbers behind the pivot that is not positive say nothing.
        """
        if self._operation.base != "linalg_cholesky_ex":
            return torch.zeros(found.shape, dtype=torch.bool)
        ends: torch.Tensor = self._expected[1]
        others: torch.Tensor = found if place == 1 else self._found[1]
        if place == 1:
            return undecided(self._arguments[0], bool(self._named["upper"]), ends, others)
        broken = (ends != 0).logical_or(others != 0)
        return broken[..., None, None].expand(found.shape).clone()

    def _of_subnormals(self, found: torch.Tensor, bound: Bound) -> torch.Tensor | None:
        """Elements of functions of subnormal numbers, which this machine's take otherwise than Metal's; None: none."""
        if not self._by_host or bound.kind not in (Kind.FUNCTION, Kind.TESTED):
            return None
        subnormal = torch.zeros(found.shape, dtype=torch.bool)
        for tensor in (one for value in self._arguments for one in tensors_in(value)):
            if tensor.dtype.is_floating_point:
                size = tensor.abs()
                with suppress(RuntimeError):  # of lists of tensors
                    subnormal |= ((size > 0) & (size < torch.finfo(tensor.dtype).tiny)).expand(found.shape)
        return subnormal if bool(subnormal.any()) else None

    def _before(self, place: int) -> torch.Tensor:
        """The number that a step of an optimizer updates, in the wider type; what memory holds unset is 0."""
        written = [tensor for at in sorted(self._operation.written) for tensor in tensors_in(self._arguments[at])]
        fresh = len(self._expected) - len(written)
        return torch.nan_to_num(self._widened(written[place - fresh]), nan=0.0, posinf=0.0, neginf=0.0)

    def _scale(self, place: int, bound: Bound, expected: torch.Tensor) -> torch.Tensor | None:
        if bound.kind is Kind.STEP:
            return self._before(place).abs()
        if bound.of_input and self._operation.base not in LINEAR:
            return largest_input(self._arguments, expected)
        if bound.kind not in (Kind.SUM, Kind.TESTED) and not bound.of_input:
            return None
        if not self._summed:
            self._summed = True
            with suppress(Exception):  # an operator that minds its inputs' signs
                self._sums = absolute_sums(self._operation, self._arguments, self._widened)
        scale = self._sums[place] if self._sums is not None and place < len(self._sums) else None
        return scale if scale is not None and scale.shape == expected.shape else None

    def _moved(self, place: int, bound: Bound) -> Iterator[torch.Tensor]:
        """How far an ill-conditioned result moves with its inputs: more and more, as more of their moves are tried."""
        if bound.kind not in _ILL_CONDITIONED:
            return
        change = torch.zeros(())
        if bound.kind is Kind.STEP:
            change = bound.change * (self._expected[place] - self._before(place)).abs()
            yield change
        key = (bound.dtype, bound.terms)
        if key not in self._moves:
            trying = moved(self._operation, self._arguments, self._expected, bound, self._widened)
            self._moves[key] = _until_it_fails(trying)
        self._moves[key], tried = tee(self._moves[key])  # for the other results of the call
        for furthest in tried:
            if furthest[place] is not None:
                yield furthest[place] + change

    def _allowance(
        self, place: int, bound: Bound, expected: torch.Tensor, allowance: torch.Tensor | None
    ) -> torch.Tensor | None:
        """That of the moves, and how far the CPU's own kernel is off."""
        if bound.kind not in _ILL_CONDITIONED:
            return self._by_exact_numbers(place, expected)
        native = self._native[place] if self._native and place < len(self._native) else None
        if native is not None and native.shape == expected.shape and native.dtype.is_floating_point:
            off = torch.nan_to_num((native.to(torch.float64) - expected).abs(), nan=0.0, posinf=0.0)
            allowance = 2 * off if allowance is None else torch.maximum(allowance, 2 * off)
        return allowance

    def _by_exact_numbers(self, place: int, expected: torch.Tensor) -> torch.Tensor | None:
        """How far the result moves if numbers of Python are not rounded to float32.

        CUDA divides by multiplying with the reciprocal, which it rounds only then: aten/src/ATen/native/cuda/
        BinaryDivTrueKernel.cu; seen with torch 2.11 on an H100.
        """
        if not any(isinstance(value, float) for value in self._arguments):
            return None
        fresh, written = compute(self._operation, wide_arguments(self._operation, self._arguments, exact_numbers=True))
        exact = [*fresh, *written][place]
        return torch.nan_to_num((exact - expected).abs().to(torch.float64), nan=0.0, posinf=0.0)

    def _is_flushed(self, place: int, found: torch.Tensor, bound: Bound) -> bool:
        """Whether it is the right result of inputs whose subnormal numbers are zero."""

        def flushed(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.dtype.is_floating_point:
                return tensor
            return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, tensor * 0, tensor)

        def widely(tensor: torch.Tensor) -> torch.Tensor:
            return widened(flushed(tensor))

        try:
            fresh, written = compute(self._operation, wide_arguments(self._operation, self._arguments, widely))
        except Exception:
            return False
        expected = [*fresh, *written][place]
        if expected is None or expected.shape != found.shape:
            return False
        left = differences(expected, flushed(found), bound)  # what is only moved or chosen stays as it was
        return left is None or left.loudness is Loudness.FLUSHED
