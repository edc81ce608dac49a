"""Rows of `_table`: copies and single numbers.

Sources: the issues and pull requests named in each row; where a row names a file, that file in the pytorch tree. Bounds
of releases without a fix in the row are those of the reports: nothing is claimed of releases that nobody measured.
"""

from __future__ import annotations

from typing import Final

from anymps.rules.faults._model import Check, Hazard, Outcome

_COPY: Final = "aten/src/ATen/native/mps/operations/Copy.mm"

ARITHMETIC: Final[tuple[Hazard, ...]] = (
    # complex numbers, and values that float32 does not hold
    Hazard(
        "MPS640",
        "Variance of complex numbers",
        ("std", "std_mean", "var", "var_mean"),
        Check.COMPLEX,
        Outcome.WRONG,
        what="the variance and the standard deviation of complex numbers are taken without the conjugate: the result "
        "is complex, and another number than the real one of the CPU",
        fix="Add those of the parts: `x.real.var() + x.imag.var()`.",
        issues=(135210,),
        source="aten/src/ATen/native/mps/operations/ReduceOps.mm; fixed by pull request 195344",
        until=(2, 14),
        fixed=(2, 15),
    ),
    Hazard(
        "MPS645",
        "Inverse of unique for integers above 2^24",
        ("_unique2",),
        Check.LARGE_UNIQUE,
        Outcome.WRONG,
        what="`return_inverse=True` compares integers as float32, which holds them up to 2^24: the inverse of larger "
        "ones points at other elements",
        fix="Call it on the CPU: `torch.unique(x.cpu(), return_inverse=True)`.",
        issues=(195595,),
        source="reported on 1 September 2026; kernels for it (unique_inverse) are in the wheels since 2.14",
        low=2**24,
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS648",
        "Histogram of numbers just outside its edges",
        ("histogram", "histc", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"),
        Check.BESIDE_EDGES,
        Outcome.WRONG,
        what="a histogram counts numbers up to 4e-6 outside its outer edges; `histogram` and `histogramdd` store one "
        "below the first edge at bin -1, in front of the memory of the counts",
        fix="Keep them out, as by `x[(x >= low) & (x <= high)]`, or use torch 2.15.",
        issues=(195076,),
        source="the kernels histogramdd of the macOS wheels: `eps` is in those of torch 2.11 to 2.14 and not in 2.15's",
        until=(2, 14),
        fixed=(2, 15),
    ),
    # copies
    Hazard(
        "MPS601",
        "Copy to the CPU with a cast overwrites its source",
        ("copy_",),
        Check.NARROWING_COPY,
        Outcome.WRONG,
        what="a copy to the CPU with a cast to a dtype of equal or smaller size casts in place, so that the tensor on "
        "mps holds the bytes of the other dtype afterwards (unless the target happens to begin at a memory page)",
        fix='Copy first and cast after: `x.to("cpu").to(torch.float16)`.',
        issues=(189563,),
        source=f"{_COPY}; fixed by pull request 189572",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS602",
        "Copy to the CPU with a cast reads the wrong part of a view",
        ("copy_",),
        Check.OFFSET_COPY,
        Outcome.WRONG,
        what="a copy to the CPU with a cast of a view that does not begin at its storage's start reads from the wrong "
        "place",
        fix='Copy first and cast after: `x.to("cpu").to(torch.float16)`.',
        issues=(194344,),
        source=f"{_COPY} (measured with 2.13.0)",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS603",
        "Copy between views with the same gaps",
        ("copy_",),
        Check.GAPPY_COPY,
        Outcome.WRONG,
        what="a copy to the CPU between views with equal strides and gaps between their elements moves one run of "
        "bytes: the elements are wrong, and what lies in the target's gaps is overwritten",
        fix="Make the source contiguous: `cpu_view.copy_(mps_view.contiguous())`.",
        issues=(189961,),
        source=f"{_COPY}; fixed by pull request 189966",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS604",
        "Copy to a float64 tensor on the CPU writes nothing",
        ("copy_",),
        Check.DOUBLE_COPY,
        Outcome.WRONG,
        what="a copy to the CPU with a cast to float64 or complex128 leaves the target as it was",
        fix='Copy first and cast after: `x.to("cpu").to(torch.float64)`.',
        issues=(197715,),
        source=f"{_COPY}; torch 2.15 raises instead",
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
        what="a 0-dim CPU tensor that is a view into a larger one (`table[i]`) is read at its storage's start: the "
        "value used is that of `table[0]`",
        fix="Pass a Python number, `table[i].item()`, or a separate tensor, `table[i].clone()`.",
        issues=(187117, 191929, 193057),
        source="aten/src/ATen/native/mps/OperationUtils.h; fixed by pull request 187229",
        since=(2, 12),
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS617",
        "addcmul of integers",
        ("addcmul", "addcmul_"),
        Check.INTEGERS,
        Outcome.MAY_BE_WRONG,
        what="addcmul of integers returns wrong integers when it runs through MPSGraph",
        fix="Write `self + value * tensor1 * tensor2`.",
        issues=(189420,),
        source="aten/src/ATen/native/mps/operations/PointwiseOps.mm",
        until=(2, 15),
    ),
    Hazard(
        "MPS618",
        "Integers divided by zero",
        (),
        Check.ZERO_DIVISORS,
        Outcome.OPEN,
        what="an integer is divided by zero, for which the CPU raises ZeroDivisionError",
        fix="Keep zeros out of the divisor, as by `torch.where(divisor == 0, 1, divisor)`.",
        issues=(),
        source='Metal Shading Language Specification, 3.1 ("does not cause an exception but results in an unspecified '
        'value")',
        until=(2, 15),
    ),
    Hazard(
        "MPS619",
        "nextafter of bfloat16",
        ("nextafter", "nextafter_"),
        Check.BFLOAT16,
        Outcome.WRONG,
        what="nextafter of bfloat16 takes the next float32 and rounds it back, which gives the number itself",
        fix="Run it on the CPU: `torch.nextafter(x.cpu(), y.cpu()).to(x.device)`.",
        issues=(),
        source="the kernel nextafter_dense_bfloat_bfloat of torch 2.13's macOS wheel, run beside the CPU's code; "
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
        what="amax and amin of 33 to 992 int64 numbers include a 0 that is not there, so the smallest of positive "
        "numbers and the largest of negative ones is 0",
        fix="Reduce in int32, for example `x.int().amax().long()`.",
        issues=(),
        source="pull requests 187976 and 191104; the kernels max_reduction_long_long and min_reduction_long_long of "
        "torch 2.13's macOS wheel, run beside the CPU's code; right in 2.15",
        since=(2, 13),
        until=(2, 13),
        low=33,
        high=992,
    ),
)
