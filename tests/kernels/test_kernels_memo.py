"""Under `kernels="real"` a call is described once for all that its description reads, and then computed from memory."""

from __future__ import annotations

import pytest
import torch

from kernel_files import add_to_cache, elementwise, module
from own_cache import new_cache
from processes import MAC, run_with_torch

RELEASE = torch.__version__.partition("+")[0]
REAL = f"import anymps, torch\nanymps.enable({MAC!r}, kernels='real', quiet=True)\n"
COUNTING = (
    "from anymps.kernels import Launcher\nfrom anymps.device import real_calls\n"
    "asked, described = [], Launcher._describe\n"
    "Launcher._describe = lambda self, name, *rest: asked.append(name) or described(self, name, *rest)\n"
)
_INDEX = [("i", "thread_position_in_grid")]


def adding(name: str) -> str:
    """A kernel with out[i] += a[i], and four more buffers of integers."""
    return module(
        name,
        [("a", "float", 0), ("out", "float", 0), *((f"n{place}", "long", 0) for place in range(4))],
        _INDEX,
        """
      %k = zext i32 %i to i64
      %pa = getelementptr float, ptr addrspace(1) %a, i64 %k
      %to = getelementptr float, ptr addrspace(1) %out, i64 %k
      %x = load float, ptr addrspace(1) %pa
      %y = load float, ptr addrspace(1) %to
      %z = fadd float %x, %y
      store float %z, ptr addrspace(1) %to
      ret void""",
    )


def storing(name: str, place: int, buffers: int) -> str:
    """A kernel that stores 77 in front of one of its buffers."""
    return module(
        name,
        [(f"b{at}", "float", 0) for at in range(buffers)],
        _INDEX,
        f"store float 77.0, ptr addrspace(1) %b{place}\nret void",
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, virtual_device: None) -> dict[str, str]:
    """The environment of a program whose kernels compute something else, so that it shows who computed.

    One cache for all tests: the first program that runs a kernel compiles it.
    """
    texts = {
        "add_dense_float_float": elementwise("add_dense_float_float", "fsub"),
        "add_dense_scalar_float_float": elementwise("add_dense_scalar_float_float", "fsub", "0"),
        "unfold_backward_float": adding("unfold_backward_float"),
        "sort_block_topk_float_tptg32": storing("sort_block_topk_float_tptg32", 1, 7),
    }
    return add_to_cache(new_cache(tmp_path_factory.mktemp("kernels") / "cache"), texts, RELEASE)


def test_later_calls_of_a_signature_are_not_described_again(kernels: dict[str, str]) -> None:
    """Values may differ, numbers too; in place, into an empty tensor, in backward. Likewise what has no kernel."""
    code = (
        f"{COUNTING}{REAL}"
        "x, y = torch.full((3,), 5.0, device='mps'), torch.full((3,), 2.0, device='mps')\n"
        "print([(x + number).tolist() for number in (1.0, 2.5, 4.0)], [(one + y)[0].item() for one in (x, -y)])\n"
        "print([x.add_(y)[0].item() for _ in range(3)], x.tolist())\n"
        "print([torch.add(one, y, out=torch.empty(0, device='mps')).tolist() for one in (x, -y)])\n"
        "print([(x * y)[0].item(), (-y * y)[0].item()], (x[::2] + y[:2]).tolist())\n"
        "print([name.removeprefix('aten::') for name in asked])\n"
        "print(dict(real_calls()))\n"
        "w = torch.ones(3, device='mps', requires_grad=True)\n"
        "((w * 3) + (w * 2)).sum().backward()\n"
        "print(w.grad.abs().max().item())\n"  # 3 - 2 or 2 - 3, in the order in which they come
    )
    assert run_with_torch(code, kernels).lines == [
        "[[4.0, 4.0, 4.0], [2.5, 2.5, 2.5], [1.0, 1.0, 1.0]] [3.0, -4.0]",
        "[3.0, 1.0, -1.0] [-1.0, -1.0, -1.0]",
        "[[-3.0, -3.0, -3.0], [-4.0, -4.0, -4.0]]",
        "[-2.0, -4.0] [1.0, 1.0]",
        "['add.Tensor', 'neg', 'add.Tensor', 'add_.Tensor', 'add.out', 'mul.Tensor', 'add.Tensor']",
        "{'aten::add.Tensor': 5, 'aten::add_.Tensor': 3, 'aten::add.out': 2}",
        "1.0",
    ]


