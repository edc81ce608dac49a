"""One call's results against the CPU's: what is wrong, and what only looks so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

from anymps.numerics import _comparing
from anymps.numerics._comparing import Comparison, Wrong
from anymps.numerics._differences import Loudness
from anymps.numerics._operations import NO_KERNEL, RANDOM, UNINITIALISED, Operation, operation
from anymps.numerics._reference import compute, same_arguments

aten = torch.ops.aten


def compared(name: str, arguments: Sequence[Any], found: Any) -> Wrong | None:
    """`name` is `mm` or `add.Tensor`; arguments that are left out are the schema's defaults."""
    base, _, overload = name.partition(".")
    known = operation(f"aten::{base}", overload)
    assert known.reason == ""
    rest = [said.default_value for said in known.arguments[len(arguments) :]]
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    return Comparison(known, (*arguments, *rest), results, mpsgraph=False).wrong()


def wrong(name: str, arguments: Sequence[Any], found: Any) -> Wrong:
    """The same of results that are wrong."""
    told = compared(name, arguments, found)
    assert told is not None
    return told


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(40, 60, generator=torch.Generator().manual_seed(1)) * 3


def test_what_the_cpu_computes_is_right(x: torch.Tensor) -> None:
    """In float32, with its own order of sums."""
    far = x + 1000  # ill-conditioned: the mean is large beside the spread
    norm = list(aten.native_layer_norm(far, [60], None, None, 1e-5))
    image = x.reshape(2, 10, 10, 12)
    weight = torch.randn(6, 10, 3, 3)
    assert compared("mm", (x, x.t()), x @ x.t()) is None
    assert compared("sum", (x,), x.sum()) is None
    assert compared("exp", (x,), x.exp()) is None
    assert compared("gelu", (x, "none"), functional.gelu(x)) is None
    assert compared("_softmax", (x * 10, 1, False), (x * 10).softmax(1)) is None
    assert compared("_log_softmax", (x * 10, 1, False), (x * 10).log_softmax(1)) is None
    assert compared("native_layer_norm", (far, [60], None, None, 1e-5), norm) is None
    assert compared("var.correction", (far, [1]), far.var(1)) is None
    assert compared("add.Tensor", (x, x.flip(0), 3), x + 3 * x.flip(0)) is None
    assert compared("mul.Tensor", (x, 0.1), x * 0.1) is None
    assert compared("gt.Scalar", (torch.tensor([0.1]), 0.1), torch.tensor([0.1]) > 0.1) is None
    convolved = functional.conv2d(image, weight, padding=1)
    assert compared("convolution", (image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), convolved) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_judged_by_its_own_digits(x: torch.Tensor, dtype: torch.dtype) -> None:
    half = x.to(dtype)
    assert compared("mm", (half, half.t()), half @ half.t()) is None
    assert compared("silu", (half,), functional.silu(half)) is None
    told = wrong("silu", (half,), functional.silu(half) * 1.1)
    assert told.dtype is dtype


def test_a_product_with_one_wrong_element(x: torch.Tensor) -> None:
    found = x @ x.t()
    found[3, 4] += 0.01
    told = wrong("mm", (x, x.t()), found)
    assert (told.difference.index, told.difference.wrong) == ((3, 4), 1)
    assert told.bound.words.startswith("float32 sums of 60 numbers: 3.7e-06 times the sum")


def test_digits_lost_by_a_formula(x: torch.Tensor) -> None:
    """`1 - erf(x)` for `erfc`, `abs` by way of float32, `sqrt(x² + y²)` for `hypot`."""
    lost = wrong("erfc", (x,), 1 - x.erf())
    assert lost.difference.loudness is Loudness.NUMBER
    large = torch.tensor([2**40 + 1, -5])
    told = wrong("abs", (large,), large.float().abs().long())
    assert (told.difference.expected, told.difference.found) == (2**40 + 1, 2**40)
    far = torch.tensor([1e30])
    overflowed = wrong("hypot", (far, far), (far * far + far * far).sqrt())
    assert overflowed.difference.loudness is Loudness.NOT_FINITE


