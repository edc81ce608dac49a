"""Copies with non_blocking=True: values, waits, what is noted of their host side, and values held back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import anymps
from anymps.device import native
from anymps.record import Recording, Wait

# What writing one element of a CPU tensor calls: torch 2.15 passes the number on as it is.
FILL = "aten::fill_.Scalar" if torch.__version__ >= "2.15" else "aten::fill_.Tensor"
pytestmark = pytest.mark.usefixtures("virtual_device")

Noted = list[tuple[str, str, str, str]]


def noted(script: Callable[[], object]) -> Noted:
    """What a recording of `script` says of its copies: the rule, the operator, and the text of line and copy."""
    with anymps.record() as capture:
        result = script()
    del result
    return [
        (unsafe.kind, unsafe.operator, unsafe.site.source, unsafe.copy.source)
        for unsafe in capture.recording.unsafe_copies()
        if unsafe.kind != "freed"  # of torch 2.12 and before: tested by itself
    ]


def recorded(script: Callable[[], object]) -> Recording:
    """The recording of `script`."""
    with anymps.record() as capture:
        script()
    return capture.recording


@pytest.fixture
def strict(virtual_device: torch.device) -> Iterator[None]:
    """Copies to the CPU arrive at the next wait only."""
    native().hold_back_copies(True)
    yield
    native().hold_back_copies(False)
    torch.mps.synchronize()


WRITES: dict[str, tuple[Callable[[torch.Tensor], object], str, str]] = {
    "zero": (lambda x: x.zero_(), "aten::zero_", "zero_"),
    "setitem": (lambda x: x.__setitem__(0, 7.0), FILL, "__setitem__"),
    "out": (lambda x: torch.add(x, 1, out=x), "aten::add.out", "out=x"),
    "view": (lambda x: x.view(-1)[3:].mul_(2), "aten::mul_.Tensor", "mul_"),
    "foreach": (lambda x: torch._foreach_add_([x], 1.0), "aten::_foreach_add_.Scalar", "_foreach_add_"),
    "numpy": (lambda x: x.numpy().__setitem__((0, 0), 7.0), "", "y = x.to("),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_changed_source_is_noted_with_both_lines(how: str) -> None:
    """It stands at the operator that changed the source, or at the copy where no operator of torch did."""
    write, operator, place = WRITES[how]

    def script() -> object:
        x = torch.ones(4, 4)
        y = x.to("mps", non_blocking=True)
        write(x)
        torch.mps.synchronize()
        assert y.sum() == 16
        return x

    ((kind, call, line, copy),) = noted(script)
    assert (kind, call, copy) == ("changed", operator, 'y = x.to("mps", non_blocking=True)')
    assert place in line


def test_the_wait_that_came_too_late_is_named() -> None:
    """The note of a changed source holds the line of the next wait."""

    def script() -> None:
        x = torch.ones(4)
        y = x.to("mps", non_blocking=True)
        x.add_(1)
        y.sum().item()  # waits

    (unsafe,) = recorded(script).unsafe_copies()
    assert unsafe.wait.source == "y.sum().item()  # waits"
    assert (unsafe.site.source, unsafe.count) == ("x.add_(1)", 1)


READS: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "sum": (lambda x: x.sum(), "aten::sum"),
    "item": (lambda x: x[0, 0].item(), "aten::item"),
    "tolist": (lambda x: x.tolist(), "torch.Tensor.tolist"),
    "print": (repr, ""),
    "numpy": (lambda x: x.numpy(), "torch.Tensor.numpy"),
    "asarray": (np.asarray, "torch.Tensor.numpy"),
    "clone": (lambda x: x.clone(), "aten::clone"),
    "list": (lambda x: torch.cat([torch.ones(1, 4), x]), "aten::cat"),
    "write": (lambda x: x.zero_(), "aten::zero_"),
    "cast to mps": (lambda x: x.to("mps", torch.float16), "aten::copy_"),
    "compare": (lambda x: bool((x == 1).all()), "aten::eq.Scalar"),
}


@pytest.mark.parametrize("how", READS)
def test_a_result_used_early_is_noted_with_both_lines(how: str) -> None:
    """A use stands at the first use of the result, by an operator or by numpy, and names the copy."""
    read, operator = READS[how]

    def script() -> None:
        y = torch.ones(4, 4, device="mps")
        x = y.to("cpu", non_blocking=True)
        read(x)

    ((kind, call, _, copy),) = noted(script)
    assert (kind, copy) == ("used", 'x = y.to("cpu", non_blocking=True)')
    assert call.startswith(operator)


def prefetch() -> None:
    """A loop that waits through `.item()` before it reuses its staging buffer."""
    staging = torch.empty(8)
    for i in range(4):
        staging.fill_(i)
        batch = staging.to("mps", non_blocking=True)
        assert batch.sum().item() == 8 * i


def dropped() -> None:
    """Batches that are dropped and never changed, without a wait."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(20, 4)), batch_size=4)
    total = torch.zeros((), device="mps")
    for (x,) in loader:
        total += x.to("mps", non_blocking=True).sum()
    total.item()