def test_a_result_that_kernels_add_to_begins_as_zeros_each_time(kernels: dict[str, str]) -> None:
    """Also in memory that others have used; the call is described once."""
    if not RELEASE.startswith("2.13."):
        pytest.skip("what unfold_backward does in other releases was not looked up")
    code = (
        f"{COUNTING}{REAL}"
        "x = torch.arange(1000.0, device='mps')\n"
        "for _ in range(5):\n"
        "    used = [torch.full((1000,), 7.0) for _ in range(8)]\n"
        "    del used\n"
        "    out = torch.ops.aten.unfold_backward(x.view(1000, 1), [1000], 0, 1, 1)\n"
        "    assert torch.equal(out, x), out\n"
        "    del out\n"
        "print(real_calls()['aten::unfold_backward'], asked.count('aten::unfold_backward'))\n"
    )
    assert run_with_torch(code, kernels).lines == ["5 1"]


def test_what_a_description_asks_of_the_program_is_part_of_the_signature(kernels: dict[str, str]) -> None:
    """Whether algorithms must be deterministic: PyTorch has another way then, which no kernel of this cache takes."""
    code = (
        f"{REAL}"
        "x = torch.tensor([3.0, 1.0, 2.0], device='mps')\n"
        "for first in (False, True):\n"
        "    for deterministic in (first, not first, first):\n"
        "        torch.use_deterministic_algorithms(deterministic, warn_only=True)\n"
        "        print(deterministic, torch.kthvalue(x[first:], 1).values.item())\n"
    )
    by_kernel, by_the_cpu = "False 77.0", "True 1.0"
    assert run_with_torch(code, kernels).lines == [by_kernel, by_the_cpu, by_kernel, by_the_cpu, by_kernel, by_the_cpu]


def test_where_a_tensor_begins_is_part_of_the_signature(kernels: dict[str, str]) -> None:
    """Up to torch 2.13 the host reads a number of the CPU at the beginning of its storage, later where it lies."""
    code = (
        f"{COUNTING}{REAL}"
        "x, table = torch.full((3,), 5.0, device='mps'), torch.tensor([1.0, 2.0, 4.0])\n"
        "print([(x + table[at])[0].item() for at in (2, 1, 2, 0)], asked.count('aten::add.Tensor'))\n"
    )
    older = tuple(map(int, RELEASE.split(".")[:2])) < (2, 14)
    assert run_with_torch(code, kernels).lines == ["[4.0, 4.0, 4.0, 4.0] 3" if older else "[1.0, 3.0, 1.0, 4.0] 3"]


def test_tensors_that_share_memory_are_told_apart(kernels: dict[str, str]) -> None:
    """From tensors of the same sizes that do not: the addresses of a later call are its own."""
    code = (
        f"{COUNTING}{REAL}"
        "x, y = torch.arange(8.0, device='mps'), 10 * torch.arange(8.0, device='mps')\n"
        "pairs = ((x[:4], y[:4]), (x[:4], x[:4]), (x[:4], x[4:]), (y[:4], y[4:]), (y[:4], x[:4]))\n"
        "print([(a + b).tolist()[1:3] for a, b in pairs])\n"
        "print(asked.count('aten::add.Tensor'))\n"
    )
    assert run_with_torch(code, kernels).lines == [
        "[[-9.0, -18.0], [0.0, 0.0], [-4.0, -4.0], [-40.0, -40.0], [9.0, 18.0]]",
        "3",
    ]