def test_a_difference_is_measured_by_what_was_added_up() -> None:
    """A sum that cancels has lost its digits on any machine."""
    terms = torch.tensor([1e8, 1.0, -1e8])
    assert compared("sum", (terms,), torch.tensor(0.0)) is None
    assert compared("sum", (terms,), torch.tensor(1e5)) is not None


def test_any_of_several_equal_numbers_may_be_chosen() -> None:
    tied = torch.zeros(3, 5)
    assert compared("topk", (tied, 2, 1), [torch.zeros(3, 2), torch.tensor([[0, 3]] * 3)]) is None
    assert compared("argmax", (tied, 1, False), torch.tensor([4, 1, 0])) is None
    assert compared("max.dim", (tied, 1, False), [torch.zeros(3), torch.tensor([4, 1, 0])]) is None
    rising = torch.arange(5.0)
    assert compared("argmax", (rising, 0, False), torch.tensor(3)) is not None
    assert compared("argmax", (rising, 0, False), torch.tensor(7)) is not None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("complex", (torch.ones(2), torch.ones(2))),
        ("gt.Tensor", (torch.ones(2), torch.zeros(2))),
        ("floor", (torch.ones(2),)),
    ],
)
def test_only_integers_have_ends_that_a_float_may_pass(name: str, arguments: tuple[torch.Tensor, ...]) -> None:
    """Wrong results of other dtypes are wrong."""
    right = getattr(torch, name.partition(".")[0])(*arguments)
    told = wrong(name, arguments, ~right if right.dtype is torch.bool else right + 1)
    assert told.difference.wrong == 2


@pytest.mark.parametrize(
    ("number", "wrong"),
    [(2.0**31, False), (-(2.0**31) - 300, False), (float("nan"), False), (-(2.0**31), True), (2.0**31 - 128, True)],
)
def test_what_an_integer_can_hold_must_be_right(number: float, wrong: bool) -> None:
    """To its ends."""
    x = torch.tensor([number, 1.0])
    found = torch.tensor([7, 1], dtype=torch.int32)
    assert (compared("_to_copy", (x, torch.int32), found) is not None) is wrong


def test_which_places_of_equal_numbers_are_right() -> None:
    """Of NaN any NaN; along the axis and with the sizes of the call; none behind the ends."""
    nan = torch.tensor([[1.0, torch.nan, 5.0, torch.nan]])
    assert compared("argmax", (nan, 1, False), torch.tensor([3])) is None
    assert compared("argmax", (nan, 1, False), torch.tensor([2])) is not None
    tied = torch.tensor([[2.0, 1.0, 2.0], [2.0, 3.0, 0.0]])
    assert compared("argmax", (tied, None, False), torch.tensor(4)) is None
    assert compared("argmax", (tied, 1, False), torch.tensor([2, 1])) is None
    assert compared("argmax", (tied, 1, True), torch.tensor([[2], [1]])) is None
    assert compared("argmax", (tied, 0, False), torch.tensor([1, 1, 0])) is None
    assert compared("argmax", (tied, 0, False), torch.tensor([0, 1, 1])) is not None
    assert compared("argsort", (tied, 1, False), torch.tensor([[1, 2, 0], [2, 0, 1]])) is None
    for outside in (-1, 3):
        assert compared("argmax", (tied, 1, False), torch.tensor([outside, 1])) is not None
    zeros = torch.zeros(2, 3)
    assert compared("argmax", (zeros, None, False), torch.tensor(5)) is None
    assert compared("argmax", (zeros, None, False), torch.tensor(6)) is not None
    alone = torch.tensor(2.0)
    assert compared("argmax", (alone, 0, False), torch.tensor(0)) is None
    assert compared("argmax", (alone, 0, False), torch.tensor(1)) is not None