def moved_model() -> None:
    """A model moved there and back, used after a wait."""
    model = torch.nn.Linear(4, 4).to("mps", non_blocking=True)
    model(torch.rand(2, 4).to("mps", non_blocking=True)).sum().backward()
    model.to("cpu", non_blocking=True)
    torch.mps.synchronize()
    model(torch.rand(2, 4))


def by_event() -> None:
    """A result used after an event that was recorded behind the copy."""
    event = torch.mps.Event()
    x = torch.ones(4, device="mps").to("cpu", non_blocking=True)
    event.record()
    event.synchronize()
    x.sum()


def there_and_back() -> None:
    """A result that goes back to the device, and a buffer that is source and target in turn."""
    y = torch.ones(4, device="mps")
    x = y.to("cpu", non_blocking=True)
    z = x.to("mps", non_blocking=True)
    x.copy_(z * 2, non_blocking=True)
    torch.mps.synchronize()
    assert x.tolist() == [2.0] * 4
    y.copy_(x, non_blocking=True)
    x.copy_(z)
    assert x.tolist() == [1.0] * 4


def shapes_only() -> None:
    """Looking at a result's shape, and views of it."""
    x = torch.ones(4, 4, device="mps").to("cpu", non_blocking=True)
    torch.empty_like(x)
    x.new_zeros(x.shape)
    assert x.view(16)[2:].size(0) == 14
    assert x.t().is_contiguous() is False
    x.detach().unsqueeze(0).requires_grad_()


def cast_on_the_way() -> None:
    """A copy to mps that casts has read its source on the CPU."""
    x = torch.ones(4)
    y = x.to("mps", torch.float16, non_blocking=True)
    x.zero_()
    assert y.sum().item() == 4


def other_strides() -> None:
    """A copy between different strides waits."""
    x = torch.ones(4, 6)
    y = x[:, ::2].to("mps", non_blocking=True)
    x.zero_()
    assert y.sum().item() == 12


def within_the_device() -> None:
    """Copies within a device, and those that are none."""
    y = torch.ones(4, device="mps")
    z = y.to(torch.float16, non_blocking=True)
    assert y.to("mps", non_blocking=True) is y
    x = torch.ones(4)
    assert x.to("cpu", non_blocking=True) is x
    x.zero_()
    y.zero_()
    z.zero_()


@pytest.mark.parametrize(
    "script",
    [prefetch, dropped, moved_model, by_event, there_and_back, shapes_only, cast_on_the_way, other_strides,
     within_the_device],
)  # fmt: skip
def test_right_programs_are_left_alone(script: Callable[[], None]) -> None:
    """Programs that wait before they touch the host's side have nothing noted."""
    assert noted(script) == []


def test_an_event_covers_the_copies_before_its_record_only() -> None:
    """A copy that starts after `record` is not waited for by the event."""

    def script() -> None:
        event = torch.mps.Event()
        event.record()
        x = torch.ones(4, device="mps").to("cpu", non_blocking=True)
        event.synchronize()
        x.sum()

    assert [kind for kind, *_ in noted(script)] == ["used"]


def test_a_freed_source_is_noted() -> None:
    """The source of a copy that nobody holds at the next wait is noted: a fault up to torch 2.12."""

    def script() -> None:
        kept = torch.ones(4)
        kept.to("mps", non_blocking=True)
        torch.ones(4).to("mps", non_blocking=True)  # freed
        torch.mps.synchronize()

    (unsafe,) = recorded(script).unsafe_copies()
    assert (unsafe.kind, unsafe.site.source) == (
        "freed",
        'torch.ones(4).to("mps", non_blocking=True)  # freed',
    )


