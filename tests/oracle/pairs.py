"""Runs each operator and dtype on the device and by its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from anymps.kernels import KernelLibrary, Launcher

from .asked import ASKED, compare_asked
from .compare import Difference
from .draws import compare_draws
from .families import compare_families
from .later import LATER
from .launches import NAMES, run_cast, run_described, run_kernel
from .newest import NEWEST
from .operators import OPERATORS, Operator
from .rows import ROWS, compare_reductions, compare_rows
from .values import DTYPES, inputs, line

Row = dict[str, Any]


def compare_all(
    library: KernelLibrary, names: Iterable[str] = (), release: tuple[int, int] | None = None
) -> Iterator[Row]:
    """A row for each operator and dtype that has a kernel; with names, of those alone.

    `release` is that of the kernels, where it is not the installed torch's.
    """
    wanted, release = set(names), release or installed()
    for operator in OPERATORS:
        if wanted and operator.kernel not in wanted:
            continue
        for dtype in DTYPES:
            found = compare(library, operator, dtype, release)
            if found is not None:
                yield _row(operator.title, operator.kernel, dtype, found)
    for rows in ROWS:
        for dtype in DTYPES if not wanted or rows.kernel in wanted else ():
            found = compare_rows(library, rows, dtype)
            if found is not None:
                yield _row(rows.title, rows.kernel, dtype, found)
    for reduced, dtype, taken in compare_reductions(library, release, wanted):
        yield _row(reduced, reduced, dtype, taken)
    for operator_name, dtype, seen in compare_families(library, release, wanted):
        yield _row(operator_name, operator_name, dtype, seen)
    for title, kernel, dtype, called in compare_asked(library, release, wanted, (*ASKED, *LATER, *NEWEST)):
        yield _row(title, kernel, dtype, called)
    for title, kernel, dtype, drawn in compare_draws(library, wanted):
        yield _row(title, kernel, dtype, drawn)
    if not wanted or "to" in wanted:
        yield from compare_casts(library)
    if not wanted or "copy_neg" in wanted:
        yield from compare_negated(library)


def compare(
    library: KernelLibrary, operator: Operator, dtype: torch.dtype, release: tuple[int, int]
) -> Difference | None:
    """One operator over its inputs of a dtype; None if the device refuses them or no kernel has them."""
    found = Difference()
    launcher = Launcher(library, release)
    if isinstance(operator.alpha, float) and not dtype.is_floating_point:
        return None  # the kernel of integers takes the number as an integer
    for given in inputs(operator, dtype):
        on_device = tuple(one.detach().to("mps") for one in given)
        try:
            result = operator.call(*on_device)
        except (RuntimeError, NotImplementedError, TypeError):
            if release == installed():
                continue  # refused on a Mac, too
            try:  # the device of that release may have what the installed one lacks
                result = operator.call(*given)
            except (RuntimeError, NotImplementedError, TypeError):
                continue
        described = run_described(launcher, operator.call, on_device if result.is_mps else given)
        by_kernel = described[0] if described is not None else run_kernel(library, operator, on_device, result)
        if by_kernel is not None:
            found.add(result.cpu(), by_kernel.cpu(), given)
    return found if found.elements else None


def installed() -> tuple[int, int]:
    """The first two numbers of the installed torch."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)


def compare_casts(library: KernelLibrary) -> Iterator[Row]:
    """A copy to each other dtype."""
    for target in DTYPES:
        for source in DTYPES:
            if source == target or (source.is_complex and not target.is_complex):
                continue
            given = line(source, 5)
            if not source.is_floating_point:
                values = given
            else:  # what no integer holds is undefined
                values = (
                    given
                    if target.is_floating_point or target.is_complex or target == torch.bool
                    else given[given.abs() < 100]
                )
                values = values.abs() if target == torch.uint8 else values
            by_kernel = run_cast(library, values.to("mps"), target)
            if by_kernel is None:
                continue
            found = Difference()
            found.add(values.to("mps").to(target).cpu(), by_kernel.cpu(), (values,))
            yield _row(f"to {str(target).removeprefix('torch.')}", f"copy_identity, {NAMES[target]}", source, found)


def compare_negated(library: KernelLibrary) -> Iterator[Row]:
    """A copy of a tensor with the negative bit, also of one that is conjugated, to each dtype."""
    for kernel, title in (("copy_neg", "negative"), ("copy_conj_neg", "negative conjugate")):
        for target in DTYPES:
            for source in DTYPES:
                signed = source.is_floating_point or source.is_complex or (source.is_signed and source == target)
                if not signed or (source.is_complex and not target.is_complex):
                    continue
                if not (target.is_floating_point or target.is_complex or target == source):
                    continue
                given = line(source, 5).to("mps")
                by_kernel = run_cast(library, given, target, kernel)
                if by_kernel is None:
                    continue
                view = torch._neg_view(given.conj() if kernel == "copy_conj_neg" else given)
                try:
                    copied = view.to(target).resolve_neg().resolve_conj().cpu()
                except NotImplementedError:
                    continue  # no CPU kernel
                found = Difference()
                found.add(copied, by_kernel.cpu(), (given.cpu(),))
                yield _row(
                    f"{title} to {str(target).removeprefix('torch.')}", f"{kernel}, {NAMES[target]}", source, found
                )


def _row(operator: str, kernel: str, dtype: torch.dtype, found: Difference) -> Row:
    return {
        "operator": operator,
        "kernel": kernel,
        "dtype": str(dtype).removeprefix("torch."),
        "verdict": found.verdict,
        "elements": found.elements,
        "unequal": found.unequal,
        "flushed": found.flushed,
        "ulps": found.ulps,
        "far": found.far,
        "example": found.example,
    }
