"""A number of Python beside a tensor on mps: the same bits as on the CPU, without a cast that is four operators."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from device.compare import values

pytestmark = pytest.mark.usefixtures("mps_device")

OPERATIONS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv),
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv),
)
NUMBERS = (0.1, -3, 2**53 + 1, 1e300, -0.0, float("inf"), float("nan"), True, 1 + 2j)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.complex64])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_the_same_bits(
    operation: Callable[[torch.Tensor, complex], torch.Tensor], number: complex, dtype: torch.dtype
) -> None:
    """Results and dtypes are the CPU's, of tensors of any rank; what the CPU refuses is refused."""
    for shape in ((3, 4), ()):
        host = values(*shape).to(dtype)
        device = host.to("mps")
        try:
            expected = operation(host.clone(), number)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                operation(device, number)
            continue
        answer = operation(device, number).cpu()
        assert (answer.dtype, answer.shape) == (expected.dtype, expected.shape)
        if answer.dtype is torch.complex32:  # which torch cannot compare
            answer, expected = answer.to(torch.complex64), expected.to(torch.complex64)
        torch.testing.assert_close(answer, expected, rtol=0, atol=0, equal_nan=True)


def test_a_tensor_of_float64_is_no_number() -> None:
    """A 0-dim CPU tensor of float64 decides the dtype beside a 0-dim one of float32, which mps refuses."""
    with pytest.raises(TypeError, match="float64"):
        torch.mul(torch.ones((), device="mps"), torch.tensor(2.0, dtype=torch.float64))
    assert (torch.ones(2, device="mps") * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32


def test_each_thread_has_its_own_number() -> None:
    """Threads that calculate with different numbers do not see each other's."""
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.ones(4, device="mps")
        wrong.extend(number for _ in range(300) if (x * number).tolist() != [float(number)] * 4)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle:UserWarning")
def test_nothing_is_cast_by_an_operator() -> None:
    """The arithmetic of an optimizer's step runs no operator within it."""
    x = torch.ones(4, device="mps")
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x.mul_(0.5).add_(1e-8)
        x / 3.0
        x - 2
    names = [event.name for event in profiled.events() if event.name.startswith("aten::")]
    assert names == ["aten::mul_", "aten::add_", "aten::div", "aten::sub"]
