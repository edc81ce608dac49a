"""What compiled programs find: the operators that they call as C functions, and who loads them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps.device._generated import generated_headers
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")

HEADER = generated_headers(torch.__version__)["anymps/operator_shims.h"]
DECLARED = dict(re.findall(r"^AOTITorchError aoti_torch_mps_(\w+)\((.*)\) \{$", HEADER, re.MULTILINE))
AGAIN = "make it again here with torch._inductor.aoti_compile_and_package"


# --- the list ---

C_TYPES = {
    "Tensor": "AtenTensorHandle",
    "Generator": "AtenGeneratorHandle",
    "str": "const char*",
    **dict.fromkeys(("bool", "ScalarType", "Layout", "MemoryFormat"), "int32_t"),
    **dict.fromkeys(("int", "SymInt"), "int64_t"),
    **dict.fromkeys(("float", "number"), "double"),
}


def c_types(kind: str) -> Iterator[str]:
    """How a C function takes an argument of this type of a schema."""
    optional = re.fullmatch(r"Optional\[(.*)\]", kind)
    star, kind = ("*", optional[1]) if optional else ("", kind)
    several = re.fullmatch(r"List\[(.*)\]", kind)
    if several:
        (element,) = c_types(several[1])
        yield from (f"const {element}*{star}", "int64_t")
    elif kind == "Device":
        yield from (f"int32_t{star}", "int32_t")
    else:
        yield f"{C_TYPES[kind]}{star}"


SCHEMAS = {
    f"{schema.name}_{schema.overload_name}".removeprefix("aten::").rstrip("_") if schema.overload_name
    else schema.name.removeprefix("aten::"): schema
    for schema in torch._C._jit_get_all_schemas()
    if schema.name.startswith("aten::")
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
def test_a_function_takes_what_its_operator_takes(name: str) -> None:
    """What the operator writes to, its other arguments, a place for each result; an earlier version lacks the last."""
    given = [parameter.rpartition(" ")[0].strip() for parameter in DECLARED[name].split(",")]
    schema = SCHEMAS[re.sub(r"_v\d$", "", name)]
    in_order = sorted(schema.arguments, key=lambda argument: not argument.is_out)
    taken = [kind for argument in in_order for kind in c_types(str(argument.real_type))]
    results = [] if schema.is_mutable else [f"{C_TYPES[str(result.type)]}*" for result in schema.returns]
    inputs = given[: len(given) - len(results)]
    assert given[len(inputs) :] == results
    assert inputs == taken[: len(inputs)]
    if f"{name}_v2" not in DECLARED:
        assert len(inputs) == len(taken)


# --- the functions ---


@pytest.fixture(scope="module")
def functions() -> ctypes.CDLL:
    """The native core, as a program that is linked to it sees it."""
    return ctypes.CDLL(sys.modules["anymps._native"].__file__)


def handle(tensor: torch.Tensor) -> ctypes.c_void_p:
    """The tensor as the C functions know it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.c_void_p(pointer(torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor), None))


def tensor_of(place: ctypes.c_void_p) -> torch.Tensor:
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor: torch.Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(place, None, None))
    return tensor


def to_c(value: Any) -> list[Any]:
    """The arguments of C that stand for a value: a list is an array and its length."""
    if isinstance(value, torch.Tensor):
        return [handle(value)]
    if isinstance(value, str):
        return [value.encode()]
    if isinstance(value, list):
        items = [to_c(item)[0] for item in value]
        return [(type(items[0]) * len(items))(*items), ctypes.c_int64(len(items))]
    kinds = {bool: ctypes.c_int32, int: ctypes.c_int64, float: ctypes.c_double, type(None): ctypes.c_void_p}
    return [value if type(value) not in kinds else kinds[type(value)](value)]


def call(functions: ctypes.CDLL, name: str, *given: Any, results: int = 1) -> list[torch.Tensor]:
    """Calls `aoti_torch_mps_<name>` and returns its results. Raises RuntimeError if it fails."""
    places = [ctypes.c_void_p() for _ in range(results)]
    values = [argument for value in given for argument in to_c(value)]
    if functions[f"aoti_torch_mps_{name}"](*values, *map(ctypes.byref, places)) != 0:
        raise RuntimeError(name)
    return [tensor_of(place) for place in places]


def some(value: Any) -> Any:
    """An optional argument that is given: a pointer to it."""
    return ctypes.byref(to_c(value)[0])


def test_lists_numbers_and_several_results(functions: ctypes.CDLL) -> None:
    """The results are those of the operators."""
    x = torch.randn(4, 6, device="mps")
    for mine, torchs in zip(call(functions, "topk", x, 3, 1, True, True, results=2), x.topk(3, 1), strict=True):
        assert torch.equal(mine, torchs)
    assert torch.equal(call(functions, "cat", [x, x + 1], 1)[0], torch.cat([x, x + 1], 1))
    assert torch.equal(call(functions, "add_Tensor", x, x, 2.0)[0], torch.add(x, x, alpha=2))
    assert torch.equal(call(functions, "pad", x, [1, 2], "constant", None)[0], torch.nn.functional.pad(x, (1, 2)))


