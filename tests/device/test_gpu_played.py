"""The cuda substrate without a GPU: the CPU plays it, so that both ways of a call and its copies are seen anywhere."""

from __future__ import annotations

import pytest

from processes import Result, run_with_torch

PLAYED = "import torch, anymps\nanymps.enable('M3 Pro 18GB', substrate='cuda', quiet=True)\nD = 'mps'\n"
PLAYED += """
def error_at(wait):
    try:
        wait()
    except torch.AcceleratorError as error:
        return str(error).split(chr(10))[0]
def error_at_wait():
    return error_at(torch.mps.synchronize)
"""


def played(code: str, how: str) -> Result:
    return run_with_torch(code, env={"ANYMPS_GPU": how})


@pytest.mark.parametrize("how", ["cpu", "host_fallback"])
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
    """What the GPU computes is not among them; what it has no kernel for, or would stop at, is."""
    code = f"""\
{PLAYED}
from anymps.device._enable import native
x = torch.ones(4, device=D)
x = x + x
for _ in range(2):
    x.masked_scatter_(x > 1, x.clone())
print(native().host_fallbacks())
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
print(error_at(z.sum().item))
print(z.sum().item())
loss = torch.nn.functional.cross_entropy(torch.zeros(2, 3, device=D), torch.tensor([1, 5], device=D))
print(error_at_wait())
good = torch.nn.functional.cross_entropy(torch.zeros(2, 3, device=D), torch.tensor([1, -100], device=D))
print(round(good.item(), 4))
"""
    bad, *rest = played(code, "cpu").lines
    said = "index 12 is out of bounds for dimension 0 with size 10", "Index 12 is out of bounds: 0, range 0 to 10"
    assert bad in said  # the second one up to torch 2.11
    assert rest == ["55.0", "Target 5 is out of bounds.", "1.0986"]


def test_labels_are_good_or_bad_by_what_is_left_out() -> None:
    """A bad label is told at the next wait; the loss is that of the nearest good one."""
    code = f"""\
{PLAYED}
from torch.nn import functional as F
scores = torch.zeros(3, 6, device=D)
labels = torch.tensor([0, -100, 5]).to(D)
for ignored in (-100, 5, 6, -1):
    F.cross_entropy(scores, labels, ignore_index=ignored)
    print(error_at_wait())
for bad in ([0, -5, 1], [0, 6, 1], [-100, -101, 1]):
    loss = F.cross_entropy(scores, torch.tensor(bad).to(D))
    print(error_at_wait(), round(loss.item(), 4))
"""
    found = [f"Target {label} is out of bounds. 1.7918" for label in (-5, 6, -101)]
    assert played(code, "cpu").lines == ["None", *["Target -100 is out of bounds."] * 3, *found]


def test_each_call_with_a_bad_index_is_told_of() -> None:
    """Two calls between two waits have both been wrong: the recording has both."""
    code = f"""\
{PLAYED}
from torch.nn import functional as F
table = torch.arange(12.0, device=D).view(6, 2)
ids = torch.tensor([0, 9]).to(D)
with anymps.record() as capture:
    F.embedding(ids, table)
    F.embedding(ids, table)
    error_at_wait()
print(*(it.message.split(chr(10))[0][:40] for it in capture.recording.refusals()), sep=chr(10))
"""
    told = played(code, "cpu").lines
    assert len(told) == 2
    assert told[0] == told[1]


