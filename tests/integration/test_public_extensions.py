"""Compiled extensions that other people wrote for Macs build here, and pass their own tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from processes import run_command
from public_extensions import build, copied, extensions_of
from public_kernels import root_of

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("virtual_device"),
    pytest.mark.skipif(RELEASE < (2, 14), reason="they call torch_mps_set_arg_bytes, which torch has since 2.14"),
]

AGNOSTIC = "test/cpp_extensions/libtorch_agn_2_14_extension/csrc/mps"
SELECTED = "mps and (TestNMS or TestRoIAlign or TestRoIPool) and not performance"  # which asks the clock


def test_operators_of_torchvision(tmp_path: Path) -> None:
    """Its setup.py as it is, its own tests on mps against the CPU: forward, backward, compiled."""
    root = root_of("pytorch/vision")
    tree = copied(root, tmp_path / "vision", "torchvision", "test")
    (tree / "setup.py").write_bytes((root / "setup.py").read_bytes())
    extensions, foreign = extensions_of(tree / "setup.py", "make_C_extension", "make_C_stable_extension")
    assert not {"nms_kernel.mm", "roi_align_kernel.mm", "roi_pool_kernel.mm"} & set(foreign)
    build(extensions, tree)
    paths = os.pathsep.join((str(tree), os.environ.get("PYTHONPATH", "")))
    selected = ["--mps", "-q", "-p", "no:cacheprovider", "test_ops.py", "-k", SELECTED]
    ended = run_command("-m", "pytest", *selected, cwd=tree / "test", env={"PYTHONPATH": paths})
    assert ended.status == 0, ended.out[-4000:]
    passed = re.search(r"(\d+) passed", ended.out)
    assert passed is not None and int(passed[1]) >= 77


def test_pytorchs_own_extension(tmp_path: Path) -> None:
    """Bytes as arguments: their values, their limits in the words of torch, and that a launch keeps a copy of them."""
    from torch.utils.cpp_extension import CppExtension

    source = copied(root_of("pytorch/pytorch"), tmp_path, AGNOSTIC) / AGNOSTIC / "mps_set_arg_bytes_test.cpp"
    flags = ["-DTORCH_TARGET_VERSION=0x020e000000000000", "-DSTABLE_LIB_NAME=libtorch_agn_2_14", "-DUSE_MPS"]
    build([CppExtension("agnostic", [str(source)], py_limited_api=True, extra_compile_args={"cxx": flags})], tmp_path)
    torch.ops.load_library(tmp_path / "agnostic.so")
    ours = torch.ops.libtorch_agn_2_14
    x = torch.randn(1000, device="mps")
    found = ours.my_mps_scale_negate_clamp(x, 2.0, True, -0.75, 0.75)
    assert torch.equal(found.cpu(), (x.cpu() * -2).clamp(-0.75, 0.75))
    assert torch.equal(ours.my_mps_set_arg_bytes_lifetime(x).cpu(), x.cpu() * 3)
    assert ours.my_mps_set_arg_bytes_raw(x, 4096, False).shape == x.shape
    for size, null, text in ((4, True, "Pointer is null."), (0, False, "size must be in (0, 4096], got 0. ")):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            ours.my_mps_set_arg_bytes_raw(x, size, null)