def test_what_is_written_to_comes_first(functions: ctypes.CDLL) -> None:
    x, out = torch.randn(4, 4, device="mps"), torch.empty(4, 4, device="mps")
    assert call(functions, "addmm_out", out, x, x, x, 1.0, 0.5, results=0) == []
    assert torch.equal(out, torch.addmm(x, x, x, alpha=0.5))
    call(functions, "fill__Scalar", out, 3.0, results=0)
    assert torch.equal(out.cpu(), torch.full((4, 4), 3.0))


def test_arguments_that_may_be_missing(functions: ctypes.CDLL) -> None:
    """A tensor, a list, a tensor of a list, a device, a type."""
    x, weight, bias = (torch.randn(*size, device="mps") for size in ((1, 2, 5, 5), (3, 2, 3, 3), (3,)))
    rest = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert torch.equal(call(functions, "convolution", x, weight, None, *rest)[0], torch.conv2d(x, weight))
    (result,) = call(functions, "convolution", x, weight, some(bias), *rest)
    assert torch.equal(result, torch.conv2d(x, weight, bias))

    sizes = (ctypes.c_int64 * 1)(3)
    bias_sizes = [ctypes.byref(ctypes.c_void_p(ctypes.addressof(sizes))), ctypes.c_int64(1)]
    gradients = call(
        functions, "convolution_backward", result, x, weight, *bias_sizes, *rest, [True, False, True], results=3
    )
    assert torch.equal(gradients[2], result.sum((0, 2, 3)))
    assert gradients[0].shape == x.shape

    rows = torch.tensor([2, 0], device="mps")
    one = ctypes.pointer(handle(rows))
    indices = (ctypes.c_void_p * 2)(None, ctypes.cast(one, ctypes.c_void_p))
    assert torch.equal(call(functions, "index_Tensor", bias.expand(2, 3), indices, 2)[0], bias.expand(2, 3)[:, rows])

    half, on_mps = ctypes.c_int32(5), ctypes.c_int32(13)  # c10::ScalarType::Half, c10::DeviceType::MPS
    given = (ctypes.byref(half), None, ctypes.byref(on_mps), ctypes.c_int32(0), None)
    (drawn,) = call(functions, "rand", [2, 3], *given)
    assert (drawn.shape, drawn.dtype, drawn.device) == ((2, 3), torch.float16, torch.device("mps:0"))


def test_a_refusal_is_an_error_code(functions: ctypes.CDLL) -> None:
    """As in every function of torch's C interface, whose callers raise the text."""
    told = functions.torch_exception_get_what_without_backtrace
    told.restype = ctypes.c_char_p
    x = torch.ones(3, 3, device="mps")
    with pytest.raises(RuntimeError, match="mm_out"):
        call(functions, "mm_out", x, x, torch.ones(2, 2, device="mps"), results=0)
    assert told().decode() == "mat1 and mat2 shapes cannot be multiplied (3x3 and 2x2)"


# --- who loads programs ---


def refusal(path: Path) -> str:
    """What is said of a file that is no program for mps."""
    with pytest.raises(RuntimeError) as raised:
        torch._C._aoti.AOTIModelContainerRunnerMps(str(path), 1)
    return str(raised.value)


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    """One for macOS, one that was cut short, one that says nothing, none: one line each."""
    program = tmp_path / "model.so"
    whole = Path(torch._C.__file__).read_bytes()
    cases = {
        b"\xcf\xfa\xed\xfe" + bytes(100): "is one for macOS, which this machine cannot load",
        whole[: len(whole) // 2]: "is not whole",
        b"text" * 100: f"cannot be loaded ({program}: invalid ELF header)",
    }
    for content, why in cases.items():
        program.write_bytes(content)
        assert refusal(program) == f"anymps: the compiled program {why}: {AGAIN}"
    missing = tmp_path / "none.so"
    why = f"{missing}: cannot open shared object file: No such file or directory"
    assert refusal(missing) == f"anymps: the compiled program cannot be loaded ({why}): {AGAIN}"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_program_that_calls_what_this_torch_lacks(tmp_path: Path) -> None:
    """As one of another release may."""
    source, program = tmp_path / "model.c", tmp_path / "model.so"
    source.write_text("int aoti_torch_mps_unheard(void);\nint run(void) { return aoti_torch_mps_unheard(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", program], check=True)
    why = f"calls aoti_torch_mps_unheard, which torch {torch.__version__.partition('+')[0]} does not have"
    assert refusal(program) == f"anymps: the compiled program {why}: {AGAIN}"


def test_tensors_on_an_nvidia_gpu_are_out_of_reach(tmp_path: Path) -> None:
    """Nothing is loaded: a program's kernels run on this machine's processor."""
    code = f"""
        from anymps.device import enable
        enable("M2 16GB", quiet=True, require="virtual", substrate="cuda")
        import torch
        try:
            torch._C._aoti.AOTIModelContainerRunnerMps({str(tmp_path / "model.so")!r}, 1)
        except RuntimeError as error:
            print(error)
    """
    why = "run on this machine's CPU, which cannot reach tensors on the NVIDIA GPU: use --substrate host"
    assert run_with_torch(code, {"ANYMPS_GPU": "cpu"}).lines[-1] == f"anymps: packages of AOTInductor {why}"
