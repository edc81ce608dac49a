"""PyTorch's own kernels that store beside a buffer: an error with the operator's line, and a process that goes on."""

from __future__ import annotations

import pytest
import torch

from kernel_files import add_to_cache, module, needs_kernels
from own_cache import new_cache
from processes import MAC, run_with_torch

RELEASE = torch.__version__.partition("+")[0]
REAL = f"import anymps, torch\nanymps.enable({MAC!r}, kernels='real', quiet=True)\n"
TRYING = (
    "def tried(call):\n"
    "    try:\n"
    "        print(call().tolist())\n"
    "    except RuntimeError as error:\n"
    "        print(error.__traceback__.tb_next.tb_lineno, error)\n"
)


def storing(name: str, by: int) -> str:
    """A kernel with out[i + by] = 7, whose other two buffers it does not read."""
    return module(
        name,
        [("out", "float", 0), ("a", "float", 0), ("b", "float", 0)],
        [("i", "thread_position_in_grid")],
        f"""
      %k = sext i32 %i to i64
      %at = add i64 %k, {by}
      %to = getelementptr float, ptr addrspace(1) %out, i64 %at
      store float 7.0, ptr addrspace(1) %to
      ret void""",
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, virtual_device: None) -> dict[str, str]:
    """The environment of a program whose sums store one element before their results, and products three behind."""
    texts = {name: storing(name, by) for name, by in (("add_dense_float_float", -1), ("mul_dense_float_float", 3))}
    return add_to_cache(new_cache(tmp_path_factory.mktemp("stores") / "cache"), texts, RELEASE)


def stray(kernel: str, where: str, size: int) -> str:
    """The error."""
    return (
        f"anymps: the Metal kernel '{kernel}' wrote {where} of {size}. On a Mac this is not caught and overwrites "
        "other data"
    )


def test_a_store_beside_a_buffer_is_an_error_of_the_line(kernels: dict[str, str]) -> None:
    """Before and behind, into results and in place; when the call is described, and when it comes again."""
    code = (
        f"{REAL}{TRYING}"
        "x, y = torch.ones(5, device='mps'), torch.ones(5, device='mps')\n"
        "tried(lambda: x + y)\n"
        "tried(lambda: x + y)\n"
        "tried(lambda: x.add_(y))\n"
        "tried(lambda: x * y)\n"
        "tried(lambda: x - y)\n"
        "print(y.tolist())\n"
    )
    before = stray("add_dense_float_float", "4 bytes before the start of argument 0, starting at byte -4", 20)
    behind = stray("mul_dense_float_float", "12 bytes past the end of argument 0, starting at byte 20", 20)
    first = len((REAL + TRYING).splitlines()) + 2
    assert run_with_torch(code, kernels).lines == [
        f"{first} {before}",
        f"{first + 1} {before}",
        f"{first + 2} {before}",
        f"{first + 3} {behind}",
        "[6.0, 6.0, 6.0, 6.0, 0.0]",
        "[1.0, 1.0, 1.0, 1.0, 1.0]",
    ]


def test_a_kernel_that_a_program_launches(kernels: dict[str, str]) -> None:
    """As with a shader, up to the line of the kernel, which has no source."""
    code = (
        f"import anymps, torch\nanymps.enable({MAC!r}, quiet=True)\n{TRYING}"
        "x = torch.ones(5, device='mps')\n"
        "kernels = anymps.metal_kernels()\n"
        "tried(lambda: kernels.add_dense_float_float(torch.empty(5, device='mps'), x, x, threads=5))\n"
        "print(x.tolist())\n"
    )
    before = stray("add_dense_float_float", "4 bytes before the start of argument 0, starting at byte -4", 20)
    line = len(code.splitlines()) - 1
    assert run_with_torch(code, kernels).lines == [f"{line} {before}", "[1.0, 1.0, 1.0, 1.0, 1.0]"]


def test_libraries_that_ask_for_host_memory_get_it(kernels: dict[str, str]) -> None:
    """A convolution of the CPU allocates and frees by the allocator that is there; a child of a fork does, too."""
    code = (
        f"{REAL}"
        "import os\n"
        "layer, x = torch.nn.Conv2d(3, 16, 3).to('mps'), torch.randn(16, 3, 32, 32, device='mps')\n"
        "for _ in range(3):\n"
        "    layer.zero_grad()\n"
        "    layer(x).square().sum().backward()\n"
        "plain = torch.nn.Conv2d(3, 16, 3)(torch.randn(16, 3, 32, 32))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    del plain\n"
        "    os._exit(int(torch.ones(1000).sum()) != 1000)\n"
        "print(os.waitpid(child, 0)[1], layer.weight.grad.shape == layer.weight.shape)\n"
    )
    assert run_with_torch(code, kernels).lines == ["0 True"]


def test_a_histogram_of_a_value_below_its_first_edge() -> None:
    """The kernel of torch 2.13 stores it at the bin before the first; a value farther away is left out."""
    needs_kernels("2.13.0", installed="2.13")
    code = (
        f"{REAL}{TRYING}"
        "for first in (-1e-7, -0.5):\n"
        "    x = torch.tensor([first, 0.5, 0.9], device='mps')\n"
        "    tried(lambda: torch.histogram(x, 4, range=(0.0, 1.0)).hist)\n"
    )
    line = len(code.splitlines())
    before = stray("histogramdd_float", "4 bytes before the start of argument 2, starting at byte -4", 48)
    assert run_with_torch(code).lines == [f"{line} {before}", "[0.0, 0.0, 1.0, 1.0]"]
