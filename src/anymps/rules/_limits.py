"""Fixed texts with which single MPS operators refuse an argument, by torch release.

Source: the C strings of `libtorch_cpu.dylib` in the macOS arm64 wheels of torch 2.11 to 2.15. What the native core
raises, and when: `limits.cpp` and `limit_checks.cpp` in `device/native/kernels` for shapes and options, `_dtypes.py`
for dtypes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anymps.rules._readings import Reading, Release, holds
from anymps.rules._versions import OLDEST, TorchVersion, check_supported
from anymps.rules.texts import BackendText

READING: Final = Reading("limits", "C strings of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))

ERROR_CLASSES: Final = (
    "RuntimeError",
    "TypeError",
    "NotImplementedError",
    "ValueError",
    "IndexError",
    "AcceleratorError",
)
"""Exception classes by the number that the native core knows them by."""


class OperatorLimit(NamedTuple):
    """A fixed text of some operators (base names: all overloads), and the first and last release that has it.

    `until` is None where no end was seen up to `READING.last`.
    Without operators it is one that any operator in an MPSGraph can give.
    """

    error: str
    text: str
    since: Release = OLDEST
    until: Release | None = None
    operators: tuple[str, ...] = ()


_DIVISIBLE: Final = (
    " Non-divisible input sizes are not implemented on MPS device yet. For now, you can manually transfer tensor to "
    "cpu in this case. Please refer to [this issue](https://github.com/pytorch/pytorch/issues/96056)"
)

_COULD_IMPROVE: Final = (
    "  (Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
)

OPERATOR_LIMITS: Final[dict[str, OperatorLimit]] = {
    "adaptive pool input": OperatorLimit(
        "RuntimeError",
        f"Adaptive pool MPS: input sizes must be divisible by output sizes.{_DIVISIBLE}",
        operators=("_adaptive_avg_pool2d",),
    ),
    "adaptive pool output": OperatorLimit(
        "RuntimeError",
        f"Adaptive pool MPS: output sizes must be divisible by input sizes.{_DIVISIBLE}",
        operators=("_adaptive_avg_pool2d",),
    ),
    "addbmm": OperatorLimit(
        "RuntimeError",
        "MPS device does not support addbmm or baddbmm for this input type",
        operators=("addbmm", "baddbmm"),
    ),
    "addr rows": OperatorLimit("RuntimeError", "vec1_ dim 0 must match vec1 dim 0", operators=("addr",)),
    "addr columns": OperatorLimit("RuntimeError", "vec1_ dim 1 must match vec2 dim 0", operators=("addr",)),
    "addr matrix": OperatorLimit("RuntimeError", "tensors must be 2-D", operators=("addr",)),
    "addr vectors": OperatorLimit("RuntimeError", "tensors must be 1-D", operators=("addr",)),
    "batch norm int64": OperatorLimit(
        "RuntimeError", "Long batch norm is not supported with MPS", until=(2, 13), operators=("native_batch_norm",)
    ),
    "conv_transpose3d half": OperatorLimit(
        "RuntimeError", "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS", operators=("convolution",)
    ),
    "convolution size": OperatorLimit(  # before macOS 15.1; the blank at the end is real
        "NotImplementedError", "Output channels > 65536 not supported at the MPS device. ", operators=("convolution",)
    ),
    "conj_physical real": OperatorLimit(
        "RuntimeError",
        f"Expected self.is_complex() to be true, but got false.{_COULD_IMPROVE}",
        until=(2, 13),
        operators=("conj_physical",),
    ),
    "fused adam": OperatorLimit(
        "RuntimeError",
        "params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout",
        operators=("_fused_adam_", "_fused_adamw_"),
    ),
    "fused adam amsgrad": OperatorLimit(
        "RuntimeError",
        "params, grads, exp_avgs, exp_avg_sqs, and max_exp_avg_sqs must have same dtype, device, and layout",
        operators=("_fused_adam_", "_fused_adamw_"),
    ),
    "fused sgd": OperatorLimit(
        "RuntimeError",
        "Expected native::check_fast_path_restrictions({params, grads}) to be true, but got false." + _COULD_IMPROVE,
        operators=("_fused_sgd_",),
    ),
    "fused sgd momentum": OperatorLimit(
        "RuntimeError",
        "Expected native::check_fast_path_restrictions({params, grads, momentum_buffer_list}) to be true, but got "
        f"false.{_COULD_IMPROVE}",
        operators=("_fused_sgd_",),
    ),
    "grid_sampler_3d": OperatorLimit(  # up to 2.14 a check for all devices comes first
        "RuntimeError", "grid_sampler_3d: Unsupported Bicubic interpolation", (2, 15), operators=("grid_sampler_3d",)
    ),
    "grid_sampler_3d nearest": OperatorLimit(
        "RuntimeError",
        "grid_sampler_3d: Unsupported Nearest interpolation",
        until=(2, 12),
        operators=("grid_sampler_3d",),
    ),
    "grid_sampler_3d backward": OperatorLimit(
        "RuntimeError",
        "grid_sampler_3d backward on MPS only supports bilinear and nearest interpolation",
        (2, 13),
        operators=("grid_sampler_3d_backward",),
    ),
    "linalg_qr dtype": OperatorLimit(
        "RuntimeError", "linalg_qr: MPS currently supports float32 only", (2, 12), (2, 13), operators=("linalg_qr",)
    ),
    "linalg_qr size": OperatorLimit(
        "UserWarning",
        "linalg_qr: MPS implementation is currently limited to min(m,n) <= 512, falling back to CPU.",
        (2, 12),
        (2, 13),
        operators=("linalg_qr",),
    ),
    "linear": OperatorLimit(
        "RuntimeError", "MPS device does not support linear for non-float inputs", operators=("linear",)
    ),
    "logcumsumexp innermost complex": OperatorLimit(
        "RuntimeError",
        "Failed to create function state object for: logcumsumexp_innermost_float2",
        until=(2, 11),
        operators=("_logcumsumexp",),
    ),
    "logcumsumexp outer complex": OperatorLimit(
        "RuntimeError",
        "Failed to create function state object for: logcumsumexp_outer_float2",
        until=(2, 11),
        operators=("_logcumsumexp",),
    ),
    "lstm projections": OperatorLimit(
        "RuntimeError", "LSTM with projections is not currently supported with MPS.", operators=("_lstm_mps",)
    ),
    "lu_factor complex": OperatorLimit(
        "RuntimeError",
        "linalg.lu_factor(): MPS doesn't support complex types.",
        until=(2, 14),
        operators=("linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"),
    ),
    "lu_factor dtype": OperatorLimit(
        "RuntimeError",
        "linalg.lu_factor(): MPS only supports floats.",
        until=(2, 13),
        operators=("linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"),
    ),
    "lu_factor pivot": OperatorLimit(
        "RuntimeError",
        "linalg.lu_factor(): MPS doesn't allow pivot == False.",
        operators=("linalg_lu_factor_ex", "linalg_lu"),
    ),
    "masked_fill size": OperatorLimit(
        "RuntimeError", "masked_fill not supported for tensors of more than 2**32 elements", operators=("masked_fill_",)
    ),
    "masked_scatter mask": OperatorLimit(
        "RuntimeError", "masked_scatter: expected BoolTensor or ByteTensor for mask", operators=("masked_scatter_",)
    ),
    "matmul size": OperatorLimit(
        "RuntimeError",
        "Output dim sizes larger than 2**32 elements for matmul not supported on MPS device.",
        operators=("bmm",),
    ),
    "mm shape": OperatorLimit(
        "UserWarning",
        "MPS mm implementation has a known issue with this shape, dtype and slice. Dispatching to metal implementation "
        "instead. This may impact performance.",
        (2, 12),
        operators=("mm",),
    ),
    "scatter extreme int64": OperatorLimit(
        "RuntimeError", "not supported for torch.int64", until=(2, 12), operators=("scatter_reduce",)
    ),
    "scatter product int64": OperatorLimit(  # up to 2.12 MPSGraph's scatter takes it
        "RuntimeError",
        "Failed to create function state object for: scatter_prod_dense_long_long",
        (2, 13),
        operators=("scatter_reduce",),
    ),
    "sdpa dropout": OperatorLimit(
        "RuntimeError",
        "scaled_dot_product_attention for MPS does not support dropout.",
        (2, 13),
        operators=("_scaled_dot_product_attention_math_for_mps",),
    ),
    "softmax cast": OperatorLimit(
        "RuntimeError",
        "softmax with half to float conversion is not supported on MPS",
        until=(2, 14),
        operators=("_softmax",),
    ),
    **{
        f"{name} complex gradient": OperatorLimit(  # torch/csrc/autograd/VariableTypeUtils.h
            "RuntimeError",
            f"{name} does not support automatic differentiation for outputs with complex dtype.",
            until=(2, 14),
        )
        for name in ("std", "std_mean", "var", "var_mean")
    },
    "tensor dims": OperatorLimit("RuntimeError", "MPSGraph does not support tensor dims larger than INT_MAX", (2, 13)),
}
"""Fixed texts of single operators by a short name; looked up in the strings of each release."""


def operator_limit(version: str | TorchVersion, name: str) -> BackendText | None:
    """The text of that name in `OPERATOR_LIMITS`, or None if the release does not have it."""
    limit = OPERATOR_LIMITS[name]
    if not holds(limit, check_supported(version).release):
        return None
    return BackendText(limit.error, limit.text)


# By release: the line of aten/src/ATen/native/DispatchStub.cpp that the assertion names.
_STUB_LINES: Final = {(2, 11): 276, (2, 12): 269, (2, 13): 282, (2, 14): 282, (2, 15): 280}


def missing_stub(version: str | TorchVersion) -> BackendText:
    """An operator whose dispatch stub has no MPS kernel (`torch.kaiser_window`): an internal assertion, on a Mac too.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = READING.nearest(check_supported(version).release)
    folder = "/Users/runner/work/pytorch/pytorch" + ("/pytorch" if release == (2, 11) else "")
    return BackendText(
        "RuntimeError",
        f'false INTERNAL ASSERT FAILED at "{folder}/aten/src/ATen/native/DispatchStub.cpp":{_STUB_LINES[release]}, '
        "please report a bug to PyTorch. DispatchStub: missing kernel for mps",
    )


def operator_limits(version: str | TorchVersion) -> dict[str, tuple[int, str]]:
    """The limits of a release by name, as numbers of `ERROR_CLASSES` and texts, for the native core; no warnings.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    release = check_supported(version).release
    stub = missing_stub(version)
    return {"missing stub": (ERROR_CLASSES.index(stub.error), stub.text)} | {
        name: (ERROR_CLASSES.index(limit.error), limit.text)
        for name, limit in OPERATOR_LIMITS.items()
        if holds(limit, release) and limit.error in ERROR_CLASSES
    }
