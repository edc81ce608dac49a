"""The real backend's own words, odd blanks and quotes included, as far as Python has to know them.

Source, unless a text names another: the C strings of `libtorch_cpu.dylib` in the macOS arm64 wheels of torch 2.11 to
2.15. Devices are texts as torch prints them: `mps:0`, `cpu`. What only the native core says stands there alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anymps.rules._encoding import Family
from anymps.rules._readings import Reading
from anymps.rules._versions import TorchVersion, version_rules

READING: Final = Reading("texts", "C strings of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))


class BackendText(NamedTuple):
    """What the real backend says: the name of the exception or warning class, and the text."""

    error: str
    text: str


class Wording(NamedTuple):
    """A text of the backend with `{}` for what changes from call to call; called with that, it is a BackendText."""

    error: str
    template: str

    def __call__(self, *words: str) -> BackendText:
        """The text with these words in it."""
        return BackendText(self.error, self.template.format(*words))


_ISSUE: Final = (
    "If you want this op to be considered for addition please comment on "
    "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op "
    "as well as commit hash "
)

# operators without a kernel, by name and by the full hash of torch's commit: MPSFallback.mm, CPUFallback.cpp
fallback_warning: Final = Wording(
    "UserWarning",
    "The operator '{}' is not currently supported on the MPS backend and will fall back to run on the CPU. This may "
    "have performance implications.",
)
"""Given once a process, for all operators."""
missing_operator: Final = Wording(
    "NotImplementedError",
    f"The operator '{{}}' is not currently implemented for the MPS device. {_ISSUE}{{}}. "
    "As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a "
    "fallback for this op. WARNING: this will be slower than running natively on MPS.",
)
distributed_operator: Final = Wording(
    "NotImplementedError",
    f"The distributed operator '{{}}' is not currently implemented for the MPS device. {_ISSUE}{{}}. Please note, that "
    "distributed operators can not fall back to CPU",
)
"""Of the namespace `c10d`, with and without the fallback variable."""
view_fallback_warning: Final = Wording(
    "UserWarning",
    '0The operator {} appears to be a view operator, but it has no implementation for the backend "mps:0". View '
    "operators don't support falling back to run on the CPU, since the tensor's storage cannot be shared across "
    "devices.",
)
"""The leading 0 is real: CPUFallback.cpp streams a `false` into the text."""
slow_convolution_devices: Final = Wording(
    "RuntimeError",
    "slow_conv2d_forward_mps: input(device='{}') and weight(device={}')  must be on the same device",
)

# data types, by their C++ names (`ComplexDouble`): EmptyTensor.cpp, OperationUtils.mm, Copy.mm
float64_allocation: Final = Wording(
    "TypeError",
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead.",
)
"""From torch 2.12 on, of complex128 too."""
float64_graph: Final = Wording(
    "TypeError",
    "Cannot convert a float64 Tensor to MPS as the MPS framework doesn't support float64. Please use float32 instead.",
)
"""An existing float64 tensor, such as a 0-dim CPU one, that reaches an MPSGraph operator."""
float64_kernel: Final = Wording("RuntimeError", "float64 is not supported on MPS")
"""A Metal binary or ternary kernel whose result type is float64."""
unsupported_dtype: Final = Wording(
    "TypeError", "Trying to convert {} to the MPS backend but it does not have support for that dtype."
)
"""A type that MPSGraph does not know."""
undefined_type: Final = Wording("RuntimeError", "Undefined type {}")
"""A type that has no Metal name."""
missing_kernel: Final = Wording("RuntimeError", "Failed to create function state object for: {}")
"""A Metal kernel without a specialisation for the type, or an unknown name in a shader library."""

# layouts: EmptyTensor.cpp
not_strided: Final = Wording("NotImplementedError", "only strided tensors are supported on MPS")

# devices: TensorIterator.cpp, TensorUtils.cpp, OperationUtils.mm, Linear.mm
_FAMILIES: Final = {
    Family.ITERATOR: "Expected all tensors to be on the same device, but found at least two devices, {} and {}!",
    Family.DOT: "Expected all tensors to be on the same device. Found: {}, {}",
    Family.MASKED_FILL: "expected self and mask to be on the same device, but got mask on {} and self on {}",
    Family.PLACEHOLDER: "Placeholder storage has not been allocated on MPS device!",
    Family.METAL: "Passed CPU tensor to MPS op",
}
too_many_cpu_scalars: Final = Wording("RuntimeError", "Trying to pass too many CPU scalars to non-CPU kernel!")
"""A second 0-dim CPU tensor beside mps tensors in a TensorIterator operator."""
linear_argument: Final = Wording("RuntimeError", "Tensor for argument {} is on {} but expected on mps")
sparse_argument: Final = Wording("RuntimeError", "{}: expected '{}' to be MPS, but got {}")
scaler_argument: Final = Wording("RuntimeError", "{} must be a MPS tensor.")
"""`found_inf` or `inv_scale` of a gradient scaler's kernel."""
scaled_gradients: Final = Wording("RuntimeError", "one of scaled_grads was not a MPS tensor.")
generator_device: Final = Wording("RuntimeError", "Expected a '{}' device type for generator but found '{}'")
generator_index: Final = Wording("RuntimeError", "Expected a '{}' generator device but found '{}'")
"""The wording of `randperm`, which also names the index."""

