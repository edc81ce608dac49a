"""What mps refuses: float64 everywhere, 17 dimensions, foreign layouts, tensors on two devices, NumPy conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from anymps.rules import Family, family
from anymps.rules.texts import (
    SAME_GPU_CHECKS,
    devices_differ,
    float64_allocation,
    linear_argument,
    numpy_of,
    sparse_argument,
    tensor_on_cpu,
    too_many_cpu_scalars,
)
from device.compare import assert_same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
WIDE = torch.float64

FLOAT64: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(2, dtype=WIDE, device="mps"),
    "empty": lambda: torch.empty(2, dtype=WIDE, device="mps"),
    "empty of nothing": lambda: torch.empty(0, dtype=WIDE, device="mps"),
    "empty_strided": lambda: torch.empty_strided((2,), (1,), dtype=WIDE, device="mps"),
    "arange": lambda: torch.arange(3, dtype=WIDE, device="mps"),
    "randn": lambda: torch.randn(2, dtype=WIDE, device="mps"),
    "tensor": lambda: torch.tensor([1.0], dtype=WIDE, device="mps"),
    "tensor of an array": lambda: torch.tensor(np.array([1.0]), device="mps"),
    "asarray of an array": lambda: torch.asarray(np.zeros(2), device="mps"),
    "from_numpy to": lambda: torch.from_numpy(np.zeros(2)).to("mps"),
    "to device": lambda: torch.ones(2, dtype=WIDE).to("mps"),
    "to dtype": lambda: torch.ones(2, device="mps").to(WIDE),
    "double": lambda: torch.ones(2, device="mps").double(),
    "like": lambda: torch.zeros_like(torch.ones(2, device="mps"), dtype=WIDE),
    "new_zeros": lambda: torch.ones(2, device="mps").new_zeros(2, dtype=WIDE),
    "module to": lambda: nn.Linear(2, 2).double().to("mps"),
    "module made": lambda: nn.Linear(2, 2, device="mps", dtype=WIDE),
    "sum": lambda: torch.ones(2, device="mps").sum(dtype=WIDE),
    "cumsum": lambda: torch.ones(2, device="mps").cumsum(0, dtype=WIDE),
    "promotion of integers": lambda: torch.add(torch.arange(2, device="mps"), torch.tensor(1.0, dtype=WIDE)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FLOAT64))
def test_float64_is_refused_in_the_backends_words(name: str) -> None:
    """Every way to a float64 mps tensor raises the TypeError of the allocation."""
    assert text_of(TypeError, FLOAT64[name]) == float64_allocation().text


def test_complex128_is_refused_where_the_release_does() -> None:
    """empty refuses complex128 from torch 2.12 with the float64 text; empty_strided never looks."""
    if RELEASE < (2, 12):
        assert torch.complex128 == torch.empty(1, dtype=torch.complex128, device="mps").dtype
    else:
        assert text_of(TypeError, torch.empty, 1, dtype=torch.complex128, device="mps") == float64_allocation().text
        assert text_of(TypeError, torch.zeros, 1, dtype=torch.complex128, device="mps") == float64_allocation().text
    assert torch.complex128 == torch.empty_strided((1,), (1,), dtype=torch.complex128, device="mps").dtype


def test_where_float64_is_no_problem() -> None:
    """Python floats, NumPy scalars and 0-dim float64 CPU tensors beside float32 stay float32."""
    x = torch.ones(2, device="mps")
    for y in (x + 1.0, x * np.float64(2), x + torch.tensor(2.0, dtype=WIDE), torch.where(x > 0, x, 1.0), x**2.5):
        assert torch.float32 == y.dtype
    assert_same(torch.ones(2, dtype=torch.int64, device="mps") * 2.5, torch.full((2,), 2.5))
    assert_same(torch.tensor(np.array([1.0]), dtype=torch.float32, device="mps"), torch.ones(1))


def test_a_refused_move_leaves_the_module_as_far_as_it_came() -> None:
    """A module with one float64 buffer raises, and the tensors that had been moved are on mps."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    assert text_of(TypeError, module.to, "mps") == float64_allocation().text
    assert module[0].weight.is_mps
    assert module[1].weight.device.type == "cpu"


