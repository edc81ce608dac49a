"""Dtypes that single operators refuse or widen, by torch release: rows of the table that differ between releases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from anymps.rules import SCALAR_TYPES, refused_dtype, widened_dtypes
from anymps.rules._dtypes import _known

NUMBERED = re.compile(r"_\(.+, (\w+)\) /\* (\d+) \*/")
C10_NAMES = {
    "uint8": "byte", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "float16": "half",
    "float32": "float", "float64": "double", "complex32": "complexhalf", "complex64": "complexfloat",
    "complex128": "complexdouble",
}  # fmt: skip
RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")


def test_numbers_of_dtypes() -> None:
    """Those that torch's own header gives, in the order of its list."""
    include = Path(torch.__file__).parent / "include"
    headers = [include / folder / "core/ScalarType.h" for folder in ("torch/headeronly", "c10")]
    text = "".join(header.read_text(encoding="utf-8") for header in headers if header.exists())
    numbers = {name.lower(): int(number) for name, number in NUMBERED.findall(text)}
    assert len(numbers) > 40
    assert {dtype: numbers[C10_NAMES.get(dtype, dtype)] for dtype in SCALAR_TYPES} == SCALAR_TYPES


@pytest.mark.parametrize(
    ("operator", "dtype", "releases"),
    [
        ("var_mean", "int32", "2.11 2.12"),
        ("std_mean", "bool", "2.11 2.12"),
        ("native_group_norm", "int16", "2.11 2.12"),
        ("native_dropout_backward", "complex64", "2.11 2.12"),
        ("scatter_reduce", "bool", "2.11 2.12"),
        ("histc", "int64", "2.13 2.14 2.15"),
        ("median", "bool", "2.11 2.12 2.13"),
        ("native_batch_norm", "int8", "2.11 2.12 2.13"),
        ("floor", "bool", "2.11 2.12 2.13 2.14"),
        ("special_laguerre_polynomial_l", "float16", "2.15"),
        ("round", "uint8", "2.11 2.12 2.13 2.14 2.15"),
    ],
)
def test_widened_by_release(operator: str, dtype: str, releases: str) -> None:
    """Computed on MPS, not on the CPU."""
    assert [release for release in RELEASES if dtype in widened_dtypes(operator, release)] == releases.split()


@pytest.mark.parametrize(
    ("release", "refused", "widened"),
    [("2.11", 140, 205), ("2.12", 126, 209), ("2.13", 111, 196), ("2.14", 97, 184), ("2.15", 89, 167)],
)
def test_how_much_each_release_refuses_and_widens(release: str, refused: int, widened: int) -> None:
    """Pairs of operator and dtype: a row that is lost, or has another dtype or release, changes a number."""
    assert (
        sum(refused_dtype(name, dtype, release) is not None for name in _known() for dtype in SCALAR_TYPES) == refused
    )
    assert sum(len(widened_dtypes(name, release)) for name in _known()) == widened
