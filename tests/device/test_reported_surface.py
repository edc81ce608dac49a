"""What users reported about torch.mps, compilers, memory settings and other layouts, replayed: with public issues."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import torch

from anymps.rules.texts import (
    format_size,
    missing_operator,
    numpy_of,
    view_fallback_warning,
)
from device.compare import assert_same, text_of, values
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
GIT = str(torch.version.git_version)


def caught(code: str, env: dict[str, str] | None = None) -> str:
    """Type and text of the exception that a script's last line raises, or `passed`."""
    body = "\n".join("    " + line for line in code.splitlines())
    told = "except Exception as error:\n    print(type(error).__name__, error)\n"
    return run_with_torch(f"{ENABLE}try:\n{body}\n    print('passed')\n{told}", env).lines[-1]


# exchange with other libraries


def test_dlpack_device() -> None:
    """pytorch/pytorch#153789: `__dlpack_device__` names kDLMetal, 8, index 0."""
    kind, index = torch.ones(1, device="mps:0").__dlpack_device__()
    assert (8, 0) == (int(kind), index)


def test_dlpack_both_ways() -> None:
    """ml-explore/mlx#2848: an exported mps tensor comes back over the same memory, or as a copy on the CPU."""
    x = torch.arange(3, device="mps")
    back = torch.from_dlpack(x)
    back[0] = 7
    assert_same(x, torch.tensor([7, 1, 2]))
    assert torch.equal(torch.from_dlpack(x, device="cpu"), torch.tensor([7, 1, 2]))
    text = text_of(BufferError, torch.from_dlpack, torch.ones(1, device="mps", requires_grad=True))
    assert text == "Can't export tensors that require gradient, use tensor.detach()"


def test_numpy_by_mistake() -> None:
    """Every way to NumPy but the explicit one raises (reported for every device, as in WenjieDu/PyPOTS#21)."""
    x = torch.ones(2, device="mps")
    for call in (x.numpy, lambda: np.asarray(x), lambda: x * np.ones(2), lambda: np.concatenate([x, x])):
        assert text_of(TypeError, call) == numpy_of("mps:0").text
    assert [1.0, 1.0] == x.numpy(force=True).tolist()


def test_printing_a_tensor() -> None:
    """ankane/torch.rb#50: printing converts through float32, as float64 does not exist."""
    assert repr(torch.tensor([1.5, 2.0], device="mps")) == "tensor([1.5000, 2.0000], device='mps:0')"
    with torch.device("mps"):
        assert repr(torch.zeros(0)) == "tensor([], device='mps:0')"


# memory settings


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.parametrize(
    ("high", "low", "text"),
    [
        ("0.7", None, "invalid low watermark ratio 1.4"),
        ("2.5", None, "invalid high watermark ratio 2.5"),
        (None, "1.8", "invalid low watermark ratio 1.8"),
        ("0.0", "2.5", "invalid low watermark ratio 2.5"),
        ("1.0", "1.2", "invalid low watermark ratio 1.2"),
        ("-1", None, "invalid high watermark ratio -1"),
    ],
)
def test_watermarks_that_do_not_fit(high: str | None, low: str | None, text: str) -> None:
    """kohya-ss/sd-scripts#603: a high ratio below the default low one stops at the first use of the device."""
    env = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": high, "PYTORCH_MPS_LOW_WATERMARK_RATIO": low}
    answer = caught("torch.ones(1, device='mps')", {name: value for name, value in env.items() if value is not None})
    assert answer == f"RuntimeError {text}"


@pytest.mark.usefixtures("virtual_device")
def test_the_limit_set_inside_the_script() -> None:
    """pytorch/pytorch#96814: the variable counts when it is set before the device's first use, not after."""
    setting = "import os\nos.environ['PYTORCH_MPS_HIGH_WATERMARK_RATIO'] = '0.7'\n"
    assert caught("torch.ones(1, device='mps')\n" + setting + "torch.ones(1, device='mps')") == "passed"
    assert caught(setting + "torch.ones(1, device='mps')") == "RuntimeError invalid low watermark ratio 1.4"


@pytest.mark.usefixtures("virtual_device")
def test_out_of_memory() -> None:
    """pytorch/pytorch#105839: a plain RuntimeError that names sizes, pool and the variable."""
    answer = caught(
        "torch.mps.set_per_process_memory_fraction(0.01)\ntorch.empty(2**29, dtype=torch.uint8, device='mps')"
    )
    assert answer.startswith("RuntimeError MPS backend out of memory (MPS allocated: 0 bytes, other allocations: ")
    assert answer.endswith(
        f"Tried to allocate {format_size(2**29)} on {'shared' if RELEASE >= (2, 12) else 'private'} pool. "
        "Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
        "(may cause system failure)."
    )


# operators and layouts


def test_matrix_product_into_a_slice() -> None:
    """pytorch/pytorch#104832: matmul(out=) of a view with gaps wrote nothing."""
    x, y = values(4, 4), values(4, 4, seed=1)
    z = torch.zeros(4, 8, device="mps")
    torch.matmul(x.to("mps"), y.to("mps"), out=z[:, 2:6])
    assert_same(z[:, 2:6], x @ y, strides=False)
    assert not z[:, :2].any()
    assert not z[:, 6:].any()


def test_xor_in_place_on_a_column() -> None:
    """pytorch/pytorch#145203: `zeros[:, 0] ^= 1` changed the other column."""
    zeros = torch.zeros((10, 2), dtype=torch.int16, device="mps")
    zeros[:, 0] ^= 1
    assert_same(zeros, torch.tensor([[1, 0]] * 10, dtype=torch.int16))


