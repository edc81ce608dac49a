"""The real backend's words, whole, by release."""

from __future__ import annotations

import pytest
import torch

from anymps import rules
from anymps.rules import OPERATOR_LIMITS, Family, installed_torch, operator_rules, texts
from anymps.rules.texts import SAME_GPU_CHECKS, BackendText

SHA = "cf30153c4c131c8164ee7798e5022d810682e2cb"
COMMENT = (
    "If you want this op to be considered for addition please comment on "
    "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op as well as "
    f"commit hash {SHA}."
)
RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")


@pytest.mark.parametrize(
    ("found", "error", "text"),
    [
        (
            texts.fallback_warning("aten::mode"),
            "UserWarning",
            "The operator 'aten::mode' is not currently supported on the MPS backend and will fall back to run on the "
            "CPU. This may have performance implications.",
        ),
        (
            texts.missing_operator("aten::heaviside.out", SHA),
            "NotImplementedError",
            f"The operator 'aten::heaviside.out' is not currently implemented for the MPS device. {COMMENT} As a "
            "temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a "
            "fallback for this op. WARNING: this will be slower than running natively on MPS.",
        ),
        (
            texts.distributed_operator("c10d::allreduce_", SHA),
            "NotImplementedError",
            f"The distributed operator 'c10d::allreduce_' is not currently implemented for the MPS device. {COMMENT} "
            "Please note, that distributed operators can not fall back to CPU",
        ),
        (
            texts.view_fallback_warning("aten::narrow_copy"),
            "UserWarning",
            "0The operator aten::narrow_copy appears to be a view operator, but it has no implementation for the "
            "backend \"mps:0\". View operators don't support falling back to run on the CPU, since the tensor's "
            "storage cannot be shared across devices.",
        ),
        (
            texts.slow_convolution_devices("cpu", "mps:0"),
            "RuntimeError",
            "slow_conv2d_forward_mps: input(device='cpu') and weight(device=mps:0')  must be on the same device",
        ),
        (texts.sparse_argument("add", "other", "cpu"), "RuntimeError", "add: expected 'other' to be MPS, but got cpu"),
    ],
)
def test_texts_word_for_word(found: BackendText, error: str, text: str) -> None:
    """Class and text are the backend's, odd blanks and quotes included."""
    assert (error, text) == tuple(found)


def test_texts_that_any_torch_can_say_are_equal_to_it() -> None:
    """Texts that this torch says about other devices are the same, apart from the device's name."""
    meta = torch.empty(2, device="meta")
    with pytest.raises(RuntimeError) as pinned:
        meta.pin_memory()
    assert texts.pinned("MetaFloatType").text == str(pinned.value)


def test_device_texts_of_the_families() -> None:
    """Each family has its words; two devices are named as the backend orders them."""
    assert texts.devices_differ(Family.ITERATOR, "mps:0", "cpu").text == (
        "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
    )
    assert texts.devices_differ(Family.PLACEHOLDER).text == "Placeholder storage has not been allocated on MPS device!"
    assert texts.devices_differ(Family.METAL).text == "Passed CPU tensor to MPS op"
    assert texts.devices_differ(Family.DOT, "mps:0", "cpu").text == (
        "Expected all tensors to be on the same device. Found: mps:0, cpu"
    )
    assert texts.devices_differ(Family.MASKED_FILL, "cpu", "mps:0").text == (
        "expected self and mask to be on the same device, but got mask on cpu and self on mps:0"
    )
    for family in (Family.NONE, Family.SAME_GPU, Family.LINEAR, Family.SPARSE, Family.FUSED_OPTIMIZER):
        with pytest.raises(KeyError):
            texts.devices_differ(family)


@pytest.mark.parametrize(
    ("operator", "on_cpu", "text"),
    [
        (
            "mm",
            ["mat2"],
            "Tensor for argument #2 'mat2' is on CPU, but expected it to be on GPU (while checking arguments for mm)",
        ),
        (
            "mm",
            ["out", "mat1"],
            "Tensor for 'out' is on CPU, Tensor for argument #1 'mat1' is on CPU, but expected it to be on GPU (while "
            "checking arguments for mm)",
        ),
        (
            "addmm",
            ["mat1", "mat2"],
            "Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU (while checking arguments for "
            "addmm_out_mps_impl)",
        ),
        (
            "_mps_convolution",
            ["weight"],
            "Tensor for argument #2 'weight' is on CPU, but expected it to be on GPU (while checking arguments for "
            "mps_convolution)",
        ),
        (
            "mps_convolution_backward",
            ["grad_output"],
            "Tensor for argument #1 'grad_output' is on CPU, but expected it to be on GPU (while checking arguments "
            "for mps_convolution_backward_input)",
        ),
        (
            "linear_backward",
            ["mat1"],
            "Tensor for argument #1 'mat1' is on CPU, but expected it to be on GPU (while checking arguments for mm)",
        ),
    ],
)
def test_same_gpu_checks(operator: str, on_cpu: list[str], text: str) -> None:
    """Matrix products and convolutions name argument, number and function of the first pair that fails."""
    found = texts.tensor_on_cpu(SAME_GPU_CHECKS[operator], on_cpu)
    assert found == ("RuntimeError", text)
    assert texts.tensor_on_cpu(SAME_GPU_CHECKS[operator], []) is None


def test_every_same_gpu_operator_has_its_check() -> None:
    """Each operator of the family has a check whose arguments are in its schema."""
    functions = rules.native_functions()
    for name, rule in operator_rules().items():
        if rule.cross_device is Family.SAME_GPU:
            for number, _, argument in SAME_GPU_CHECKS[name.partition(".")[0]].arguments:
                assert number == 0 or f" {argument}" in functions[name].schema, name


def test_sizes_are_printed_as_the_allocator_prints_them() -> None:
    """A unit begins one byte above its power of two."""
    sizes = [256, 1024, 1025, 1536 * 1024, 1024**2, 1024**3, 1024**3 + 1]
    printed = ["256 bytes", "1024 bytes", "1.00 KiB", "1.50 MiB", "1024.00 KiB", "1024.00 MiB", "1.00 GiB"]
    assert printed == [texts.format_size(size) for size in sizes]


def test_system_texts_by_release() -> None:
    """Apple's spelling and the oldest macOS change with the releases."""
    assert [texts.macos_too_old(release).text for release in RELEASES] == [
        "The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using `sw_vers`",
        "The MPS backend is supported on macOS 14.0+. Current OS version can be queried using `sw_vers`",
        "The MPS backend is supported on macOS 14.0+. Current OS version can be queried using `sw_vers`",
        "The MPS backend is supported on macOS 14.0+. Current OS version can be queried using `sw_vers`",
        "The MPS backend is supported on macOS 15.0+. Current OS version can be queried using `sw_vers`",
    ]


def test_operator_limits_by_release() -> None:
    """A fixed text is there only in the releases that have it."""
    assert ["linalg_qr dtype" in rules.operator_limits(release) for release in RELEASES] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert rules.operator_limits("2.13")["linalg_qr dtype"] == (0, OPERATOR_LIMITS["linalg_qr dtype"].text)
    assert "linalg_qr size" not in rules.operator_limits("2.13"), "a warning"
    assert all(limit.until is None or limit.since <= limit.until for limit in OPERATOR_LIMITS.values())


def test_the_missing_operator_text_takes_the_installed_commit() -> None:
    """With the installed wheel's commit the text names `torch.version.git_version`."""
    text = texts.missing_operator("aten::mode", installed_torch().git_version).text
    assert f"as well as commit hash {torch.version.git_version}. As a temporary fix" in text