def test_more_than_16_dimensions() -> None:
    """Factories refuse 17 dimensions; empty_strided and views do not look."""
    shape = [1] * 17
    for factory in (torch.empty, torch.zeros, torch.ones, torch.rand):
        text = text_of(RuntimeError, factory, shape, device="mps")
        assert text == "MPS supports tensors with dimensions <= 16, but got 17."
    assert 16 == torch.zeros([1] * 16, device="mps").dim()
    assert 17 == torch.empty_strided(shape, shape, device="mps").dim()
    assert 17 == torch.zeros(1, device="mps").view(shape).dim()


def test_negative_sizes() -> None:
    """A negative size raises torch's text."""
    text = text_of(RuntimeError, torch.empty, (2, -1), device="mps")
    assert text == "Trying to create tensor with negative dimension -1: [2, -1]"


def test_items_of_empty_tensors() -> None:
    """item() of nothing raises; of many too."""
    text = text_of(RuntimeError, torch.ops.aten._local_scalar_dense, torch.empty(0, device="mps"))
    assert text == "_local_scalar_dense: Empty tensor not supported"
    text = text_of(RuntimeError, torch.ones(2, device="mps").item)
    assert text == "a Tensor with 2 elements cannot be converted to Scalar"
    assert text_of(RuntimeError, lambda: bool(torch.ones(2, device="mps"))) == text_of(
        RuntimeError, lambda: bool(torch.ones(2))
    )


def test_numpy_and_its_functions() -> None:
    """numpy(), np.asarray and ufuncs of an mps tensor raise TypeError with the way out."""
    x = torch.ones(2, device="mps")
    for call in (x.numpy, lambda: np.asarray(x), lambda: np.sin(x)):
        assert text_of(TypeError, call) == numpy_of("mps:0").text
    assert text_of(TypeError, torch.ones(2, device="mps", requires_grad=True).numpy) == numpy_of("mps:0").text


def there(*shape: int) -> torch.Tensor:
    return values(*shape).to("mps")


here = values

