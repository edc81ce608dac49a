"""The real backend's words about operators, data types and devices, by torch version.

Every function returns a BackendText: the class torch raises (or warns with) and the text, word for word, odd blanks
and quotes included. Source, unless a function says otherwise: the C strings of `libtorch_cpu.dylib` in the macOS arm64
wheels of torch 2.11 to 2.15. Device arguments are texts as torch prints them: `mps:0`, `cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anymps.rules._encoding import Family
from anymps.rules._readings import Reading
from anymps.rules._versions import CpuCopyToFloat64, TorchVersion, version_rules

READING: Final = Reading("texts.calls", "C strings of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))

_ISSUE: Final = (
    "If you want this op to be considered for addition please comment on "
    "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op "
    "as well as commit hash "
)


class BackendText(NamedTuple):
    """What the real backend says: the name of the exception or warning class, and the text."""

    error: str
    text: str


# --- operators without a kernel: MPSFallback.mm, CPUFallback.cpp


def fallback_warning(operator: str) -> BackendText:
    """The warning of an operator (`aten::mode`) that runs on the CPU; given once a process, for all operators."""
    return BackendText(
        "UserWarning",
        f"The operator '{operator}' is not currently supported on the MPS backend and will fall back to run on the "
        "CPU. This may have performance implications.",
    )


def missing_operator(operator: str, git_version: str) -> BackendText:
    """The error of an operator without a kernel; `git_version` is `torch.version.git_version`, the full hash."""
    return BackendText(
        "NotImplementedError",
        f"The operator '{operator}' is not currently implemented for the MPS device. {_ISSUE}{git_version}. "
        "As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a "
        "fallback for this op. WARNING: this will be slower than running natively on MPS.",
    )


def distributed_operator(operator: str, git_version: str) -> BackendText:
    """The error of an operator of namespace `c10d`, with and without the fallback variable."""
    return BackendText(
        "NotImplementedError",
        f"The distributed operator '{operator}' is not currently implemented for the MPS device. {_ISSUE}{git_version}"
        ". Please note, that distributed operators can not fall back to CPU",
    )


def view_fallback_warning(operator: str, device: str = "mps:0") -> BackendText:
    """The warning of each fallback of a view operator, whose result is then a copy.

    The leading 0 is real: CPUFallback.cpp streams a `false` into the text.
    """
    return BackendText(
        "UserWarning",
        f"0The operator {operator} appears to be a view operator, but it has no implementation for the backend "
        f"\"{device}\". View operators don't support falling back to run on the CPU, since the tensor's storage cannot "
        "be shared across devices.",
    )


def slow_convolution_devices(input_device: str, weight_device: str) -> BackendText:
    """`_slow_conv2d_forward` with tensors on two devices; the quotes are unbalanced in torch too."""
    return BackendText(
        "RuntimeError",
        f"slow_conv2d_forward_mps: input(device='{input_device}') and weight(device={weight_device}')  must be on the "
        "same device",
    )


# --- data types: EmptyTensor.cpp, OperationUtils.mm, Copy.mm


def float64_allocation() -> BackendText:
    """Any allocation of a float64 mps tensor; from 2.12 on, of a complex128 one too."""
    return BackendText(
        "TypeError",
        "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
        "Please use float32 instead.",
    )


def float64_graph() -> BackendText:
    """An existing float64 tensor, such as a 0-dim CPU one, that reaches an MPSGraph operator."""
    return BackendText(
        "TypeError",
        "Cannot convert a float64 Tensor to MPS as the MPS framework doesn't support float64. "
        "Please use float32 instead.",
    )


def float64_kernel() -> BackendText:
    """A Metal binary or ternary kernel whose result type is float64."""
    return BackendText("RuntimeError", "float64 is not supported on MPS")


def unsupported_dtype(scalar_type: str) -> BackendText:
    """A type that MPSGraph does not know; `scalar_type` is the C++ name: `ComplexDouble`, `Float8_e4m3fn`."""
    return BackendText(
        "TypeError",
        f"Trying to convert {scalar_type} to the MPS backend but it does not have support for that dtype.",
    )


def undefined_type(scalar_type: str) -> BackendText:
    """A type that has no Metal name."""
    return BackendText("RuntimeError", f"Undefined type {scalar_type}")


def missing_kernel(kernel: str) -> BackendText:
    """A Metal kernel without a specialisation for the type, or an unknown name in a shader library."""
    return BackendText("RuntimeError", f"Failed to create function state object for: {kernel}")


def copy_to_cpu_as_float64(version: str | TorchVersion, scalar_type: str = "Double") -> BackendText | None:
    """`x_mps.to("cpu", torch.float64)` in one step; None in torch 2.14, which says nothing and writes nothing."""
    how = version_rules(version).cpu_copy_to_float64
    if how is CpuCopyToFloat64.SILENT:
        return None
    refused = how is CpuCopyToFloat64.REFUSED
    if refused and scalar_type == "ComplexDouble" and not version_rules(version).complex128_refused:
        return unsupported_dtype(scalar_type)  # the temporary tensor of that dtype is made, and the cast into it fails
    return float64_allocation() if refused else undefined_type(scalar_type)


def complex128_allocation(version: str | TorchVersion) -> BackendText | None:
    """`empty` of a complex128 mps tensor; None in torch 2.11, where it is made and fails later."""
    return float64_allocation() if version_rules(version).complex128_refused else None


def item_of_empty() -> BackendText:
    """`.item()` of a tensor without elements."""
    return BackendText("RuntimeError", "_local_scalar_dense: Empty tensor not supported")


def pinned_allocation() -> BackendText:
    """`pin_memory=True` up to torch 2.13, whose pinned allocator is the MPS allocator; two blanks are real."""
    return BackendText(
        "RuntimeError",
        'Attempted to set the storage of a tensor on device "cpu" to a storage on different device "mps:0".  '
        "This is no longer allowed; the devices must match.",
    )


# --- shapes and layouts: EmptyTensor.cpp


def not_strided() -> BackendText:
    """A factory asked for a layout other than strided."""
    return BackendText("NotImplementedError", "only strided tensors are supported on MPS")


def sixteen_dims(dims: int) -> BackendText:
    """A factory asked for more than 16 dimensions (`empty_strided` does not check)."""
    return BackendText("RuntimeError", f"MPS supports tensors with dimensions <= 16, but got {dims}.")


# --- devices: TensorIterator.cpp, TensorUtils.cpp, OperationUtils.mm, Linear.mm


def devices_differ(family: Family, *devices: str) -> BackendText:
    """The text of the families whose words depend on nothing but the devices.

    `devices`: for ITERATOR the first device that is not the CPU and then the other one, whatever the order of the
    arguments; for DOT both in order; for MASKED_FILL the mask's and then the tensor's; otherwise none.
    Raises KeyError for a family that has a function of its own, or no text.
    """
    if family is Family.ITERATOR:
        return BackendText(
            "RuntimeError",
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!",
        )
    if family is Family.DOT:
        return BackendText(
            "RuntimeError", f"Expected all tensors to be on the same device. Found: {devices[0]}, {devices[1]}"
        )
    if family is Family.MASKED_FILL:
        return BackendText(
            "RuntimeError",
            f"expected self and mask to be on the same device, but got mask on {devices[0]} and self on {devices[1]}",
        )
    return BackendText("RuntimeError", _FIXED[family])


_FIXED: Final = {
    Family.PLACEHOLDER: "Placeholder storage has not been allocated on MPS device!",
    Family.METAL: "Passed CPU tensor to MPS op",
}


def too_many_cpu_scalars() -> BackendText:
    """A second 0-dim CPU tensor beside mps tensors in a TensorIterator operator."""
    return BackendText("RuntimeError", "Trying to pass too many CPU scalars to non-CPU kernel!")


class SameGpuCheck(NamedTuple):
    """A `checkAllSameGPU` call: the function it names, and (number, printed name, schema name) of its tensors.

    Number 0 is the result, whose schema name is `out`; it is allocated where the first schema argument lies.
    """

    checked_in: str
    arguments: tuple[tuple[int, str, str], ...]


_MM: Final = SameGpuCheck("mm", ((0, "out", "out"), (1, "mat1", "self"), (2, "mat2", "mat2")))
_ADDMM: Final = SameGpuCheck(
    "addmm_out_mps_impl", ((0, "out", "out"), (1, "self", "self"), (2, "mat1", "mat1"), (3, "mat2", "mat2"))
)
_CONVOLUTION: Final = SameGpuCheck("mps_convolution", ((1, "input", "self"), (2, "weight", "weight")))
_CONVOLUTION_INPUT: Final = SameGpuCheck(
    "mps_convolution_backward_input", ((1, "grad_output", "grad_output"), (2, "weight", "weight"))
)

SAME_GPU_CHECKS: Final[dict[str, SameGpuCheck]] = {
    "_ctc_loss": SameGpuCheck("ctc_loss_mps", ((1, "log_probs", "log_probs"), (2, "targets", "targets"))),
    "_mps_convolution": _CONVOLUTION,
    # the transposed convolution is the input gradient of a convolution: Convolution.mm
    "_mps_convolution_transpose": SameGpuCheck(
        "mps_convolution_backward_input", ((1, "grad_output", "self"), (2, "weight", "weight"))
    ),
    "addmm": _ADDMM,
    "addmm_": _ADDMM,
    "addr": SameGpuCheck(
        "addr_out_mps", ((0, "out", "out"), (1, "self", "self"), (2, "vec1", "vec1"), (3, "vec2", "vec2"))
    ),
    # torch 2.14: Linear.mm multiplies with mm
    "linear_backward": SameGpuCheck("mm", ((0, "out", "out"), (1, "mat1", "grad_output"), (2, "mat2", "weight"))),
    "mm": _MM,
    "mps_convolution_backward": _CONVOLUTION_INPUT,
    "mps_convolution_transpose_backward": SameGpuCheck(
        "mps_convolution", ((1, "input", "grad_output"), (2, "weight", "weight"))
    ),
}
"""The checks of family SAME_GPU by base name: LinearAlgebra.mm, Convolution.mm, and LossCTC.mm from torch 2.14."""


def tensor_on_cpu(check: SameGpuCheck, on_cpu: Sequence[str]) -> BackendText | None:
    """What `checkAllSameGPU` says when the tensors with those printed names (`mat2`, `out`) lie on the CPU, or None.

    Source: TensorUtils.cpp. The first tensor is compared with each other one; number 0 is printed without a number.
    """
    first = check.arguments[0]
    for other in check.arguments[1:]:
        wrong = [argument for argument in (first, other) if argument[1] in on_cpu]
        if wrong:
            found = "".join(f"Tensor for {_argument(number, name)} is on CPU, " for number, name, _ in wrong)
            return BackendText(
                "RuntimeError",
                f"{found}but expected it to be on GPU (while checking arguments for {check.checked_in})",
            )
    return None


def _argument(number: int, name: str) -> str:
    return f"argument #{number} '{name}'" if number else f"'{name}'"


def linear_argument(name: str, device: str) -> BackendText:
    """`linear` with its `input`, `weight` or `bias` elsewhere."""
    return BackendText("RuntimeError", f"Tensor for argument {name} is on {device} but expected on mps")


def sparse_argument(operator: str, argument: str, device: str) -> BackendText:
    """A sparse kernel with an argument elsewhere."""
    return BackendText("RuntimeError", f"{operator}: expected '{argument}' to be MPS, but got {device}")


def scaler_argument(argument: str) -> BackendText:
    """A gradient scaler kernel: `found_inf`, `inv_scale`, `scaled_grads`, or `one of scaled_grads`."""
    if argument == "one of scaled_grads":
        return BackendText("RuntimeError", "one of scaled_grads was not a MPS tensor.")
    return BackendText(
        "RuntimeError", f"{argument} must be {'MPS tensors' if argument == 'scaled_grads' else 'a MPS tensor'}."
    )


def generator_device(expected: str, found: str, *, with_index: bool = False) -> BackendText:
    """A generator of another device; `with_index` is the wording of `randperm`, which also names the index."""
    if with_index:
        return BackendText("RuntimeError", f"Expected a '{expected}' generator device but found '{found}'")
    return BackendText("RuntimeError", f"Expected a '{expected}' device type for generator but found '{found}'")
