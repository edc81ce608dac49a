"""What a comparison may cost: which threads it takes, what it does not copy, and what it need not compare."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from anymps._threads import calling_thread_alone
from anymps.numerics import NumberCheck, _check, in_place


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """As on any machine that people have, whatever this one has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads_seen_by_another() -> int:
    """With how many threads of torch a thread begins that starts now."""
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    return seen[0]


def test_a_thread_that_computes_alone_leaves_others_as_they_are() -> None:
    with calling_thread_alone():
        assert torch.get_num_threads() == 1
        assert threads_seen_by_another() == 2
        with calling_thread_alone():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_it_computes_with_others_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), calling_thread_alone():
        raise ValueError("no")
    assert torch.get_num_threads() == 2


def checked(name: str, arguments: tuple[Any, ...], results: tuple[Any, ...], **options: Any) -> NumberCheck:
    """A check that one call went through."""
    check = NumberCheck(lambda name: False, **options)
    kept: Any = check.begin(name, "", arguments)
    assert kept is not None
    assert check.end(kept, results, 0, False) is None
    return check


@pytest.mark.parametrize(("rows", "threads"), [(1023, 1), (1024, 2)])
def test_only_large_products_are_shared_among_threads(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Counted:
        def __init__(self, *given: object) -> None:
            seen.append(torch.get_num_threads())

        def wrong(self) -> None:
            return None

    monkeypatch.setattr(_check, "Comparison", Counted)
    one, other, product = torch.empty(rows, 1024), torch.empty(1024, 1024), torch.empty(rows, 1024)
    checked("aten::mm", (one, other), (product,))
    checked("aten::exp", (product,), (product,))
    assert seen == [threads, 1]
    assert torch.get_num_threads() == 2


def test_a_call_that_no_kernel_of_pytorchs_took_part_in_is_this_cpus() -> None:
    """The numbers of the kernels' calls as the device counts them: before a call, and after it."""
    x = torch.ones(3)
    counts = iter([7, 7])
    check = checked("aten::exp", (x,), (x.exp(),), by_kernels=lambda: next(counts))
    assert (dict(check.compared), dict(check.left_out)) == ({}, {"computed by this machine's CPU": 1})
    counts = iter([7, 8])
    check = checked("aten::exp", (x,), (x.exp(),), by_kernels=lambda: next(counts))
    assert (dict(check.compared), dict(check.left_out)) == ({"aten::exp": 1}, {})


@pytest.mark.usefixtures("mps_device")
def test_the_devices_memory_is_read_where_it_lies() -> None:
    x = torch.arange(24.0, device="mps").reshape(4, 6)
    views = [x, x.t(), x[1:, ::2], x[2], x[3, 5], x[:, :1].expand(4, 3), x.bool(), x.to(torch.bfloat16), x.long()]
    for view in views:
        here = in_place(view)
        assert here.device.type == "cpu"
        assert (here.dtype, here.shape, here.stride()) == (view.dtype, view.shape, view.stride())
        assert torch.equal(here, view.cpu())
        assert here.data_ptr() == view.data_ptr()
    made = torch.complex(x, x)
    for flagged in (made.conj(), made.conj().imag, x[:0]):
        assert torch.equal(in_place(flagged).resolve_conj().resolve_neg(), flagged.cpu().resolve_conj().resolve_neg())
