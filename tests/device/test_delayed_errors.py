"""Bad indices and values that the device finds while it runs: AcceleratorError, not at the call, at the next wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from anymps.rules import NOT_CHECKED, device_checks, installed_torch
from device.compare import needs_kernel

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = installed_torch().version.release
ROWS = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]
since_2_13 = pytest.mark.skipif(RELEASE < (2, 13), reason="up to torch 2.12 MPSGraph gathers and scatters, unchecked")


def x() -> torch.Tensor:
    return torch.tensor(ROWS, device="mps")


def ids(*numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, device="mps")


def along(*numbers: int) -> torch.Tensor:
    """The same places along dimension 1 in each row."""
    return ids(list(numbers)).repeat(3, 1)


def put(values: torch.Tensor, *, accumulate: bool = False) -> torch.Tensor:
    return x().index_put_((ids(0, 7, -1),), values, accumulate=accumulate)


ones = torch.ones
ADVANCED = (
    "index 7 is out of bounds for dimension 0 with size {}"
    if RELEASE > (2, 11)
    else "Index 7 is out of bounds: 0, range 0 to {}"
)

Case = tuple[Callable[[], torch.Tensor], str, list[Any]]
CASES: dict[str, Case] = {
    "index": (lambda: x()[ids(0, 7, -1)], ADVANCED.format(3), [ROWS[0], [0.0] * 4, ROWS[2]]),
    "index of a column": (lambda: x()[:, ids(1, 7)], ADVANCED.format(4), [[1.0, 0.0], [5.0, 0.0], [9.0, 0.0]]),
    "second index": (
        lambda: x()[ids(0, 1), ids(2, -5)],
        "index -5 is out of bounds for dimension 1 with size 4"
        if RELEASE > (2, 11)
        else "Index -5 is out of bounds: 1, range 0 to 4",
        [2.0, 0.0],
    ),
    "index_put_": (
        lambda: put(torch.tensor(5.0, device="mps")), ADVANCED.format(3), [[5.0] * 4, ROWS[1], [5.0] * 4],
    ),
    "index_put_ accumulate": (
        lambda: put(ones(3, 4, device="mps"), accumulate=True),
        ADVANCED.format(3),
        [[1.0, 2.0, 3.0, 4.0], ROWS[1], [9.0, 10.0, 11.0, 12.0]],
    ),
}  # fmt: skip
SCATTERED = "index 7 is out of bounds for dimension with size 4"
CASES_2_13: dict[str, Case] = {
    "gather": (lambda: x().gather(1, along(1, 7)), f"gather: {SCATTERED}", [[1.0, 0.0], [5.0, 0.0], [9.0, 0.0]]),
    "gather of a transposed index": (
        lambda: x().gather(1, ids([1, 1, 1], [-1, -1, -1]).t()),
        "gather: index -1 is out of bounds for dimension 1 with size 4",
        [[1.0, 0.0], [5.0, 0.0], [9.0, 0.0]],
    ),
    "gather of an expanded index": (
        lambda: x().gather(1, ids([7]).expand(3, 1)),
        "gather: index 7 is out of bounds for dimension 1 with size 4",
        [[0.0], [0.0], [0.0]],
    ),
    "scatter_ of a number": (
        lambda: x().scatter_(1, along(0, 7), 9.0), f"scatter: {SCATTERED}", [[9.0, *row[1:]] for row in ROWS],
    ),
    "scatter": (
        lambda: x().scatter(1, along(0, 7), ones(3, 2, device="mps")),
        f"scatter: {SCATTERED}",
        [[1.0, *row[1:]] for row in ROWS],
    ),
    "scatter out": (
        lambda: torch.scatter(x(), 1, along(0, 7), ones(3, 2, device="mps"), out=torch.empty(0, device="mps")),
        f"scatter: {SCATTERED}",
        [[1.0, *row[1:]] for row in ROWS],
    ),
    "scatter_add_": (
        lambda: x().scatter_add_(1, along(0, 7), ones(3, 2, device="mps")),
        f"scatter: {SCATTERED}",
        [[row[0] + 1, *row[1:]] for row in ROWS],
    ),
    "scatter_reduce": (
        lambda: x().scatter_reduce(1, along(0, 7), torch.full((3, 2), 99.0, device="mps"), "amax"),
        f"scatter: {SCATTERED}",
        [[99.0, *row[1:]] for row in ROWS],
    ),
    "one_hot": (
        lambda: F.one_hot(ids(1, 7), 4), f"scatter: {SCATTERED}", [[0, 1, 0, 0], [0, 0, 0, 0]],
    ),
}  # fmt: skip


def assert_late(case: Case) -> None:
    """Nothing is raised until a wait; then once, with the error code; a bad index reads zeros and writes nothing."""
    call, text, expected = case
    result = call()
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.mps.synchronize()
    assert (text, 1) == (str(raised.value), raised.value.error_code)
    assert expected == result.tolist()


@pytest.mark.parametrize("name", list(CASES))
def test_advanced_indexing(name: str) -> None:
    """Indexing with tensors reads zeros and writes nothing at a bad index, and the error comes late."""
    assert_late(CASES[name])


@since_2_13
@pytest.mark.parametrize("name", list(CASES_2_13))
def test_gather_and_scatter(name: str) -> None:
    """Gathers and scatters take no negative index either; contiguous tensors have a text of their own."""
    assert_late(CASES_2_13[name])


def test_embedding_bags() -> None:
    """A bag with a bad index names its position; its backward, which the device does not look at, raises at once."""
    weight = x().requires_grad_()
    bags = F.embedding_bag(ids([0, 5], [1, 2]), weight, mode="sum")
    with pytest.raises(torch.AcceleratorError) as raised:
        bags.sum().item()
    assert "Index 1 is out of bounds: 5, range 0 to 3" == str(raised.value)
    assert [ROWS[0], [12.0, 14.0, 16.0, 18.0]] == bags.tolist()
    with pytest.raises(IndexError) as refused:
        bags.sum().backward()
    assert "index 5 is out of range of 3 rows" + NOT_CHECKED.format(release="{}.{}".format(*RELEASE)) == str(
        refused.value
    )


@pytest.mark.skipif(RELEASE < (2, 12), reason="the text of torch 2.11 is not known")
def test_max_unpool() -> None:
    """A place outside the plane is left out."""
    plane = F.max_unpool2d(ones(1, 1, 2, 2, device="mps"), ids([[[0, 3], [20, 2]]]), 2)
    with pytest.raises(torch.AcceleratorError) as raised:
        plane.cpu()
    assert "Found an invalid max index: 20 (size_prod is 16)" == str(raised.value)
    assert [1.0, 0.0, 1.0, 1.0, *[0.0] * 12] == plane.flatten().tolist()


@pytest.mark.parametrize("operator", ["index_select", "index_add", "index_copy", "index_fill_", "index_reduce"])
def test_where_the_device_does_not_look(operator: str) -> None:
    """An operator without a check on the device raises at the call, and says that this is our doing."""
    _, text, _ = device_checks(torch.__version__)[operator]
    calls: dict[str, Callable[[], object]] = {
        "index_select": lambda: x().index_select(0, ids(7)),
        "index_add": lambda: x().index_add(0, ids(7), ones(1, 4, device="mps")),
        "index_copy": lambda: x().index_copy(0, ids(7), ones(1, 4, device="mps")),
        "index_fill_": lambda: x().index_fill_(0, ids(7), 1.0),
        "index_reduce": lambda: x().index_reduce(0, ids(7), ones(1, 4, device="mps"), "amax"),
    }
    if operator == "index_reduce":
        needs_kernel("index_reduce.out")
    if text:
        calls[operator]()
        with pytest.raises(torch.AcceleratorError) as late:
            torch.mps.synchronize()
        assert "index 7 is out of bounds for dimension with size 3" == str(late.value)
        return
    with pytest.raises((IndexError, RuntimeError)) as raised:
        calls[operator]()
    assert str(raised.value).endswith(NOT_CHECKED.format(release="{}.{}".format(*RELEASE)))


@pytest.mark.skipif(RELEASE < (2, 13), reason="up to torch 2.12 an assertion is read back at once")
def test_assertions() -> None:
    """torch._assert_async waits for nothing; its message is what the next wait says, or nothing."""
    zero = torch.zeros(1, device="mps")
    for call, text in (
        (lambda: torch._assert_async(zero, "must not be 0"), "must not be 0"),
        (lambda: torch._assert_async(zero), ""),
    ):
        call()
        with pytest.raises(torch.AcceleratorError) as raised:
            torch.mps.synchronize()
        assert text == str(raised.value)
    torch._assert_async(zero + 1)
    torch.mps.synchronize()


def waits() -> dict[str, Callable[[], object]]:
    """Everything that makes the host wait; what it needs is made before the error."""
    good, host, mask = x(), torch.zeros(3, 4), x() > 3
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    return {
        "item": lambda: good[0, 0].item(),
        "tolist": good.tolist,
        "cpu": good.cpu,
        "copy to cpu": lambda: host.copy_(good),
        "copy to mps": lambda: good.copy_(host),
        "print": lambda: repr(good),
        "bool": lambda: bool(good[0, 1] > 0),
        "synchronize": torch.mps.synchronize,
        "accelerator": torch.accelerator.synchronize,
        "empty_cache": torch.mps.empty_cache,
        "event": end.synchronize,
        "elapsed_time": lambda: start.elapsed_time(end),
        "nonzero": good.nonzero,
        "mask": lambda: good[mask],
        "unique": lambda: torch.unique(good),
    }


def test_every_wait_raises() -> None:
    """The next wait raises, whichever it is, and the one after it does not."""
    for name, wait in waits().items():
        bad = ids(7)
        x()[bad]
        with pytest.raises(torch.AcceleratorError) as raised:
            wait()
        assert (name, ADVANCED.format(3)) == (name, str(raised.value))
        if name != "elapsed_time":  # the second one of a Mac hangs
            wait()


def test_what_does_not_wait_does_not_raise() -> None:
    """Kernels, and copies that do not block, go by an error; the first of several is the one that is told."""
    good, host = x(), torch.zeros(3, 4)
    first, second = ids(7), ids(8)
    good[first]
    good[second]
    (good + 1).sum()
    host.copy_(good, non_blocking=True)
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.mps.synchronize()
    assert ADVANCED.format(3) == str(raised.value)
    torch.mps.synchronize()


AT_ONCE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index": lambda empty, index: empty[index],
    "index_put_": lambda empty, index: empty.index_put_((index,), ones((), device="mps")),
    "index_put_ accumulate": lambda empty, index: empty.index_put_((index,), ones((), device="mps"), accumulate=True),
    "assignment": lambda empty, index: empty.__setitem__(index, 1.0),
}


@pytest.mark.parametrize("name", list(AT_ONCE))
def test_an_index_into_a_dimension_of_size_0_is_refused_at_the_call(name: str) -> None:
    """Torch's code for all devices looks at the sizes before a kernel runs: an error at once, nothing later.

    Torch 2.15 spreads the number over the indexed rows first, and looks at its storage there, on a CPU too.
    """
    error: type[Exception] = IndexError
    text = r"^index is out of bounds for dimension with size 0$"
    if name == "assignment" and RELEASE >= (2, 15):
        error = RuntimeError
        text = r"^setStorage: sizes \[1, 3\], strides \[0, 1\], .* out of bounds for storage of size 0$"
    with pytest.raises(error, match=text):
        AT_ONCE[name](torch.empty(0, 3, device="mps"), ids(0))
    torch.mps.synchronize()


def test_where_nothing_is_indexed_no_bad_index_is_seen() -> None:
    """An index without elements, or a mask without a true value, beside a bad one: no kernel runs over them."""
    nowhere = torch.zeros(3, dtype=torch.bool, device="mps")
    assert [] == x()[ids(0)[:0], ids(7)].tolist()
    assert [] == x()[nowhere, ids(7)].tolist()
    assert ROWS == x().index_put_((ids(0)[:0], ids(7)), ones((), device="mps")).tolist()
    assert ROWS == x().index_put_((nowhere, ids(7)), ones((), device="mps")).tolist()
    torch.mps.synchronize()
