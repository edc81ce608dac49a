"""Which calls come to PyTorch's own kernels: of operators that the device or torch computes in ways of their own.

Some tests need the kernels of torch 2.15.0 (`anymps kernels add --torch 2.15 --download`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_files import add_to_cache, bitcode, metallib, module, needs_kernels
from own_cache import new_cache
from processes import MAC, run_with_torch

RELEASE = torch.__version__.partition("+")[0]
REAL = f"import anymps, torch\nanymps.enable({MAC!r}, kernels='real', quiet=True)\n"
COUNTING = (
    "from anymps.kernels import Launcher\nfrom anymps.device import real_calls\n"
    "asked, described = [], Launcher._describe\n"
    "Launcher._describe = lambda self, name, *rest: asked.append(name) or described(self, name, *rest)\n"
)
_IN_FLOAT = {
    "float": ("fadd float %x, 0.0", "fadd float %s, 0.0"),
    "half": ("fpext half %x to float", "fptrunc float %s to half"),
}
"""How a kernel's number becomes a float, and a float its number."""


def scaling(name: str, arrays: int, type_: str = "float", number: str = "float") -> str:
    """A kernel with out[i] = number * the first of so many arrays, each of `type_`."""
    widened, narrowed = _IN_FLOAT[type_]
    return module(
        name,
        [("out", type_, 0), *((f"a{at}", type_, 0) for at in range(arrays)), ("number", number, 4)],
        [("i", "thread_position_in_grid")],
        f"""
      %k = zext i32 %i to i64
      %pa = getelementptr {type_}, ptr addrspace(1) %a0, i64 %k
      %x = load {type_}, ptr addrspace(1) %pa
      %w = {widened}
      %m = load {number}, ptr addrspace(2) %number
      %n = {_IN_FLOAT[number][0].replace("%x", "%m")}
      %s = fmul float %w, %n
      %r = {narrowed}
      %to = getelementptr {type_}, ptr addrspace(1) %out, i64 %k
      store {type_} %r, ptr addrspace(1) %to
      ret void""",
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, virtual_device: None) -> dict[str, str]:
    """The environment of a program with kernels that multiply by their number."""
    texts = {
        name: scaling(name, *rest)
        for name, *rest in (
            ("addcdiv_dense_float_float_float", 3),
            ("addcdiv_dense_half_half_float", 3, "half"),
            ("add_alpha_dense_float_float_float", 2),
            ("add_alpha_dense_half_half_half", 2, "half", "half"),
        )
    }
    return add_to_cache(new_cache(tmp_path_factory.mktemp("offered") / "cache"), texts, RELEASE)


def test_a_float_that_each_call_gives_anew_is_read_anew(planted: dict[str, str]) -> None:
    """As Adam's step size, and SGD's: the second call finds the first one's launch, with its own number."""
    code = (
        COUNTING
        + REAL
        + (
            "x = torch.ones(3, device='mps')\n"
            "h = x.half()\n"
            "steps = (0.5, -0.25, 1e-3, 3e38, float('inf'), 1 + 2.0**-11 + 2.0**-40)\n"
            "print([x.addcdiv(x, x, value=step)[2].item() for step in steps])\n"
            "print([x.clone().addcdiv_(x, x, value=step)[0].item() for step in steps[:2]])\n"
            "print([torch.addcdiv(h, h, h, value=step)[1].item() for step in steps[:3]])\n"
            "print([x.add(x, alpha=step)[0].item() for step in steps[:3]])\n"
            "print([h.add(h, alpha=step)[0].item() for step in (*steps[:2], steps[-1])])\n"
            "print([name.removeprefix('aten::') for name in asked if 'add' in name])\n"
            "print(sorted((name, count) for name, count in real_calls().items() if 'add' in name))\n"
        )
    )
    # float32 makes of 1e-3 and float16 of the last what torch.tensor does
    narrow = torch.tensor([1e-3, 3e38, 1 + 2.0**-11 + 2.0**-40]).tolist()
    half = torch.tensor([1.0]).half() * 1e-3
    assert run_with_torch(code, planted).lines == [
        f"[0.5, -0.25, {narrow[0]!r}, {narrow[1]!r}, inf, {narrow[2]!r}]",
        "[0.5, -0.25]",
        f"[0.5, -0.25, {half.item()!r}]",
        f"[0.5, -0.25, {narrow[0]!r}]",
        "[0.5, -0.25, 1.0]",
        "['addcdiv', 'addcdiv_', 'addcdiv', 'add.Tensor', 'add.Tensor']",
        "[('aten::add.Tensor', 6), ('aten::addcdiv', 9), ('aten::addcdiv_', 2)]",
    ]