def test_which_places_of_a_pool_are_right() -> None:
    """They count over the image, of each channel by itself, with a batch or without."""
    image = torch.zeros(2, 3, 4, 4)
    values, places = functional.max_pool2d(image, 2, return_indices=True)
    call = (image, [2, 2], [2, 2], [0, 0], [1, 1], False)
    assert compared("max_pool2d_with_indices", call, [values, places + 1]) is None
    assert compared("max_pool2d_with_indices", call, [values, places + 16]) is not None
    one = (image[0], *call[1:])
    assert compared("max_pool2d_with_indices", one, [values[0], places[0] + 1]) is None
    image[1, 2, 0, 0] = 1.0
    values, places = functional.max_pool2d(image, 2, return_indices=True)
    moved = places.clone()
    moved[1, 2, 0, 0] = 1
    assert compared("max_pool2d_with_indices", call, [values, moved]) is not None
    single = (image[1], *call[1:])
    assert compared("max_pool2d_with_indices", single, [values[1], places[1]]) is None
    assert compared("max_pool2d_with_indices", single, [values[1], moved[1]]) is not None


def test_in_place_operators_are_computed_from_what_was_there_before(x: torch.Tensor) -> None:
    assert compared("add_.Tensor", (x, x, 1), [2 * x]) is None
    told = wrong("add_.Tensor", (x, x, 1), [3 * x])
    assert told.difference.wrong == x.numel()
    assert torch.equal(x, x)


def test_a_kernel_may_round_a_number_of_python_or_its_reciprocal() -> None:
    """A division by 0.0316..., rounded to float32 or not: each by its own rounding alone."""
    number = (1 - 0.999) ** 0.5
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(2)) + 1e-3
    by_cuda = x * torch.tensor(1 / number, dtype=torch.float32)
    rounded = torch.tensor(number, dtype=torch.float32)
    off = by_cuda.double() * rounded.double() / x.double() - 1
    assert (off.abs() > 2 * 2**-24).any()  # too far from what the rounded number gives
    assert compared("div.Tensor", (x, number), x / rounded) is None
    assert compared("div.Tensor", (x, number), by_cuda) is None
    told = wrong("div.Tensor", (x, number), by_cuda * (1 + 2**-20))
    assert told.difference.wrong == x.numel()


def test_a_factor_of_an_addition_is_rounded_before_the_sum() -> None:
    """Of the largest input, twice as far as without it."""
    x, y = torch.tensor([1.0, 1024.0]), torch.tensor([1.0, -1024.0])
    far = torch.tensor([2.0**-19, 0.0])
    told = wrong("add.Tensor", (x, y, 1), x + y + far)
    assert (told.bound.relative, told.bound.of_input) == (2.0**-23, False)
    told = wrong("add.Tensor", (x, y, 0.5), x + 0.5 * y + far)
    assert (told.bound.relative, told.bound.of_input) == (2.0**-22, True)
    assert told.difference.index == (0,)
    large = torch.tensor([0.0, 2.0**-12])
    assert compared("add.Tensor", (x, y, 0.5), x + 0.5 * y + large) is None
    assert compared("add.Tensor", (x, y, 0.5), x + 0.5 * y + 3 * large) is not None


def test_the_dtype_of_a_bound_is_the_coarsest_that_takes_part() -> None:
    """A float32 result of halves is as exact as they were; a complex one counts as its parts."""
    half, single = torch.ones(4, dtype=torch.float16), torch.ones(4)
    for left, right, dtype in (
        (half, single, torch.float16),
        (single, half.bfloat16(), torch.bfloat16),
        (single, single, torch.float32),
        (single, single.to(torch.complex64), torch.complex64),
    ):
        told = wrong("mul.Tensor", (left, right), left * right + 9)
        assert told.bound.dtype is dtype


def test_of_several_wrong_results_the_loudest_is_told() -> None:
    """NaN before a wrong number, else the first; its place, dtype and sizes."""
    x = torch.tensor([[1.0, 2.0, 4.0]])
    values, places = x.max(1)
    for found, place in (([values + 1, places], 0), ([values, places + 1], 1), ([values + 1, places + 1], 0)):
        told = wrong("max.dim", (x, 1, False), found)
        assert (told.place, told.shape) == (place, (1,))
        assert told.dtype is (torch.int64 if place else torch.float32)
    told = wrong("var_mean.correction", (x, [1]), [x.var(1) + 1, x.mean(1) * torch.nan])
    assert (told.place, told.difference.loudness) == (1, Loudness.NOT_FINITE)
    assert compared("max.dim", (x, 1, False), [values.expand(2), places]) is None  # other sizes say something else


