"""The cuda substrate without a card: the CPU plays it, so that both ways of a call and its copies are seen anywhere."""

from __future__ import annotations

import pytest

from processes import Result, run_with_torch

PLAYED = "import torch, anymps\nanymps.enable('M3 Pro 18GB', substrate='cuda', quiet=True)\nD = 'mps'\n"


def played(code: str, how: str) -> Result:
    return run_with_torch(code, env={"ANYMPS_CARD": how})


@pytest.mark.parametrize("how", ["cpu", "away"])
def test_what_a_call_away_writes_comes_back(how: str) -> None:
    """Views, results given, one storage seen twice, running statistics: what was written on copies is in the tensor."""
    code = f"""\
{PLAYED}
x = torch.arange(12.0, device=D).view(3, 4)
x.t()[1:3].masked_scatter_(torch.ones(2, 3, dtype=torch.bool, device=D), torch.full((6,), 7.0, device=D))
print(x.tolist())
out = torch.empty(0, device=D)
torch.mul(x[2, :2], 2, out=out)
print(out.tolist())
row = x[0]
row.add_(x[1])  # both look into one storage
print(x.tolist())
norm = torch.nn.BatchNorm1d(2).to(D)
norm(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device=D))
print([round(value, 4) for value in norm.running_mean.tolist() + norm.running_var.tolist()])
"""
    assert played(code, how).lines == [
        "[[0.0, 7.0, 7.0, 3.0], [4.0, 7.0, 7.0, 7.0], [8.0, 7.0, 7.0, 11.0]]",
        "[16.0, 14.0]",
        "[[4.0, 14.0, 14.0, 10.0], [4.0, 7.0, 7.0, 7.0], [8.0, 7.0, 7.0, 11.0]]",
        "[0.2, 0.4, 1.1, 1.7]",
    ]


def test_calls_away_are_counted_by_operator() -> None:
    """What the card computes is not among them; what it has no kernel for, or would stop at, is."""
    code = f"""\
{PLAYED}
from anymps.device._enable import native
x = torch.ones(4, device=D)
x = x + x
for _ in range(2):
    x.masked_scatter_(x > 1, x.clone())
print(native().computed_away())
"""
    assert played(code, "cpu").lines == ["{'aten::masked_scatter_': 2}"]
    assert played(code.replace("'cuda'", "'host'"), "cpu").lines == ["{}"]


def test_a_bad_index_is_told_at_the_next_wait() -> None:
    """The kernel gets harmless indices, nobody waits for the answer, and the next wait raises the Mac's error once."""
    code = f"""\
{PLAYED}
x = torch.arange(10.0, device=D)
y = x[torch.tensor([1, 12], device=D)]
z = x + 1
try:
    z.sum().item()
except torch.AcceleratorError as error:
    print(str(error).split(chr(10))[0])
print(z.sum().item())
loss = torch.nn.functional.cross_entropy(torch.zeros(2, 3, device=D), torch.tensor([1, 5], device=D))
try:
    torch.mps.synchronize()
except torch.AcceleratorError as error:
    print(str(error).split(chr(10))[0])
good = torch.nn.functional.cross_entropy(torch.zeros(2, 3, device=D), torch.tensor([1, -100], device=D))
print(round(good.item(), 4))
"""
    bad, *rest = played(code, "cpu").lines
    said = "index 12 is out of bounds for dimension 0 with size 10", "Index 12 is out of bounds: 0, range 0 to 10"
    assert bad in said  # the second one up to torch 2.11
    assert rest == ["55.0", "Target 5 is out of bounds.", "1.0986"]


@pytest.mark.parametrize("how", ["cpu", "away"])
def test_random_numbers_are_those_of_the_host_substrate(how: str) -> None:
    code = f"""\
{PLAYED}
torch.manual_seed(3)
drawn = [torch.rand(5000, device=D), torch.randn(7, device=D), torch.randint(9, (5,), device=D)]
drawn += [torch.randperm(500, device=D), torch.empty(9000, device=D).bernoulli_(0.3)]
drawn += [torch.multinomial(torch.ones(9, device=D), 4), torch.nn.functional.dropout(torch.ones(6000, device=D), 0.2)]
places = [torch.arange(1.0, tensor.numel() + 1, dtype=torch.float64) for tensor in drawn]
print([(tensor.cpu().double() * place).sum().item() for tensor, place in zip(drawn, places)])
"""
    assert played(code, how).lines == played(code.replace("'cuda'", "'host'"), how).lines


def test_what_needs_memory_of_the_host_is_refused_in_one_line() -> None:
    code = f"""\
{PLAYED}
try:
    torch.mps.compile_shader("kernel void f() {{}}")
except RuntimeError as error:
    print(error)
"""
    assert played(code, "cpu").lines == [
        "anymps: Metal shaders (torch.compile writes them, too) run on this machine's CPU, which cannot reach tensors "
        "on the NVIDIA card: use --substrate host"
    ]
