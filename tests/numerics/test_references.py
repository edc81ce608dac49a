"""What the CPU computes a call from in a wider type, and how far its result moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.numerics import Bound, Kind
from anymps.numerics._operations import operation
from anymps.numerics._reference import compute, read_on_cpu, same_arguments, tensors_in, tensors_or_none, wide_arguments
from anymps.numerics._scales import SAMPLES, absolute_sums, largest_input, moved


def wide(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(("number", "wider"), [(5, 7), (6, 7), (15, 7), (8, 10), (9, 10), (7, 7), (10, 10), (3, 3)])
def test_a_dtype_that_is_asked_for_is_widened_too(number: int, wider: int) -> None:
    """`sum(x, dtype=torch.float16)` is computed in float64; integers and the wider types stay."""
    known = operation("aten::sum", "")
    assert wide_arguments(known, (torch.ones(2), number))[1] == wider
    assert same_arguments(known, (torch.ones(2), number))[1] == number


def test_what_is_no_number_stays() -> None:
    """True is no dtype; a device is the CPU, and memory is not pinned."""
    known = operation("aten::_to_copy", "")
    arguments: list[Any] = [torch.ones(2), 5, 0, torch.device("mps"), True, True, None]
    made = wide_arguments(known, arguments)
    assert made[1:] == (7, 0, torch.device("cpu"), None, True, None)
    assert same_arguments(known, arguments)[1:] == (5, 0, torch.device("cpu"), None, True, None)


@pytest.mark.parametrize("exact", [False, True])
def test_numbers_of_python_are_rounded_as_kernels_take_them(exact: bool) -> None:
    """To float32, unless they are asked for exactly, or are beyond it, or no tensor is a float."""
    known = operation("aten::mul", "Scalar")
    (x, number) = wide_arguments(known, (torch.ones(2, dtype=torch.float16), 0.1), exact_numbers=exact)
    assert x.dtype is torch.float64
    assert number == (0.1 if exact else float(torch.tensor(0.1)))
    assert wide_arguments(known, (torch.ones(2), 2e38))[1] == 2e38
    assert wide_arguments(known, (torch.ones(2, dtype=torch.int64), 0.1))[1] == 0.1


def test_a_number_in_place_of_a_tensor_is_one() -> None:
    """In float64, if it is a float."""
    known = operation("aten::add", "Tensor")
    for number, dtype in ((2.5, torch.float64), (2, torch.int64), (True, torch.bool)):
        other = wide_arguments(known, (torch.ones(2), number, 1))[1]
        assert (other.dtype, other.item()) == (dtype, number)


def test_what_is_written_into_is_a_copy() -> None:
    """The call's own tensors keep their numbers, also those that are wide already."""
    known = operation("aten::add_", "Tensor")
    for arguments in (wide_arguments, same_arguments):
        x = wide(1.0, 2.0)
        made = arguments(known, (x, wide(1.0, 1.0), 1))
        fresh, written = compute(known, made)
        assert fresh == []
        assert [tensor.tolist() for tensor in written] == [[2.0, 3.0]]
        assert x.tolist() == [1.0, 2.0]


def test_tensors_of_a_value() -> None:
    """In lists of lists, too; a tensor that comes twice is read once."""
    x, y = torch.ones(1), torch.zeros(1)
    assert [id(tensor) for tensor in tensors_in([x, (y, [x]), 3])] == [id(x), id(y), id(x)]
    assert tensors_or_none([x, [y, 3], None]) == [x, y, None, None]
    first, (second, number) = read_on_cpu([x, [x, 3]], in_host_memory=False)
    assert first is second
    assert number == 3


SUM = Bound(Kind.SUM, torch.float32, 1e-6, 0.0, 6, False, "")
U = 2.0**-24


def test_how_far_a_result_moves() -> None:
    """By a unit roundoff of each input for each term of the sum, two more, or eight of what is no sum."""
    known = operation("aten::mul", "Scalar")
    x = torch.tensor([1.0, -4.0])
    for bound, terms in ((SUM, 8), (Bound(Kind.TESTED, torch.float32, 1e-6, 0.0, 6, False, ""), 8)):
        rows = list(moved(known, (x, 2.0), [wide(2.0, -8.0)], bound))
        assert len(rows) == SAMPLES == 4
        for (furthest,) in rows:  # alike in each, as a product moves by the input's own share
            assert furthest.tolist() == pytest.approx([terms * 2 * U, terms * 8 * U], rel=1e-6)
    many = Bound(Kind.SUM, torch.float32, 1e-6, 0.0, 98, False, "")
    ((furthest,), *_) = moved(known, (x, 2.0), [wide(2.0, -8.0)], many)
    assert furthest.tolist() == pytest.approx([100 * 2 * U, 100 * 8 * U], rel=1e-6)


def test_the_furthest_so_far() -> None:
    """A sum of numbers that move either way: more and more; what has no place or other sizes is left out."""
    known = operation("aten::sum", "")
    x = torch.ones(64)
    rows = [row[0].item() for row in moved(known, (x, None), [wide(64.0).reshape(())], SUM)]
    assert rows == sorted(rows)
    assert rows[0] < rows[-1] < 64 * 8 * U
    assert list(moved(known, (x, None), [None], SUM)) == [[None]] * 4
    assert list(moved(known, (x, None), [wide(64.0)], SUM)) == [[None]] * 4
    whole = torch.tensor([3, 4])
    assert list(moved(operation("aten::mul", "Tensor"), (whole, whole), [whole * whole], SUM)) == [[None]] * 4


def test_the_sums_of_what_is_added_up() -> None:
    """With absolute values of inputs and factors; a difference adds, too. Other operators have none."""
    x, y = torch.tensor([1.0, -2.0]), torch.tensor([-3.0, 4.0])
    for name, overload, arguments, expected in (
        ("sum", "", (x, None), 3.0),
        ("dot", "", (x, y), 11.0),
        ("add", "Tensor", (x, y, -2), [7.0, 10.0]),
        ("sub", "Tensor", (x, y, 2), [7.0, 10.0]),
        ("rsub", "Tensor", (x, y, 1), [4.0, 6.0]),
        ("addcmul", "", (x, x, y, -0.5), [2.5, 6.0]),
    ):
        sums = absolute_sums(operation(f"aten::{name}", overload), arguments)
        assert sums is not None
        assert sums[0].tolist() == expected
    assert absolute_sums(operation("aten::exp", ""), (x,)) is None


def test_the_largest_input_of_each_element() -> None:
    """Of tensors, stretched to the result's sizes, and numbers."""
    x, like = torch.tensor([1.0, -5.0]), torch.zeros(2, 2)
    found = largest_input((x, [torch.tensor([[2.0], [-9.0]])], 3, True), like)
    assert found is not None
    assert found.tolist() == [[3.0, 5.0], [9.0, 9.0]]
    assert largest_input((x, torch.ones(3)), like) is None
    assert largest_input((3.0,), like) is None