def test_a_whole_number_stays_part_of_the_signature(planted: dict[str, str]) -> None:
    """A call with 2 is described by itself, and one with 2.0 is like all with floats."""
    code = (
        COUNTING
        + REAL
        + (
            "x = torch.ones(3, device='mps')\n"
            "print([x.add(x, alpha=step)[0].item() for step in (2, 3, 2, 2.0, 3.0)])\n"
            "print(len([name for name in asked if 'add' in name]))\n"
            "whole = torch.ones(3, device='mps', dtype=torch.int32)\n"
            "for number in (0.5, 1.5):\n"
            "    try:\n"
            "        whole.add(whole, alpha=number)\n"
            "    except RuntimeError as error:\n"
            "        print(str(error).splitlines()[0])\n"
        )
    )
    refused = "For integral input tensors, argument alpha must not be a floating point number."
    assert run_with_torch(code, planted).lines == ["[2.0, 3.0, 2.0, 2.0, 3.0]", "3", refused, refused]


def test_an_operator_without_a_kernel_in_the_release_is_not_offered(tmp_path: Path, virtual_device: None) -> None:
    """`addcdiv` is the CPU's in a release without kernels of that name, and `add` is always offered."""
    from anymps.device import native
    from anymps.kernels import KernelLibrary, Launcher, Metallib

    def offered(kernel: str) -> set[str]:
        (tmp_path / kernel).write_bytes(metallib({kernel: bitcode(scaling(kernel, 1))}))
        return set(Launcher(KernelLibrary(Metallib(tmp_path / kernel), native()), (2, 15)).operators())

    assert "aten::addcdiv_" not in offered("addcmul_dense_float_float_float")
    assert {"aten::addcdiv_", "aten::add_.Tensor"} <= offered("addcdiv_dense_float_float_float")


@pytest.mark.slow
def test_what_the_device_refuses_it_refuses_on_kernels_of_2_15(virtual_device: None) -> None:
    """Limits and missing operators are those of the installed torch."""
    needs_kernels("2.15.0", installed="2.13")  # another torch refuses in other words
    code = f"import anymps, torch\nanymps.enable({MAC!r}, kernels='2.15', quiet=True)\n" + (
        "import torch.nn.functional as F\n"
        "calls = (\n"
        "    lambda: F.conv_transpose3d(*(torch.ones(2, 2, size, 3, 3).half().to('mps') for size in (3, 2))),\n"
        "    lambda: F.conv1d(torch.ones(1, 2, 9).to('mps'), torch.ones(2, 1, 3), groups=2),\n"
        "    lambda: torch.geqrf(torch.ones(3, 3).to('mps')),\n"
        "    lambda: torch.linalg.lu_solve(torch.eye(2).to('mps'), torch.ones(2).int(), torch.ones(2, 2)),\n"
        ")\n"
        "for call in calls:\n"
        "    try:\n"
        "        call()\n"
        "    except (RuntimeError, NotImplementedError) as error:\n"
        "        print(type(error).__name__, str(error).splitlines()[0][:60])\n"
    )
    plain = code.replace("kernels='2.15'", "kernels='cpu'")
    said = run_with_torch(code).lines
    assert len(said) == 4
    assert said == run_with_torch(plain).lines