# what only takes CPU tensors, torch 2.7 to 2.15: tensor_numpy.cpp, Memory.cpp, EmptyTensor.cpp, tensor_apply.cpp
numpy_of: Final = Wording(
    "TypeError",
    "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
)
pinned: Final = Wording("RuntimeError", "cannot pin '{}' only dense CPU tensors can be pinned")
"""`x.pin_memory()` of a type such as `MPSFloatType`."""
pinned_factory: Final = Wording("RuntimeError", "Only dense CPU tensors can be pinned")
"""`torch.ones(3, device="mps", pin_memory=True)`."""
called_per_element: Final = Wording("TypeError", "{} is only implemented on CPU tensors")
"""`x.apply_(f)`, `map_`, `map2_`: a Python function for every element."""


def format_size(size: int) -> str:
    """A size as the allocator prints it: `512 bytes`, `1.50 MiB`; a unit begins one byte above its power of two."""
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size > scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def shared_memory(strategy: str) -> BackendText:
    """An mps tensor sent to another process, with strategy `file_system` or `file_descriptor`."""
    call = "_share_filename_" if strategy == "file_system" else "_share_fd_"
    return BackendText("RuntimeError", f"{call}: only available on CPU")


def macos_too_old(version: str | TorchVersion) -> BackendText:
    """First use of mps on a macOS that is too old (MPSHooks.mm); in torch 2.11 in Apple's old spelling."""
    rules = version_rules(version)
    system = "MacOS" if rules.version.release == (2, 11) else "macOS"
    return BackendText(
        "RuntimeError",
        f"The MPS backend is supported on {system} {rules.oldest_macos}.0+. Current OS version can be queried using "
        "`sw_vers`",
    )


def devices_differ(family: Family, *devices: str) -> BackendText:
    """The text of the families whose words depend on nothing but the devices.

    `devices`: for ITERATOR the first device that is not the CPU and then the other one, whatever the order of the
    arguments; for DOT both in order; for MASKED_FILL the mask's and then the tensor's; otherwise none.
    Raises KeyError for a family that has a text of its own, or none.
    """
    return BackendText("RuntimeError", _FAMILIES[family].format(*devices))


class SameGpuCheck(NamedTuple):
    """A `checkAllSameGPU` call: the function it names, and (number, printed name, schema name) of its tensors.

    Number 0 is the result, whose schema name is `out`; it is allocated where the first schema argument lies.
    """

    checked_in: str
    arguments: tuple[tuple[int, str, str], ...]


def _check(checked_in: str, arguments: str, schema: str = "") -> SameGpuCheck:
    """Of the printed names of the arguments, and of those in the schema where they differ."""
    printed = arguments.split()
    first = 0 if printed[0] == "out" else 1
    return SameGpuCheck(checked_in, tuple(zip(range(first, 9), printed, (schema or arguments).split(), strict=False)))


_ADDMM: Final = _check("addmm_out_mps_impl", "out self mat1 mat2")

SAME_GPU_CHECKS: Final[dict[str, SameGpuCheck]] = {
    "_ctc_loss": _check("ctc_loss_mps", "log_probs targets"),
    "_mps_convolution": _check("mps_convolution", "input weight", "self weight"),
    # the transposed convolution is the input gradient of a convolution: Convolution.mm
    "_mps_convolution_transpose": _check("mps_convolution_backward_input", "grad_output weight", "self weight"),
    "addmm": _ADDMM,
    "addmm_": _ADDMM,
    "addr": _check("addr_out_mps", "out self vec1 vec2"),
    # torch 2.14: Linear.mm multiplies with mm
    "linear_backward": _check("mm", "out mat1 mat2", "out grad_output weight"),
    "mm": _check("mm", "out mat1 mat2", "out self mat2"),
    "mps_convolution_backward": _check("mps_convolution_backward_input", "grad_output weight"),
    "mps_convolution_transpose_backward": _check("mps_convolution", "input weight", "grad_output weight"),
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
            names = (f"argument #{number} '{name}'" if number else f"'{name}'" for number, name, _ in wrong)
            found = "".join(f"Tensor for {name} is on CPU, " for name in names)
            return BackendText(
                "RuntimeError",
                f"{found}but expected it to be on GPU (while checking arguments for {check.checked_in})",
            )
    return None
