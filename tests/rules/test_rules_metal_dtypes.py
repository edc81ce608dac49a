"""Dtypes without a Metal kernel, by torch release, and what compares the table with the kernels of a wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from anymps.rules._metal_dtypes import Form, _without_name, kernel_names
from conformance.kernel_dtypes import differences, release_of

RELEASES = ((2, 11), (2, 12), (2, 13), (2, 14), (2, 15))
FLOAT8 = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu")
UNSIGNED = ("uint16", "uint32", "uint64")


@pytest.mark.parametrize(
    ("operator", "lacking"),
    [
        ("add", 5 * [True]),
        ("mul", 5 * [True]),
        ("abs", 5 * [True]),
        ("sum", [None, None, True, True, True]),
        ("eq", [None, None, True, True, False]),
        ("gt", [None, None, True, True, False]),
        ("fill", [None, False, False, False, False]),
        ("sort", [None, None, False, False, False]),
        ("cat", 5 * [False]),
        ("where", [None, None, None, None, False]),
    ],
)
def test_unsigned_integers(operator: str, lacking: list[bool | None]) -> None:
    """None: MPSGraph computes, which knows them."""
    found = [kernel_names(release).get(operator) for release in RELEASES]
    assert [None if one is None else set(UNSIGNED) <= set(one.missing) for one in found] == lacking


def test_one_8_bit_float_has_a_name_from_2_15_on() -> None:
    """With kernels of few operators."""
    assert kernel_names((2, 14))["eq"].missing == (*UNSIGNED, *FLOAT8)
    assert kernel_names((2, 15))["eq"].missing == tuple(one for one in FLOAT8 if one != "float8_e4m3fn")
    assert kernel_names((2, 15))["add"].missing == (*UNSIGNED, *FLOAT8)


@pytest.mark.parametrize("release", RELEASES)
def test_mpsgraph_knows_no_8_bit_float(release: tuple[int, int]) -> None:
    """Not even the one with a name in Metal: `getMPSDataType` of each release refuses all, and takes the unsigned."""
    known = _without_name("repeat", release)
    assert known is not None
    assert (known.form, known.missing) == (Form.GRAPH, FLOAT8)


def test_products_of_8_bit_floats_have_a_kernel() -> None:
    """Of the one that has a name."""
    known = _without_name("_scaled_mm_v2", (2, 15))
    assert known is not None
    assert (known.form, set(FLOAT8) - set(known.missing)) == (Form.FIRST, {"float8_e4m3fn"})


def test_names_by_release() -> None:
    """An operator of one tensor asks for a kernel that casts its result, from 2.13 on."""
    assert kernel_names((2, 12))["abs"].name == "abs_%L_%T_%T"
    assert kernel_names((2, 13))["abs"].name == "abs_%L_castout_%T"
    assert kernel_names((2, 12))["add"].cast == "add_%B_cast_%O"
    assert kernel_names((2, 13))["add"].cast == "add_%B_cast_%O_%C"
    assert kernel_names((2, 13))["div"].form is Form.QUOTIENT


def test_the_table_is_compared_with_the_kernels_of_a_wheel() -> None:
    """A kernel that the table denies, one that it claims, and an operator without any."""
    assert release_of(Path("torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl")) == (2, 13)
    names = {"add_dense_ushort_ushort", "add_dense_float_float", "fill_scalar_dense_int", "fill_scalar_dense_uint"}
    found = list(differences(names, (2, 13)))
    assert "torch 2.13: add uint16: add_dense_ushort_ushort" in found
    assert "torch 2.13: fill uint16: no kernel" in found
    assert "torch 2.13: abs: no kernel is called abs_%L_castout_%T" in found
    assert not [line for line in found if line.startswith(("torch 2.13: add uint32", "torch 2.13: fill uint32"))]
