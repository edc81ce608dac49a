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
from .launches import run_described
from .newest import NEWEST
from .operators import OPERATORS, Operator
from .rows import compare_reductions, compare_rows
from .values import DTYPES, inputs

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
    for title, kernel, dtype, taken in compare_rows(library, release, wanted):
        yield _row(title, kernel, dtype, taken)
    for reduced, dtype, taken in compare_reductions(library, release, wanted):
        yield _row(reduced, reduced, dtype, taken)
    for operator_name, dtype, seen in compare_families(library, release, wanted):
        yield _row(operator_name, operator_name, dtype, seen)
    for title, kernel, dtype, called in compare_asked(library, release, wanted, (*ASKED, *LATER, *NEWEST)):
        yield _row(title, kernel, dtype, called)
    for title, kernel, dtype, drawn in compare_draws(library, wanted):
        yield _row(title, kernel, dtype, drawn)


def compare(
    library: KernelLibrary, operator: Operator, dtype: torch.dtype, release: tuple[int, int]
) -> Difference | None:
    """One operator over its inputs of a dtype; None if the device refuses them or no kernel has them."""
    found = Difference()
    launcher = Launcher(library, release)
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
        if described is not None:
            found.add(result.cpu(), described[0].cpu(), given)
    return found if found.elements else None


def installed() -> tuple[int, int]:
    """The first two numbers of the installed torch."""
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)


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