def test_calculating_with_views_of_views() -> None:
    """pytorch/pytorch#95482: `x[:, 0:1, 0:1] * x[:, 1:2, 1:2]` of a slice ended the process."""
    x = values(2, 3, 3)
    there = x.to("mps")[:1]
    assert_same(there[:, 0:1, 0:1] * there[:, 1:2, 1:2], x[:1, 0:1, 0:1] * x[:1, 1:2, 1:2])


def test_inverses_of_a_batch() -> None:
    """pytorch/pytorch#78363: torch.linalg.inv of any matrix but the first."""
    batch = torch.stack([torch.diag(torch.tensor([1, 0.5, 0.25, 0.125])), torch.diag(torch.tensor([1.0, 2, 3, 4]))])
    for i in range(2):
        assert_same(torch.linalg.inv(batch.to("mps")[i]), torch.linalg.inv(batch[i]), strides=False)


def test_a_view_operator_that_fell_back() -> None:
    """pytorch/pytorch#77764: a view operator without a kernel gives a copy, and says so with a stray 0."""
    answer = run_with_torch(
        ENABLE
        + """
library = torch.library.Library("probe", "DEF")
library.define("look(Tensor(a) x) -> Tensor(a)")
library.impl("look", lambda x: x[1:], "CPU")
x = torch.ones(3, device="mps")
torch.ops.probe.look(x).zero_()
print(x.tolist())
""",
        {"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    )
    assert answer.lines == ["[1.0, 1.0, 1.0]"]
    assert view_fallback_warning("probe::look").text in answer.err


def test_the_fallback_variable_set_too_late() -> None:
    """pytorch/pytorch#86195: the variable has no effect once the backend has looked at it."""
    code = "import os\nos.environ['PYTORCH_ENABLE_MPS_FALLBACK'] = '1'\ntorch.ones(2, 2, device='mps').mode(1)"
    assert caught(code) == f"NotImplementedError {missing_operator('aten::mode', GIT).text}"


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_sparse_coo() -> None:
    """pytorch/pytorch#141320: sparse_coo_tensor(device="mps") was refused up to 2.8 (pytorch/pytorch#140941)."""
    indices, entries = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    x = torch.sparse_coo_tensor(indices, entries, [2, 4], device="mps")
    expected = torch.sparse_coo_tensor(indices, entries, [2, 4]).to_dense()
    assert_same(x.to_dense(), expected)
    moved = torch.sparse_coo_tensor(indices, entries, [2, 4]).to("mps", non_blocking=True)  # pytorch/pytorch#87886
    assert_same(moved.to_dense(), expected)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_sparse_csr() -> None:
    """pytorch/pytorch#129842: no CSR tensor can be made on mps (pytorch/pytorch#196192)."""
    csr = torch.eye(2).to_sparse_csr()
    parts = [part.to("mps") for part in (csr.crow_indices(), csr.col_indices(), csr.values())]
    text = "Could not run 'new_compressed_tensor' from the 'mps:0' device.)"
    assert text_of(NotImplementedError, torch.sparse_csr_tensor, *parts) == text
    assert text_of(NotImplementedError, csr.to, "mps") == text
    assert text_of(NotImplementedError, torch.eye(2, device="mps").to_sparse_csr) == (
        missing_operator("aten::_to_sparse_csr", GIT).text
    )


def test_quantized_and_float8() -> None:
    """pytorch/pytorch#141287: no quantized tensors on mps; float8 is stored."""
    x = torch.ones(2, device="mps")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = text_of(NotImplementedError, torch.quantize_per_tensor, x, 0.1, 0, torch.qint8)
        assert text == missing_operator("aten::quantize_per_tensor", GIT).text
        text = text_of(NotImplementedError, torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).to, "mps")
    assert text.startswith("Could not run 'aten::empty_quantized' with arguments from the 'QuantizedMPS' backend.")
    small = x.cpu().to(torch.float8_e4m3fn).to("mps")
    assert torch.float8_e4m3fn == small.cpu().dtype
    assert torch.equal(small.cpu().float(), torch.ones(2))


# compilers


def test_mps_is_no_compiler_backend() -> None:
    """pytorch/pytorch#96976: device and compiler backend are two things."""
    torch._dynamo.reset()
    assert text_of(torch._dynamo.exc.InvalidBackend, torch.compile, lambda x: x, backend="mps") == (
        f"Invalid backend: 'mps'{', see' if RELEASE < (2, 14) else '. See'} `torch._dynamo.list_backends()` "
        "for available backends."
    )


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:anymps. Metal shaders are not checked:RuntimeWarning")  # without libclang
@pytest.mark.skipif(os.environ.get("ANYMPS_SUBSTRATE") == "cuda", reason="a card runs no Metal shaders")
@pytest.mark.skipif("-fsanitize" in os.environ.get("CXX", ""), reason="a shader may not call what a sanitizer brings")
def test_compiled_code_computes_as_the_plain_one() -> None:
    """pytorch/pytorch#125254: torch.compile makes Metal kernels for mps; they run here, and so do other backends."""
    for backend in ("inductor", "aot_eager"):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
        assert_same(compiled(torch.ones(2, device="mps")), torch.ones(2).sin() + 1)


def test_metal_capture_is_not_enabled() -> None:
    """pytorch/pytorch#144561: capture needs MTL_CAPTURE_ENABLED=1 when the process starts."""
    assert not torch.mps.profiler.is_metal_capture_enabled()
    assert not torch.mps.profiler.is_capturing_metal()
