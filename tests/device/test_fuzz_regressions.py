"""Programs that once did on mps what they do not do on the CPU, as `test_fuzz` found them."""

from __future__ import annotations

import pytest
import torch

from anymps.rules import installed_torch
from device.compare import text_of
from device.worlds import Worlds

pytestmark = pytest.mark.usefixtures("virtual_device")


def replay(program: str) -> Worlds:
    """Runs the lines of a program in both worlds, which agree after each."""
    worlds = Worlds()
    for line in program.strip().splitlines():
        worlds.run(line.strip())
        assert not worlds.ended
    return worlds


RESIZED_AND_RAISED = {
    "sum of another dtype": "t2 = torch.mean(t0, 0, out=t1.int())\nt3 = t1.int()\nt4 = torch.mean(t0, 0, out=t3)",
    "overlap with the input": "t2 = torch.cat([t0, t0], 1, out=t0)",
    "two results": "t2 = torch.max(t0, 0, out=(t1, t1))",
    "a later read": "t2 = t1.view(-1)\nt3 = torch.cat([t1, t1], out=t1)\nt4 = t2.add_(1)\nt5 = t1 * 2",
    "another view of the memory": "t2 = t1.int()\nt3 = t2.detach()\nt4 = torch.mean(t0, 0, out=t2)\nt5 = t3.mul_(2)",
}


@pytest.mark.parametrize("name", list(RESIZED_AND_RAISED))
def test_an_out_tensor_stays_resized_when_the_kernel_raises(name: str) -> None:
    """A kernel that raises after it has resized its out= tensor leaves it with the new shape and storage."""
    replay(f"t0 = make((3, 4), torch.float32)\nt1 = make((5,), torch.float32)\n{RESIZED_AND_RAISED[name]}")


def test_a_resize_that_was_not_carried_back_is_not_seen_in_the_memory() -> None:
    """The failed call above changes the size that the storage has, as on the CPU."""
    worlds = replay("t0 = make((3, 4), torch.float32)\nt1 = torch.zeros(2, dtype=torch.int32, device=DEVICE)")
    assert not worlds.run("t2 = torch.mean(t0, 0, out=t1)")
    assert (4,) == worlds.mps["t1"].shape
    assert 16 == worlds.mps["t1"].untyped_storage().nbytes()


OVERLAPS = {
    "scatter_add_": "t1 = t0.scatter_add_(1, torch.zeros_like(t0, dtype=torch.int64), t0)",
    "scatter_": "t1 = t0.scatter_(1, torch.zeros_like(t0, dtype=torch.int64), t0)",
    "index assignment": "t1 = t0.__setitem__([0, 0], t0)",
    "assignment": "t1 = t0.__setitem__((..., None), t0)",
}


@pytest.mark.parametrize("name", list(OVERLAPS))
def test_a_written_tensor_that_is_an_input_too_is_seen_as_one(name: str) -> None:
    """Over memory with holes, torch tells a tensor that stands twice in a call from two tensors over the same bytes."""
    worlds = replay("t0 = fill(torch.empty_strided((2, 3, 2), (7, 3, 2), device=DEVICE))")
    assert not worlds.run(OVERLAPS[name])


@pytest.mark.parametrize("out", ["t0", "t1"])
def test_conj_physical_of_real_numbers_into_a_tensor_differs_by_a_rule(out: str) -> None:
    """Up to torch 2.13 MPS refuses it; the table of dtypes says so, of this overload alone."""
    worlds = Worlds()
    worlds.run("t0 = make((2,), torch.float32)")
    worlds.run("t1 = make((2,), torch.float32)")
    assert worlds.run("t2 = torch.conj_physical(t0)")
    assert worlds.run(f"t3 = torch.conj_physical(t0, out={out})") is (installed_torch().version.release >= (2, 14))


def test_an_error_names_the_dtype_that_the_user_gave() -> None:
    """A call that is tried again in a wider type raises the first error, not the second, if both fail."""
    x, end = torch.arange(3, dtype=torch.int16), torch.arange(3)
    said = "expected dtype short int for `end` but got dtype long int"
    assert said == text_of(RuntimeError, torch.lerp, x, end, end)
    assert said == text_of(RuntimeError, torch.lerp, x.to("mps"), end.to("mps"), end.to("mps"))


def test_no_room_for_a_resized_out_tensor() -> None:
    """An out= tensor that the Mac has no room to resize keeps its shape and its values, and can be used further."""
    x, out = torch.ones(1, device="mps").expand(1 << 24), torch.arange(3.0, device="mps")
    alias = out.detach()
    torch.mps.set_per_process_memory_fraction(1e-3)
    try:
        assert "MPS backend out of memory" in text_of(RuntimeError, torch.neg, x, out=out)
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)
    assert (3,) == out.shape
    assert 12 == out.untyped_storage().nbytes()
    assert [1.0, 2.0, 3.0] == alias.add_(1).tolist() == out.tolist()
