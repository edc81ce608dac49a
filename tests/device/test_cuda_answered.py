"""`enable(cuda_as_mps=True)`: torch.cuda, `.cuda()` and "cuda" are answered by mps, and by nothing when it is off."""

from __future__ import annotations

import importlib
import io
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import anymps
from anymps.device.cuda import REFUSED, REFUSED_MODULES, answers
from anymps.device.cuda._libraries import LIBRARIES
from anymps.device.cuda._names import functions_with_device
from anymps.device.cuda._tensors import LEGACY
from device.compare import text_of
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")


@pytest.fixture(autouse=True)
def answered(mps_device: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CUDA is answered during the test, and not after it."""
    monkeypatch.setenv("ANYMPS_CUDA_AS_MPS", "")
    anymps.enable(cuda_as_mps=True)
    yield
    anymps.enable(cuda_as_mps=False)


# Names of devices


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_names_of_cuda_devices_mean_mps(name: str) -> None:
    """Wherever torch takes a device by name."""
    x = torch.ones(2)
    module = nn.Linear(2, 2)
    made = {
        "factory": torch.zeros(2, device=name),
        "like": torch.zeros_like(x, device=name),
        "tensor": torch.tensor([1.0], device=name),
        "as_tensor": torch.as_tensor([1.0], device=name),
        "random": torch.randperm(4, device=name),
        "to": x.to(name),
        "to with a dtype": x.to(name, torch.float16),
        "to by keyword": x.to(device=name),
        "to, bound": [x.to][0](*[name]),
        "new": x.new_zeros(2, device=name),
        "module.to": module.to(name).weight,
        "module made there": nn.Linear(2, 2, device=name).weight,
        "to_empty": nn.Linear(2, 2, device="meta").to_empty(device=name).weight,
        "device object": x.to(torch.device(name)),
        "fft": torch.fft.fftfreq(4, device=name),
    }
    assert {what: tensor.device.type for what, tensor in made.items()} == dict.fromkeys(made, "mps")


def test_devices_are_those_of_mps() -> None:
    """`torch.device` tells the truth, however it is made, and stays the class that it is."""
    assert torch.device("cuda") == torch.device("mps")
    assert torch.device("cuda", 0) == torch.device("cuda:0") == torch.device(type="cuda", index=0)
    assert torch.device("cuda:0") == torch.ones(1).cuda().device
    assert isinstance(torch.device("cuda"), torch.device)
    assert pickle.loads(pickle.dumps(torch.device("cuda"))) == torch.device("mps")
    assert str(torch.device("cpu")) == "cpu"


def test_generators_and_contexts() -> None:
    """Generators, `with torch.device(...)` and the default device."""
    generator = torch.Generator("cuda").manual_seed(3)
    assert generator.device.type == "mps"
    assert torch.rand(2, device="cuda", generator=generator).is_mps
    with torch.device("cuda"):
        assert torch.zeros(1).is_mps
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(1).is_mps
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.zeros(1, device="cuda:1"),
        lambda: torch.device("cuda", 1),
        lambda: torch.ones(1).cuda(1),
        lambda: torch.cuda.set_device(1),
        lambda: torch.cuda.get_device_properties("cuda:1"),
        lambda: nn.Linear(1, 1).to("cuda:1"),
        lambda: nn.Linear(1, 1).cuda(1),
        lambda: torch.ones(1).cuda(np.int64(1)),
        lambda: torch.ones(1).cuda(torch.device(1)),
        lambda: torch.ones(1).untyped_storage().cuda(1),
    ],
)
def test_there_is_one_device(ask: object) -> None:
    """Another GPU is the error that CUDA has with one, and says what there is."""
    with pytest.raises(RuntimeError) as raised:
        ask()  # type: ignore[operator]
    assert str(raised.value) == (
        "CUDA error: invalid device ordinal\nanymps: a Mac has one GPU, so there is no cuda:1; use cuda or cuda:0"
    )


def test_a_name_that_torch_does_not_know_is_its_error() -> None:
    """Nothing is made up for what is no device."""
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.zeros(1, device="cuda:x")


# .cuda()


def test_cuda_methods_move_to_mps() -> None:
    """Of tensors, modules, storages; a tensor that is there stays itself."""
    x = torch.ones(2, requires_grad=True)
    y = x.cuda(non_blocking=True)
    y.sum().backward()
    assert (y.device.type, y.is_cuda, x.grad is not None) == ("mps", False, True)
    assert y.cuda() is y
    assert all(y.cuda(first) is y for first in (0, np.int64(0), "cuda:0", torch.device("cuda", 0)))
    assert text_of(RuntimeError, y.cuda, -1) == "Device index must not be negative"
    assert {parameter.device.type for parameter in nn.Linear(2, 2).cuda().parameters()} == {"mps"}
    assert torch.ones(2).untyped_storage().cuda().device.type == "mps"
    assert torch.ones(2).pin_memory().tolist() == [1.0, 1.0]


def test_legacy_types() -> None:
    """torch.cuda.FloatTensor makes tensors on mps, is their type, and can be the default."""
    kind = torch.cuda.FloatTensor
    assert kind(2, 3).shape == (2, 3)
    assert kind([1.0]).is_mps
    assert isinstance(torch.ones(1).cuda(), kind)
    assert not isinstance(torch.ones(1), kind)
    assert torch.ones(1).type(torch.cuda.HalfTensor).dtype == torch.float16
    assert torch.ones(1).type("torch.cuda.LongTensor").is_mps
    assert torch.ones(1).type(torch.float16).device.type == "cpu"
    assert torch.ones(1).type() == "torch.FloatTensor"


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_legacy_type_is_the_default() -> None:
    """With torch.cuda.FloatTensor as the default type torch.Tensor makes its tensors on mps, too."""

    class Mine(torch.Tensor):
        pass

    there = torch.ones(1).cuda()
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    try:
        made = [
            torch.Tensor([1.0]),
            torch.Tensor(2, 3),
            torch.Tensor(torch.Size([2, 3])),
            torch.Tensor(),
            torch.zeros(2),
        ]
        assert [(tensor.device.type, tuple(tensor.shape)) for tensor in made] == [
            *[("mps", (1,)), ("mps", (2, 3)), ("mps", (2, 3)), ("mps", (0,)), ("mps", (2,))]
        ]
        assert made[0].tolist() == torch.Tensor(np.ones(1)).tolist() == [1.0]
        assert isinstance(made[0], torch.cuda.FloatTensor)
        assert nn.Parameter(torch.Tensor(2, 2)).is_mps
        assert (type(Mine([1.0])), Mine([1.0]).is_mps) == (Mine, True)
        assert {tensor.device.type for tensor in (torch.FloatTensor([1.0]), torch.Tensor([1.0], device="cpu"))} == {
            "cpu"
        }
        assert torch.Tensor(there).data_ptr() == there.data_ptr()  # another view of the same
        torch.set_default_tensor_type(torch.cuda.HalfTensor)
        assert torch.Tensor([1.0]).dtype == torch.float16
        with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
            torch.set_default_tensor_type(torch.cuda.LongTensor)
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    assert {tensor.device.type for tensor in (torch.Tensor([1.0]), torch.Tensor(2, 3), torch.zeros(1))} == {"cpu"}
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    anymps.enable(cuda_as_mps=False)
    assert {tensor.device.type for tensor in (torch.Tensor([1.0]), torch.zeros(1))} == {"cpu"}


def test_dynamo_can_be_imported_with_a_legacy_type_as_the_default() -> None:
    """As the first optimizer does: Dynamo looks at the parameters of `torch.Tensor.__new__`."""
    lines = run_with_torch("""
        import sys, warnings
        import torch, anymps

        warnings.simplefilter("ignore")
        anymps.enable("M2 16GB", cuda_as_mps=True, quiet=True)
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert "torch._dynamo" not in sys.modules
        weight = torch.nn.Parameter(torch.Tensor([2.0]))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        import torch._dynamo
        weight.square().sum().backward()
        optimizer.step()
        print(weight.device.type, weight.tolist())
    """).lines
    assert lines == ["mps [-2.0]"]


def test_checkpoints_of_cuda_load() -> None:
    """`map_location` by name, by function, by table; and a file that was saved on CUDA."""
    file = io.BytesIO()
    torch.save({"w": torch.ones(2, device="mps")}, file)
    on_cuda = file.getvalue()
    for where in ("cuda", "cuda:0", torch.device("cuda"), lambda storage, _: storage.cuda(), {"mps:0": "cuda:0"}):
        assert torch.load(io.BytesIO(on_cuda), map_location=where)["w"].is_mps


# torch.cuda


def test_every_public_name_is_answered_refused_or_kept() -> None:
    """The names of torch.cuda of this release: none is forgotten."""
    kept = {
        # Modules: what they hold is answered or refused by itself.
        *("amp", "graphs", "jiterator", "memory", "nccl", "nvtx", "profiler", "random", "sparse", "streams", "tunable"),
        *("CudaError", "DeferredCudaCallError", "check_error", "cudaStatus"),  # an error, or asks for one
        *("has_half", "has_magma", "default_generators"),  # of the build; holds the generator of mps
    }
    storages = {f"{name.removesuffix('Tensor')}Storage" for name in LEGACY}  # torch deprecates them, and says so
    storages |= {"ComplexDoubleStorage", "ComplexFloatStorage"}
    known = {*answers(None), *REFUSED, *REFUSED_MODULES, *kept, *storages}
    assert sorted(set(torch.cuda.__all__) - known) == []


def test_every_refused_name_says_what_to_use() -> None:
    """Each raises one sentence."""
    for name, instead in REFUSED.items():
        if hasattr(torch.cuda, name):
            with pytest.raises(NotImplementedError) as raised:
                getattr(torch.cuda, name)()
            assert str(raised.value) == f"anymps: torch.cuda.{name} has no counterpart on a Mac; {instead}"


def test_the_device() -> None:
    """What a program asks before it starts."""
    cuda = torch.cuda
    assert (cuda.is_available(), cuda.device_count(), cuda.current_device(), cuda.is_initialized()) == (
        True,
        1,
        0,
        True,
    )
    assert cuda.get_device_capability() == (0, 0)
    assert cuda.get_device_name(0).startswith("Apple M")
    properties = cuda.get_device_properties("cuda:0")
    assert properties.total_memory == torch.mps.recommended_max_memory()
    assert properties.gcnArchName == ""
    with cuda.device(0), cuda.device_of(torch.ones(1)):
        cuda.synchronize()
    assert cuda.is_bf16_supported()


def test_memory_is_that_of_mps() -> None:
    """Allocated, reserved, peaks and what is free."""
    cuda = torch.cuda
    cuda.empty_cache()  # a larger block that another test freed would be used again, and counted whole
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    x = torch.zeros(1 << 20, device="cuda")
    assert cuda.memory_allocated() - before == x.nbytes
    assert cuda.memory_allocated() == torch.mps.current_allocated_memory()
    del x
    assert cuda.max_memory_allocated() - before >= 4 << 20
    free, total = cuda.mem_get_info()
    assert free == total - cuda.memory_reserved()
    assert cuda.memory_stats()["allocated_bytes.all.current"] == cuda.memory_allocated()
    assert cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == cuda.memory_allocated()
    assert "allocated_bytes.all.current" in cuda.memory_summary()
    cuda.empty_cache()


def test_a_peak_is_what_was_seen_where_mps_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.13 the accelerator's memory functions do not serve mps: the most that was asked for counts."""

    def unserved() -> None:
        raise RuntimeError("Allocator for mps is not a DeviceAllocator.")

    for name in ("max_memory_allocated", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.accelerator, name, unserved, raising=False)
    cuda = torch.cuda
    cuda.reset_peak_memory_stats()
    x = torch.zeros(1 << 20, device="cuda")
    highest = cuda.memory_allocated(), cuda.memory_reserved()
    del x
    cuda.empty_cache()
    assert cuda.memory_allocated() < highest[0]
    assert (cuda.max_memory_allocated(), cuda.max_memory_reserved()) == highest
    assert cuda.memory_stats()["allocated_bytes.all.peak"] == highest[0]
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated()


def test_random_numbers_are_those_of_mps() -> None:
    """Seeds and states."""
    torch.cuda.manual_seed_all(5)
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state_all([state])
    assert torch.equal(first, torch.rand(3, device="mps"))
    assert torch.cuda.initial_seed() == 5
    with torch.random.fork_rng():
        torch.rand(3, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), torch.mps.get_rng_state())