def test_a_list_of_tensors(x: torch.Tensor) -> None:
    tensors = [x, x + 1]
    assert compared("_foreach_mul_.Scalar", (tensors, 2.0), [2 * x, 2 * x + 2]) is None
    told = wrong("_foreach_mul_.Scalar", (tensors, 2.0), [2 * x, 2 * x])
    assert told.place == 1


def test_subnormal_numbers_taken_for_zero_are_told_apart() -> None:
    small = torch.tensor([1e-40, 1.0])
    told = wrong("mul.Tensor", (small, torch.tensor([1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert told.difference.loudness is Loudness.FLUSHED
    root = wrong("sqrt", (small,), torch.tensor([0.0, 1.0]))  # the inputs were zero for it
    assert root.difference.loudness is Loudness.FLUSHED
    two = torch.tensor([1e-40, -1e-40])
    ordered = wrong("sort.stable", (two, True), [two, torch.tensor([0, 1])])  # equal for it, and moved
    assert ordered.difference.loudness is Loudness.FLUSHED
    after = wrong("nextafter", (small[:1], small[:1] * 2), small[:1] * 2)  # the second where both are equal
    assert after.difference.loudness is Loudness.FLUSHED


def test_a_cast_of_what_an_integer_cannot_hold_is_nobodys_fault() -> None:
    large = torch.tensor([1e30, float("nan"), 7.5])
    found = torch.tensor([2**31 - 1, 0, 7], dtype=torch.int32)
    assert compared("_to_copy", (large, torch.int32), found) is None
    assert compared("_to_copy", (large, torch.int32), torch.tensor([0, 0, 8], dtype=torch.int32)) is not None


def test_the_programs_random_numbers_stay_as_they_are(x: torch.Tensor) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    compared("native_layer_norm", (x, [60], None, None, 1e-5), [x, x, x])  # asks for the condition, too
    assert torch.equal(torch.get_rng_state(), before)


def test_operators_of_mps_alone_are_computed_by_others(x: torch.Tensor) -> None:
    weight, gradient = torch.randn(7, 60), torch.randn(40, 7)
    found = [gradient @ weight, gradient.t() @ x, gradient.sum(0)]
    assert compared("linear_backward", (x, gradient, weight, [True, True, True]), found) is None
    found[1] = found[1] + 0.1
    assert compared("linear_backward", (x, gradient, weight, [True, True, True]), found) is not None
    heads = x.reshape(1, 4, 10, 60)
    plain = aten._scaled_dot_product_attention_math(heads, heads, heads)[0]
    arguments = (heads, heads, heads, None, 0.0, False, None)
    assert compared("_scaled_dot_product_attention_math_for_mps", arguments, plain) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bernoulli_.float", RANDOM),
        ("native_dropout", RANDOM),
        ("randn", RANDOM),
        ("empty_like", UNINITIALISED),
        ("new_empty", UNINITIALISED),
        ("_lstm_mps", NO_KERNEL),
    ],
)
def test_what_is_left_out_has_a_reason(name: str, reason: str) -> None:
    base, _, overload = name.partition(".")
    assert operation(f"aten::{base}", overload).reason == reason


@pytest.mark.parametrize(("times", "column", "is_wrong"), [(1.99, 4, False), (2.01, 4, True), (1.0, 5, True)])
@pytest.mark.parametrize("cpu_is_off", [0.5, -0.5])
def test_twice_the_error_of_the_cpu_is_allowed(
    x: torch.Tensor, times: float, column: int, is_wrong: bool, cpu_is_off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the CPU's own kernel of the dtype is off, another may be off twice as far, at that element alone."""
    exact = x.double() @ x.t().double()

    def computing(known: Operation, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        fresh, written = compute(known, arguments)
        if fresh[0].dtype is torch.float32:  # not widened
            fresh[0][3, column] = exact[3, column] + cpu_is_off
        return fresh, written

    monkeypatch.setattr(_comparing, "compute", computing)
    found = x @ x.t()
    found[3, 4] = exact[3, 4] + times * 0.5
    wrong = compared("mm", (x, x.t()), found)
    assert (wrong is not None) == is_wrong
    if wrong is not None:
        assert (wrong.difference.index, wrong.difference.wrong) == ((3, 4), 1)
        if column == 4:
            assert wrong.difference.allowed == pytest.approx(1.0, rel=1e-2)  # and the bound of the sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_step_is_judged_by_how_far_it_goes(dtype: torch.dtype) -> None:
    """A parameter that stays where it was is wrong at any learning rate that moves it."""
    generator = torch.Generator().manual_seed(3)
    p = (torch.randn(200, generator=generator) / 50).to(dtype)
    gradient = torch.randn(200, generator=generator).to(dtype)
    moments = [torch.randn(200, generator=generator).to(dtype) / 10, torch.rand(200, generator=generator).to(dtype)]
    rate = 1e-6 if dtype is torch.float32 else 1e-3
    call = ([p], [gradient], [moments[0]], [moments[1]], [], [torch.tensor(7.0)], rate, 0.9, 0.999, 0.01, 1e-8)
    call = (*call, False, False)
    known = operation("aten::_fused_adamw_", "")
    _, stepped = compute(known, same_arguments(known, (*call, None, None)))
    assert not torch.equal(stepped[0], p)
    assert compared("_fused_adamw_", call, stepped) is None
    told = wrong("_fused_adamw_", call, [p, *stepped[1:]])
    assert told.place == 0
    if dtype is torch.float32:
        assert told.difference.share > 0.7  # the others' moments are nearly 0
        assert told.bound.words == "2.4e-07 times the number before the float32 step, and 3e-05 times its change"
    still = wrong("_fused_adamw_", call, [*stepped[:3], moments[1]])
    assert still.place == 3


def test_memory_that_a_step_has_not_set_is_no_scale() -> None:
    """The first step of a momentum writes its buffer, whatever was there."""
    p, gradient = torch.ones(3), torch.tensor([1.0, 2.0, 3.0])
    unset = torch.tensor([torch.nan, torch.inf, 0.0])
    call = ([p], [gradient], [unset], 0.0, 0.9, 0.1, 0.0, False, False, True)
    right = [p - 0.1 * gradient, gradient, gradient]
    assert compared("_fused_sgd_", call, right) is None
    told = wrong("_fused_sgd_", call, [*right[:2], gradient * (1 + 1e-4)])
    assert (told.place, told.difference.wrong) == (2, 3)


def test_a_stable_sort_keeps_the_order_of_equal_numbers() -> None:
    tied = torch.tensor([1.0, 0.0, 1.0, 0.0])
    ordered = torch.tensor([0.0, 0.0, 1.0, 1.0])
    other = torch.tensor([3, 1, 0, 2])
    assert compared("sort", (tied,), [ordered, other]) is None
    assert compared("sort.stable", (tied, False), [ordered, other]) is None
    assert compared("sort.stable", (tied, True), [ordered, torch.tensor([1, 3, 0, 2])]) is None
    assert compared("argsort.stable", (tied, True), torch.tensor([1, 3, 0, 2])) is None
    told = wrong("sort.stable", (tied, True), [ordered, other])
    assert (told.place, told.difference.wrong) == (1, 2)
    assert compared("argsort.stable", (tied, True), other) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "native_layer_norm"])
def test_half_precision_is_added_up_in_float32(x: torch.Tensor, name: str, dtype: torch.dtype) -> None:
    """A result may be rounded to the half, and no more: one that is off by two units is wrong."""
    half = x.to(dtype)
    call: tuple[Any, ...] = (half, [60], None, None, 1e-5) if name == "native_layer_norm" else (half, [1])
    known = operation(f"aten::{name.partition('.')[0]}", name.partition(".")[2])
    rest = [said.default_value for said in known.arguments[len(call) :]]
    wide, _ = compute(known, (half.float(), *call[1:], *rest))
    right = [result.to(dtype) for result in wide]
    assert compared(name, call, right) is None
    off = [right[0] * (1 + 4 * torch.finfo(dtype).eps), *right[1:]]
    told = wrong(name, call, off)
    assert told.difference.share > 0.9


def test_a_graph_of_apples_may_add_up_in_half_precision() -> None:
    """How MPSGraph rounds is not public."""
    numbers = torch.full((64,), 0.1, dtype=torch.float16)
    off = (numbers.float().sum() * (1 + 2**-8)).half()
    known = operation("aten::sum", "")
    by = [Comparison(known, (numbers, None), [off], mpsgraph=graph).wrong() is None for graph in (False, True)]
    assert by == [False, True]


def test_a_cross_product_is_two_products(x: torch.Tensor) -> None:
    """Along any axis, also where they cancel."""
    one, other = torch.randn(2, 5000, 3, generator=torch.Generator().manual_seed(4))
    found = torch.linalg.cross(one, other)
    assert compared("linalg_cross", (one, other), found) is None
    assert compared("linalg_cross", (one.t(), other.t(), 0), found.t()) is None
    near = one + 1e-4 * other
    assert compared("linalg_cross", (one, near), torch.linalg.cross(one, near)) is None
    told = wrong("linalg_cross", (one, other), found * (1 + 2**-16))
    assert told.difference.share > 0.9


def test_functions_of_subnormal_numbers_are_metals_own() -> None:
    """This machine's may take them otherwise: they are not judged. Zeros for them are noted, all else is judged."""
    x = torch.tensor([1e-40, 2.0, 3.0])
    known = operation("aten::log", "")

    def judged(found: list[float], by_host: bool = True) -> Wrong | None:
        return Comparison(known, (x,), [torch.tensor(found)], mpsgraph=False, by_host=by_host).wrong()

    right = x.log().tolist()
    assert judged([-103.972, *right[1:]]) is None
    flushed = judged([-torch.inf, *right[1:]])
    assert flushed is not None
    assert flushed.difference.loudness is Loudness.FLUSHED
    wrong = judged([-103.972, right[1], 1.0])
    assert wrong is not None
    assert (wrong.difference.wrong, wrong.difference.index) == (1, (2,))
    pole = Comparison(operation("aten::digamma", ""), (x[:1],), [x[:1] * torch.nan], mpsgraph=False, by_host=True)
    assert pole.wrong() is None
    elsewhere = judged([-103.972, *right[1:]], by_host=False)
    assert elsewhere is not None
    assert elsewhere.difference.loudness is Loudness.NUMBER


@pytest.mark.parametrize("upper", [False, True])
def test_rounding_decides_whether_a_factorisation_ends(upper: bool) -> None:
    """Where the smallest eigenvalue is lost in rounding, both ends are right; elsewhere they are not."""
    counted = torch.arange(8.0)
    hilbert = 1 / (counted[:, None] + counted + 1)
    factor = torch.linalg.cholesky(hilbert.double(), upper=upper).float()
    broken = factor.clone()
    broken[7, 7] = 0.07
    both = torch.stack((hilbert, torch.eye(8)))
    right = torch.stack((broken, torch.eye(8)))
    ends = torch.tensor([8, 0], dtype=torch.int32)
    assert compared("linalg_cholesky_ex", (both, upper), [right, ends]) is None
    told = wrong("linalg_cholesky_ex", (both, upper), [right, ends.flip(0)])
    assert (told.place, told.difference.index) == (1, (1,))
    wrong("linalg_cholesky_ex", (both, upper), [right, ends - 5 * (ends > 0)])
    negative = -torch.eye(3)
    assert compared("linalg_cholesky_ex", (negative,), [negative, torch.tensor(0, dtype=torch.int32)]) is not None


@pytest.mark.parametrize(("name", "base"), [("log", torch.e), ("log2", 2.0), ("log10", 10.0)])
def test_the_logarithm_of_a_length_near_one(name: str, base: float) -> None:
    """It is off by the share by which the length is."""
    generator = torch.Generator().manual_seed(5)
    z = torch.complex(1 + torch.randn(2000, generator=generator) / 1e4, torch.randn(2000, generator=generator) / 1e4)
    scale = torch.tensor(base).log()
    found = torch.complex(z.abs().log() / scale, z.angle() / scale)
    assert compared(name, (z,), found) is None
    told = wrong(name, (z,), found + 2e-6)
    assert told.difference.wrong == 2000