def test_a_bad_probability_is_told_at_the_next_wait() -> None:
    """As a bad index: the kernel, which would stop a GPU, gets harmless ones; the good ones are computed there."""
    code = f"""\
{PLAYED}
from torch.nn.functional import binary_cross_entropy
from anymps.device._enable import native
ones = torch.ones(3, device=D)
for bad in ([0.5, 1.5, 0.5], [0.5, float("nan"), 0.5], [0.5, 0.5, -1e-9]):
    for loss_of in (lambda wrong: binary_cross_entropy(wrong, ones), lambda wrong: binary_cross_entropy(ones, wrong)):
        loss = loss_of(torch.tensor(bad, device=D))
        print(error_at_wait())
good = torch.tensor([0.0, 0.5, 1.0], device=D, requires_grad=True)
loss = binary_cross_entropy(good, ones)
loss.backward()
print(round(loss.item(), 4), [round(value, 4) for value in good.grad.tolist()])
print(native().host_fallbacks())
"""
    said = [f"all elements of {which} should be between 0 and 1" for which in ("input", "target")]
    assert played(code, "cpu").lines == [*said * 3, "33.5644 [-333333331968.0, -0.6667, 0.0]", "{}"]


def test_what_a_call_would_do_to_its_own_indices_is_refused() -> None:
    """Though the kernel gets others in their place."""
    code = f"""\
{PLAYED}
x = torch.tensor([1, 0], device=D)
try:
    torch.index_select(x, 0, x, out=x)
except RuntimeError as error:
    print(str(error).split(chr(10))[0])
print(x.tolist())
"""
    assert played(code, "cpu").lines == played(code.replace("'cuda'", "'host'"), "cpu").lines
    assert played(code, "cpu").lines[0].startswith("unsupported operation: ")


def test_what_a_gpu_does_otherwise_is_put_right() -> None:
    """Sums in half precision are rounded once, and batch norm without training has no statistics among its results."""
    code = f"""\
{PLAYED}
from anymps.device._enable import native
x = torch.linspace(0.1, 3, 200, device=D)
for dtype in (torch.float16, torch.bfloat16):
    made = x.to(dtype).cumsum(0)
    print(made.dtype, torch.equal(made, x.to(dtype).float().cumsum(0).to(dtype)))
mean, var = torch.zeros(2, device=D), torch.ones(2, device=D)
for training in (True, False):
    made = torch.native_batch_norm(torch.ones(3, 2, device=D), None, None, mean, var, training, 0.1, 1e-5)
    print([list(it.shape) for it in made])
x = torch.tensor([[3, 1, 1, 1], [2, 2, 0, 2]], device=D)
print(x.kthvalue(2).values.tolist(), x.median(1).values.tolist())
print(native().host_fallbacks())
"""
    assert played(code, "cpu").lines == [
        "torch.float16 True",
        "torch.bfloat16 True",
        "[[3, 2], [2], [2]]",
        "[[3, 2], [0], [0]]",
        "[1, 2] [1, 2]",
        "{'aten::kthvalue.values': 1, 'aten::median.dim_values': 1}",
    ]


def test_a_tensor_laid_out_anew_by_a_kernel_that_raised_is_as_it_was_for_the_next() -> None:
    """Else the CPU, which is asked after the GPU, would find it fit."""
    code = f"""\
{PLAYED}
for out in (torch.zeros(1, device=D).expand(4), torch.zeros(4, dtype=torch.int32, device=D)):
    try:
        torch.sigmoid(torch.ones(3, 2, device=D), out=out)
    except RuntimeError as error:
        print(str(error)[:60], list(out.shape))
"""
    host = played(code.replace("'cuda'", "'host'"), "cpu").lines
    assert played(code, "cpu").lines == host
    assert host[0].startswith("unsupported operation: more than one element of the written")


def test_set_makes_room() -> None:
    """A storage that has to grow keeps its bytes."""
    code = f"""\
{PLAYED}
x, y = torch.arange(2.0, device=D), torch.empty(0, device=D)
y.set_(x.untyped_storage(), 1, (1, 2), (2, 3))
y[0, 1] = 7
x.resize_(2)
print(x.tolist(), y.tolist(), x.untyped_storage().nbytes())
"""
    assert played(code, "cpu").lines == ["[0.0, 1.0] [[1.0, 7.0]] 20"]


@pytest.mark.parametrize("how", ["cpu", "host_fallback"])
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
        "on the NVIDIA GPU: use --substrate host"
    ]