def test_streams_and_events() -> None:
    """A prefetcher's stream, and a timing by events."""
    stream = torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() is stream
        y = torch.ones(4, 4).cuda(non_blocking=True) @ torch.ones(4, 4, device="cuda")
    torch.cuda.current_stream().wait_stream(stream)
    y.record_stream(torch.cuda.current_stream())
    end.record()
    torch.cuda.synchronize()
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    assert start.elapsed_time(end) >= 0
    assert stream.query()
    assert y.sum().item() == 64


@pytest.mark.filterwarnings("ignore:.torch.cuda.amp:FutureWarning")
def test_mixed_precision() -> None:
    """autocast and GradScaler, of torch.amp and torch.cuda.amp, are those of mps."""
    x = torch.rand(4, 4, device="cuda", requires_grad=True)
    for region in (torch.autocast("cuda"), torch.autocast(device_type="cuda"), torch.cuda.amp.autocast()):
        with region:
            assert (x @ x).dtype == torch.float16
    for scaler in (torch.amp.GradScaler("cuda"), torch.amp.GradScaler(), torch.cuda.amp.GradScaler()):
        assert scaler.is_enabled()
        optimizer = torch.optim.SGD([x], lr=0.1)
        scaler.scale((x * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()


def test_custom_functions_under_autocast() -> None:
    """`custom_fwd(device_type="cuda", cast_inputs=...)` casts tensors on mps."""

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    x = torch.ones(2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = Double.apply(x)
    y.sum().backward()
    assert y.dtype == torch.float16


def test_data_parallel_moves_the_batch() -> None:
    """With one device the module runs there, and what it is given is moved as on CUDA."""
    module = nn.DataParallel(nn.Linear(2, 2).cuda())
    module(torch.ones(3, 2)).sum().backward()
    assert module.module.weight.grad.is_mps


def test_marks_for_tools_of_nvidia_do_nothing() -> None:
    """nvtx and the profiler of CUDA."""
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("step"), torch.cuda.profiler.profile():
        pass


def test_compiled_code_may_name_cuda() -> None:
    """torch.compile sees torch's own functions, which keep their places."""

    @torch.compile(backend="eager", fullgraph=True)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * torch.full((2,), 2.0, device="cuda") + x.to("cuda")

    assert double(torch.ones(2, device="cuda")).tolist() == [3.0, 3.0]


def test_dynamo_may_know_torch_before() -> None:
    """Dynamo looks torch's functions up by their hashes, which change when CUDA is answered."""
    code = """
import anymps, torch
@torch.compile(backend="eager", fullgraph=True)
def before(x):
    return x * torch.full((2,), 2.0)
before(torch.ones(2))
anymps.enable("M3 Pro 18GB", quiet=True, cuda_as_mps=True)
@torch.compile(backend="eager", fullgraph=True)
def after(x):
    return x * torch.full((2,), 2.0, device="cuda")
print(after(torch.ones(2, device="cuda")).tolist())
"""
    assert run_with_torch(code).lines == ["[2.0, 2.0]"]


# Libraries


def test_libraries_of_cuda_are_absent() -> None:
    """An import says what to use, and is an ImportError, so that a program's own way out is taken."""
    with pytest.raises(ImportError) as raised:
        import flash_attn  # noqa: F401
    assert str(raised.value) == (
        "anymps: flash_attn has no counterpart on a Mac; use torch.nn.functional.scaled_dot_product_attention"
    )
    assert importlib.util.find_spec("flash_attn") is None
    assert importlib.util.find_spec("json") is not None


def test_the_page_names_the_libraries_that_are_absent() -> None:
    """Those of the sentence; bitsandbytes has a backend for mps and is none of them."""
    page = (Path(__file__).parents[2] / "docs/cuda.md").read_text(encoding="utf-8")
    sentence = page.partition("Libraries that do not exist on a Mac")[2].partition("(")[0]
    assert re.findall(r"`(\w+)`", sentence) == sorted(LIBRARIES)
    assert "bitsandbytes" not in LIBRARIES


@pytest.mark.parametrize(
    ("caller", "answer"), [("bitsandbytes.cextension", False), ("optimum.quanto.library", False), ("optimum", True)]
)
def test_libraries_with_code_for_mps_see_a_mac(caller: str, answer: bool) -> None:
    """They load code for CUDA where CUDA is available; a Mac's answer makes them take what they have for mps."""
    assert eval("torch.cuda.is_available()", {"__name__": caller, "torch": torch}) is answer


def test_nccl_is_absent() -> None:
    """The backend of CUDA between processes."""
    with pytest.raises(NotImplementedError, match="use the gloo backend with CPU tensors between processes"):
        torch.distributed.init_process_group("nccl")
    assert not torch.distributed.is_nccl_available()


def test_extensions_with_cuda_are_refused() -> None:
    """load, load_inline and CUDAExtension of torch.utils.cpp_extension, imported before or after."""
    lines = run_with_torch(
        """
import torch, anymps
anymps.enable(cuda_as_mps=True, quiet=True)
from torch.utils import cpp_extension
for call in (
    lambda: cpp_extension.load("x", ["x.cpp", "x.cu"]),
    lambda: cpp_extension.load_inline("x", [""], cuda_sources=["__global__"]),
    lambda: cpp_extension.CUDAExtension("x", ["x.cu"]),
):
    try:
        call()
    except NotImplementedError as error:
        print(error)
"""
    ).lines
    assert [line.partition(" with CUDA")[0] for line in lines] == [
        f"anymps: torch.utils.cpp_extension.{name}" for name in ("load", "load_inline", "CUDAExtension")
    ]


# Off


def test_nothing_stays() -> None:
    """Off again, torch is what it was: its objects, its answers, its errors."""
    before = {name: getattr(torch.cuda, name) for name in torch.cuda.__all__}
    anymps.enable(cuda_as_mps=False)
    after = {name: getattr(torch.cuda, name) for name in torch.cuda.__all__}
    assert not torch.cuda.is_available()
    assert [name for name in (*answers(None), *REFUSED) if name in after and after[name] is before[name]] == []
    assert "cuda" not in vars(torch.Tensor)
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1, device="cuda")
    assert str(torch.device("cuda", 1)) == "cuda:1"


def test_functions_stay_the_objects_that_they_are() -> None:
    """`from torch import zeros` before it was on leads to the same function."""
    lines = run_with_torch(
        """
from torch import zeros
import torch, anymps
move, was = torch.Tensor.to, torch.zeros
anymps.enable(cuda_as_mps=True, quiet=True)
print(zeros(1, device="cuda").device, move(zeros(1), "cuda").device, torch.zeros is was)
"""
    ).lines
    assert lines == ["mps:0 mps:0 True"]


def test_every_operator_with_a_device_is_renamed() -> None:
    """The operators of this release that are given a device have their functions and methods in the list."""
    names = {schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas() if _takes_device(schema)}
    entered = {function.__name__ for function in functions_with_device()}
    built_in = type(torch.empty)
    forgotten = sorted(
        name
        for name in names
        if isinstance(getattr(torch, name, None), built_in) and not name.startswith("_") and name not in entered
    )
    methods = sorted(
        name
        for name in names
        if hasattr(torch._C.TensorBase, name) and not name.startswith("_") and name not in entered
    )
    assert (forgotten, methods) == ([], ["is_pinned", "pin_memory"])


def _takes_device(schema: torch._C.FunctionSchema) -> bool:
    return schema.name.startswith("aten::") and any(argument.name == "device" for argument in schema.arguments)