def test_a_copy_between_different_strides_is_recorded_as_a_wait() -> None:
    """`non_blocking=True` between different strides waits for the device; between equal ones it does not."""

    def script() -> None:
        x = torch.ones(4, 6)
        x.to("mps", non_blocking=True)
        x[:, ::2].to("mps", non_blocking=True)  # waits

    waits = recorded(script).waits()
    assert [(wait.wait, wait.site.source) for wait in waits] == [
        (Wait.COPY_TO_MPS, 'x[:, ::2].to("mps", non_blocking=True)  # waits')
    ]


def test_nothing_is_left_behind() -> None:
    """The methods of Tensor are torch's own throughout, and without a recording nothing is watched."""
    y = torch.ones(4, device="mps")
    x = y.to("cpu", non_blocking=True)
    assert x.tolist() == [1.0] * 4

    def script() -> None:
        copied = y.to("cpu", non_blocking=True)
        assert not {"numpy", "tolist"} & vars(torch.Tensor).keys()
        torch.mps.synchronize()
        assert copied.numpy().tolist() == [1.0] * 4

    assert noted(script) == []
    noted(lambda: y.to("cpu", non_blocking=True))
    assert x.tolist() == [1.0] * 4


def test_a_programs_own_methods_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it has put into Tensor, while a copy is under way too; they stay, and what they read is noted."""
    called = []

    def own(name: str) -> Callable[..., object]:
        torchs = getattr(torch.Tensor, name)

        def method(self: torch.Tensor) -> object:
            called.append(name)
            return torchs(self)

        return method

    methods = {name: own(name) for name in ("numpy", "tolist")}
    for name, method in methods.items():
        monkeypatch.setattr(torch.Tensor, name, method)

    def script() -> None:
        x = torch.ones(4, device="mps").to("cpu", non_blocking=True)
        x.tolist()
        torch.mps.synchronize()
        x.numpy()

    assert [(kind, operator) for kind, operator, *_ in noted(script)] == [("used", "torch.Tensor.tolist")]
    assert called == ["tolist", "numpy"]
    assert {name: vars(torch.Tensor)[name] for name in methods} == methods


def test_the_oldest_sources_are_let_go() -> None:
    """A loop that never waits holds no more than 256 MiB of sources, and a change is still found."""

    def script() -> None:
        first = torch.zeros(1)
        first.to("mps", non_blocking=True)
        first.add_(1)
        for _ in range(3):
            torch.zeros(40 << 20).to("mps", non_blocking=True)  # 160 MiB

    assert [kind for kind, *_ in noted(script)] == ["changed"]


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    ("dtype", "early"),
    [
        (torch.float32, None),
        (torch.float16, None),
        (torch.bfloat16, None),
        (torch.complex64, None),
        (torch.int64, -6510615555426900571),
        (torch.int32, -1515870811),
        (torch.int8, -91),
        (torch.uint8, 0x5A),
        (torch.bool, 0),
    ],
)
def test_strict_copies_arrive_at_the_next_wait(dtype: torch.dtype, early: int | None) -> None:
    """Until the host waits a result holds what nobody can take for a value; then it holds the values."""
    y = torch.ones(2, 3, device="mps").to(dtype)
    x = y.to("cpu", non_blocking=True)
    if early is None:
        assert torch.isnan(x).all()
    else:
        assert x.flatten().tolist() == [early] * 6
    torch.mps.synchronize()
    assert torch.equal(x, torch.ones(2, 3, dtype=dtype))


@pytest.mark.usefixtures("strict")
def test_strict_copies_into_a_view_leave_the_rest_alone() -> None:
    """A strict copy into every second element spoils and fills those only."""
    x = torch.zeros(6)
    x[::2].copy_(torch.ones(3, device="mps"), non_blocking=True)
    assert torch.isnan(x[::2]).all()
    assert x[1::2].tolist() == [0.0] * 3
    torch.mps.synchronize()
    assert x.tolist() == [1.0, 0.0] * 3