FOREIGN: dict[str, tuple[str, Callable[[], Any]]] = {
    "add": ("add.Tensor", lambda: there(2) + here(2)),
    "add cpu first": ("add.Tensor", lambda: here(2) + there(2)),
    "add 0-dim mps": ("add.Tensor", lambda: here(2) + there(2)[0]),
    "in place": ("add.Tensor", lambda: there(2).add_(here(2))),
    "comparison": ("eq.Tensor", lambda: there(2) == here(2)),
    "where": ("where.self", lambda: torch.where(there(2) > 0, there(2), here(2))),
    "mse_loss": ("mse_loss", lambda: F.mse_loss(there(2), here(2))),
    "lerp": ("lerp.Tensor", lambda: torch.lerp(there(2), here(2), 0.5)),
    "embedding": ("index_select", lambda: F.embedding(torch.tensor([0]), there(2, 2))),
    "index_select": ("index_select", lambda: there(2, 2).index_select(0, torch.tensor([0]))),
    "gather": ("gather", lambda: there(2, 2).gather(1, torch.zeros(2, 1, dtype=torch.int64))),
    "bmm": ("bmm", lambda: torch.bmm(there(1, 2, 2), here(1, 2, 2))),
    "baddbmm": ("baddbmm", lambda: torch.baddbmm(there(1, 2, 2), here(1, 2, 2), there(1, 2, 2))),
    "addmv": ("addmv", lambda: torch.addmv(there(2), here(2, 2), there(2))),
    "cat": ("cat", lambda: torch.cat([there(2), here(2)])),
    "batch_norm": ("_native_batch_norm_legit", lambda: F.batch_norm(there(2, 2), None, None, here(2), here(2), True)),
    "layer_norm": ("native_layer_norm", lambda: F.layer_norm(there(2, 2), (2,), here(2))),
    "dot": ("dot", lambda: torch.dot(there(2), here(2))),
    "searchsorted": ("searchsorted.Tensor", lambda: torch.searchsorted(there(2), here(2))),
    "masked_fill": ("masked_fill_.Scalar", lambda: there(2).masked_fill_(here(2) > 0, 0.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FOREIGN))
def test_tensors_on_two_devices_get_the_text_of_their_family(name: str) -> None:
    """A CPU tensor among mps tensors raises the RuntimeError of the operator's kind of kernel."""
    operator, call = FOREIGN[name]
    kind = family(operator, torch.__version__)
    places = {
        Family.ITERATOR: ("mps:0", "cpu"),
        Family.DOT: ("mps:0", "cpu"),
        Family.MASKED_FILL: ("cpu", "mps:0"),
    }.get(kind, ())
    assert text_of(RuntimeError, call) == devices_differ(kind, *places).text


@pytest.mark.parametrize("on_cpu", ["mat1", "mat2"])
@pytest.mark.parametrize("name", ["mm", "addmm"])
def test_matrix_products_on_two_devices(name: str, on_cpu: str) -> None:
    """mm and addmm name the argument, its number and the function that looked."""
    factors = {which: here(2, 2) if which == on_cpu else there(2, 2) for which in ("mat1", "mat2")}
    first = [there(2, 2)] if name == "addmm" else []
    wrong = ["out", on_cpu] if name == "mm" and on_cpu == "mat1" else [on_cpu]
    text = tensor_on_cpu(SAME_GPU_CHECKS[name], wrong)
    assert text is not None
    assert text_of(RuntimeError, getattr(torch, name), *first, *factors.values()) == text.text


@pytest.mark.parametrize("on_cpu", ["input", "weight", "bias"])
def test_linear_on_two_devices(on_cpu: str) -> None:
    """linear names the argument that is on the CPU."""
    arguments = {"input": (3, 2), "weight": (4, 2), "bias": (4,)}
    tensors = [here(*shape) if name == on_cpu else there(*shape) for name, shape in arguments.items()]
    assert text_of(RuntimeError, F.linear, *tensors) == linear_argument(on_cpu, "cpu").text


def test_zero_dimensional_cpu_tensors_are_numbers() -> None:
    """One 0-dim CPU tensor may stand among the mps tensors of an element-wise operator; two may not."""
    x, number = there(2), torch.tensor(3.0)
    assert_same(x + number, here(2) + 3)
    assert_same(number * x, here(2) * 3)
    assert_same(x > number, here(2) > 3)
    assert_same(x // number, here(2) // 3)
    assert_same(torch.where(x > 0, x, number), torch.where(here(2) > 0, here(2), number))
    assert_same(x.clone().mul_(number), here(2) * 3)
    assert_same(x.masked_fill(x > 0, number), here(2).masked_fill(here(2) > 0, 3.0))
    assert text_of(RuntimeError, torch.addcmul, x, number, number) == too_many_cpu_scalars().text


def test_operators_hide_a_type_error() -> None:
    """`+` turns the TypeError of a float64 result into Python's own, as its wrapper does with every TypeError."""
    integers, number = torch.ones(2, dtype=torch.int64, device="mps"), torch.tensor(1.0, dtype=WIDE)
    text = text_of(TypeError, lambda: integers + number)
    assert text == "unsupported operand type(s) for +: 'Tensor' and 'Tensor'"


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_sparse_tensors_on_two_devices() -> None:
    """A CPU tensor beside a sparse mps tensor is named."""
    x = torch.eye(2).to_sparse().to("mps")
    text = text_of(RuntimeError, lambda: x + torch.eye(2).to_sparse())
    assert text == sparse_argument("add", "other", "cpu").text


def test_out_on_another_device() -> None:
    """out= on the CPU for mps inputs raises."""
    with pytest.raises(RuntimeError):
        torch.add(there(2), there(2), out=torch.empty(2))
    with pytest.raises(RuntimeError):
        torch.mm(there(2, 2), there(2, 2), out=torch.empty(2, 2))


def test_quantized_tensors_have_no_kernels() -> None:
    """quantize_per_tensor on mps is missing."""
    text = text_of(NotImplementedError, torch.quantize_per_tensor, there(2), 0.1, 0, torch.qint8)
    assert text.startswith("The operator 'aten::quantize_per_tensor' is not currently implemented for the MPS device.")


def test_scaled_products_take_one_float8() -> None:
    """From torch 2.15 on scaled_mm multiplies float8_e4m3fn and refuses any other; before, there is no kernel."""
    ones = torch.ones(16, 16)
    scale = torch.ones((), device="mps")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = ones.to(dtype).to("mps")

        def multiply(x: torch.Tensor = x) -> torch.Tensor:
            how = torch.nn.functional.ScalingType.TensorWise
            return torch.nn.functional.scaled_mm(x, x.t(), scale, how, scale, how, output_dtype=torch.bfloat16)

        if RELEASE < (2, 15):
            with pytest.raises(NotImplementedError, match="is not currently implemented for the MPS device"):
                multiply()
        elif dtype == torch.float8_e4m3fn:
            assert_same(multiply(), torch.full((16, 16), 16.0, dtype=torch.bfloat16))
        else:
            assert text_of(RuntimeError, multiply) == "Expected mat_a to be Float8_e4m3fn matrix got Float8_e5m2"
