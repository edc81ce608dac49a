"""Rows of `_table`: copies, matrix products and single numbers.

Sources: the issues and pull requests named in each row; where a row names a file, that file in the pytorch tree. Bounds
of releases without a fix in the row are those of the reports: nothing is claimed of releases that nobody measured.
"""

from __future__ import annotations

from typing import Final

from anymps.rules.faults._model import Check, Hazard, Outcome

_COPY: Final = "aten/src/ATen/native/mps/operations/Copy.mm"
_MATRIX: Final = "aten/src/ATen/native/mps/operations/LinearAlgebra.mm"

_OLD_GPUS: Final = frozenset({"apple7", "apple8"})
_SHORTER: Final = (
    "Split the reduced dimension: `a[:, :16384] @ b[:16384] + a[:, 16384:] @ b[16384:]`, or use torch 2.14 or newer."
)

ARITHMETIC: Final[tuple[Hazard, ...]] = (
    # copies
    Hazard(
        "MPS601",
        "Copy to the CPU with a cast overwrites its source",
        ("copy_",),
        Check.NARROWING_COPY,
        Outcome.WRONG,
        "a copy to the CPU with a cast to a dtype of equal or smaller size casts in place, so that the tensor on mps "
        "holds the bytes of the other dtype afterwards (unless the target happens to begin at a memory page)",
        'Copy first and cast after: `x.to("cpu").to(torch.float16)`.',
        (189563,),
        f"{_COPY}; fixed by pull request 189572",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS602",
        "Copy to the CPU with a cast reads the wrong part of a view",
        ("copy_",),
        Check.OFFSET_COPY,
        Outcome.WRONG,
        "a copy to the CPU with a cast of a view that does not begin at its storage's start reads from the wrong place",
        'Copy first and cast after: `x.to("cpu").to(torch.float16)`.',
        (194344,),
        f"{_COPY} (measured with 2.13.0)",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS603",
        "Copy between views with the same gaps",
        ("copy_",),
        Check.GAPPY_COPY,
        Outcome.WRONG,
        "a copy to the CPU between views with equal strides and gaps between their elements moves one run of bytes: "
        "the elements are wrong, and what lies in the target's gaps is overwritten",
        "Make the source contiguous: `cpu_view.copy_(mps_view.contiguous())`.",
        (189961,),
        f"{_COPY}; fixed by pull request 189966",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS604",
        "Copy to a float64 tensor on the CPU writes nothing",
        ("copy_",),
        Check.DOUBLE_COPY,
        Outcome.WRONG,
        "a copy to the CPU with a cast to float64 or complex128 leaves the target as it was",
        'Copy first and cast after: `x.to("cpu").to(torch.float64)`.',
        (197715,),
        f"{_COPY}; torch 2.15 raises instead",
        since=(2, 14),
        until=(2, 14),
        fixed=(2, 15),
    ),
    Hazard(
        "MPS605",
        "Element of a CPU tensor as a scalar",
        ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"),
        Check.CPU_SCALAR_VIEW,
        Outcome.WRONG,
        "a 0-dim CPU tensor that is a view into a larger one (`table[i]`) is read at its storage's start: the value "
        "used is that of `table[0]`",
        "Pass a Python number, `table[i].item()`, or a separate tensor, `table[i].clone()`.",
        (187117, 191929, 193057),
        "aten/src/ATen/native/mps/OperationUtils.h; fixed by pull request 187229",
        since=(2, 12),
        until=(2, 13),
        fixed=(2, 14),
    ),
    # matrix products
    Hazard(
        "MPS611",
        "Matrix product over a long dimension",
        ("mm", "addmm", "linear"),
        Check.LONG_INNER,
        Outcome.WRONG,
        "a matrix product that sums over 32767 elements or more reads past the end of its operands and adds what is "
        "there (both sides of "
        "the result 16 or more)",
        _SHORTER,
        (195163, 177116),
        f"{_MATRIX}; above 32768 elements fixed by pull request 183535",
        low=32767,
        until=(2, 13),
        fixed=(2, 14),
        metal_families=_OLD_GPUS,
    ),
    Hazard(
        "MPS612",
        "Gradient of a linear layer over many rows",
        ("linear_backward",),
        Check.LONG_INNER_BACKWARD,
        Outcome.WRONG,
        "the gradient of a linear layer's weight sums over all rows (batch x sequence), that of its input over all "
        "outputs; over 32767 or more it reads past the end of its operands and adds what is there",
        "Use smaller batches with gradient accumulation, or torch 2.14 or newer.",
        (177116, 195163),
        f"{_MATRIX}; above 32768 elements fixed by pull request 183535",
        low=32767,
        until=(2, 13),
        fixed=(2, 14),
        metal_families=_OLD_GPUS,
    ),
    Hazard(
        "MPS613",
        "Matrix product over 32767 or 32768 elements",
        ("mm", "addmm", "linear"),
        Check.LONG_INNER,
        Outcome.WRONG,
        (
            "a matrix product that sums over 32767 or 32768 elements reads past the end of its operands and adds "
            "what is "
            "there; only longer ones no longer use the faulty kernel (both sides of the result 16 or more)"
        ),
        "Pad the summed dimension to 32769 with zeros, or split it in two.",
        (195163,),
        f"{_MATRIX}, pull request 183535",
        low=32767,
        high=32768,
        since=(2, 14),
        until=(2, 15),
        metal_families=_OLD_GPUS,
    ),
    Hazard(
        "MPS614",
        "Batched matrix product over a long dimension",
        ("bmm", "baddbmm", "addbmm"),
        Check.LONG_INNER_BATCHED,
        Outcome.WRONG,
        "a batched matrix product that sums over 32767 elements or more reads past the end of its operands and adds "
        "what is there (both "
        "sides of a result 16 or more)",
        "Split the summed dimension: `a[..., :16384] @ b[:, :16384] + a[..., 16384:] @ b[:, 16384:]`.",
        (195163,),
        f"{_MATRIX}; pull request 195012 is open",
        low=32767,
        until=(2, 15),
        metal_families=_OLD_GPUS,
    ),
    Hazard(
        "MPS615",
        "Expanded operand of a matrix product",
        ("mm", "addmm"),
        Check.EXPANDED_MATRIX,
        Outcome.WRONG,
        "with an expanded operand (stride 0, as the gradient of `y.sum()` is) most rows of a matrix product are zero",
        "Make it contiguous; for a gradient, `y.sum()` can be `(y * torch.ones_like(y)).sum()`. "
        "PYTORCH_MPS_PREFER_METAL=1 avoids it too, as does macOS 26.4.",
        (180201,),
        "aten/src/ATen/native/mps/OperationUtils.mm, pull request 180236 (measured with 2.11.0)",
        until=(2, 11),
        macos=(((15, 0), (26, 4)),),
    ),
    Hazard(
        "MPS616",
        "Batched matrix product of more than 2^32 elements",
        ("bmm",),
        Check.HUGE_BATCHED,
        Outcome.WRONG,
        "with more than 2^32 elements and an operand that is not contiguous (in a backward one always is), batches "
        "beyond element 2^32 are computed from the first ones",
        "Split the batch.",
        (197636,),
        f"{_MATRIX} (open)",
        low=2**32,
        until=(2, 15),
    ),
    Hazard(
        "MPS617",
        "addcmul of integers",
        ("addcmul", "addcmul_"),
        Check.INTEGERS,
        Outcome.MAY_BE_WRONG,
        "addcmul of integers returns wrong integers when it runs through MPSGraph",
        "Write `self + value * tensor1 * tensor2`.",
        (189420,),
        "aten/src/ATen/native/mps/operations/PointwiseOps.mm",
        until=(2, 15),
    ),
    Hazard(
        "MPS618",
        "Integers divided by zero",
        (),
        Check.ZERO_DIVISORS,
        Outcome.OPEN,
        "an integer is divided by zero, for which the CPU raises ZeroDivisionError",
        "Keep zeros out of the divisor, as by `torch.where(divisor == 0, 1, divisor)`.",
        (),
        'Metal Shading Language Specification, 3.1 ("does not cause an exception but results in an unspecified value")',
        until=(2, 15),
    ),
    Hazard(
        "MPS619",
        "nextafter of bfloat16",
        ("nextafter", "nextafter_"),
        Check.BFLOAT16,
        Outcome.WRONG,
        "nextafter of bfloat16 takes the next float32 and rounds it back, which gives the number itself",
        "Run it on the CPU: `torch.nextafter(x.cpu(), y.cpu()).to(x.device)`.",
        (),
        "the kernel nextafter_dense_bfloat_bfloat of torch 2.13's macOS wheel, run beside the CPU's code; "
        "right in 2.15",
        since=(2, 13),
        until=(2, 13),
    ),
    Hazard(
        "MPS620",
        "amax or amin of 33 to 992 int64 numbers",
        ("amax", "amin"),
        Check.INT64_ROW,
        Outcome.MAY_BE_WRONG,
        "amax and amin of 33 to 992 int64 numbers see a 0 among them, so that the smallest of positive numbers and the "
        "largest of negative ones come out as 0",
        "Use int32: `x.int().amin().long()`.",
        (),
        "pull requests 187976 and 191104; the kernels max_reduction_long_long and min_reduction_long_long of torch "
        "2.13's macOS wheel, run beside the CPU's code; right in 2.15",
        since=(2, 13),
        until=(2, 13),
        low=33,
        high=992,
    ),
)
