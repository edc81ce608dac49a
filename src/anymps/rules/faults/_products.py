"""Rows of `_table`: products of matrices and linear layers.

Sources: as in `_arithmetic`.
"""

from __future__ import annotations

from typing import Final

from anymps.rules.faults._model import NO_END, Check, Hazard, Outcome

_LINEAR: Final = "aten/src/ATen/native/mps/operations/Linear.mm"
_MATRIX: Final = "aten/src/ATen/native/mps/operations/LinearAlgebra.mm"

_OLD_GPUS: Final = frozenset({"apple7", "apple8"})
_SHORTER: Final = (
    "Split the reduced dimension: `a[:, :16384] @ b[:16384] + a[:, 16384:] @ b[16384:]`, or use torch 2.14 or newer."
)

PRODUCTS: Final[tuple[Hazard, ...]] = (
    Hazard(
        "MPS606",
        "Batched product with beta=0",
        ("baddbmm",),
        Check.IGNORED_SUMMAND,
        Outcome.MAY_BE_WRONG,
        what="with beta=0, a batched product still reads its input: NaN and infinity in it reach the result, and an "
        "input from `torch.empty` can hold both",
        fix="Call `torch.bmm(a, b) * alpha`, or pass `torch.zeros` in place of `torch.empty`.",
        issues=(187521, 194442),
        source=f"{_MATRIX}; fixed by pull request 187522",
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS607",
        "Linear layer with a bias over more than 65536 batches",
        ("linear",),
        Check.BIAS_OF_BATCHES,
        Outcome.WRONG,
        what="a linear layer with a bias truncates the third last coordinate of its input to 16 bits: some rows are "
        "overwritten, and others are never written",
        fix="Flatten the input: `F.linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])`.",
        issues=(189495,),
        source=f"{_LINEAR}; measured with 2.12.0 and 2.13.0; fixed by pull request 189496",
        low=65536,
        since=(2, 12),
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS608",
        "Bias of a linear layer over single rows",
        ("linear",),
        Check.BIAS_OF_VECTORS,
        Outcome.MAY_BE_WRONG,
        what="a linear layer can leave its bias out where the second last dimension of its input is 1",
        fix="Flatten the input: `F.linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])`.",
        issues=(188438,),
        source=f"{_LINEAR}; measured on an M1, not reproduced on an M4; fixed by pull request 188619",
        until=(2, 13),
        fixed=(2, 14),
        macos=(((26, 0), (27, 0)),),
        metal_families=frozenset({"apple7"}),
    ),
    Hazard(
        "MPS609",
        "Linear layer without input features",
        ("linear",),
        Check.NO_FEATURES,
        Outcome.ABORTS,
        what="a linear layer whose input has no features ends the process in a Metal assertion",
        fix="Skip the layer if it has no input features: its result is its bias.",
        issues=(190050,),
        source=f"{_LINEAR}; measured with 2.13.0; fixed by pull request 190051",
        until=(2, 13),
        fixed=(2, 14),
        macos=(((15, 0), NO_END),),
        text="anymps: a linear layer without input features ends the process on a Mac (MPSNDArray.mm: failed assertion "
        "`[MPSNDArray initWithDevice:descriptor:isTextureBacked:] Error: device may not be nil', pytorch issue "
        "190050); this exception is anymps' own. Leave the layer out where there are no features.",
    ),
    Hazard(
        "MPS610",
        "Gradient of a linear layer with one output",
        ("linear_backward",),
        Check.SINGLE_OUTPUT_BACKWARD,
        Outcome.WRONG,
        what="the gradient of a linear layer's input is zero beyond its first 16 KiB if the layer has one output and "
        "the gradient of that is not contiguous, as that of `y.sum()`",
        fix="Use `y.mean()`, or `(y * torch.ones_like(y)).sum()`.",
        issues=(187988,),
        source=f"{_LINEAR}; measured with 2.13.0 in pull request 189565",
        low=16384,
        until=(2, 13),
    ),
    Hazard(
        "MPS611",
        "Matrix product over a long dimension",
        ("mm", "addmm", "linear"),
        Check.LONG_INNER,
        Outcome.WRONG,
        what="a matrix product that sums over 32767 elements or more reads past the end of its operands and adds the "
        "values there (both sides of the result 16 or more)",
        fix=_SHORTER,
        issues=(195163, 177116),
        source=f"{_MATRIX}; above 32768 elements fixed by pull request 183535",
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
        what="the gradient of a linear layer's weight sums over all rows (batch x sequence), that of its input over "
        "all outputs; over 32767 or more it reads past the end of its operands and adds the values there",
        fix="Use smaller batches with gradient accumulation, or torch 2.14 or newer.",
        issues=(177116, 195163),
        source=f"{_MATRIX}; above 32768 elements fixed by pull request 183535",
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
        what="a matrix product that sums over 32767 or 32768 elements reads past the end of its operands and adds the "
        "values there; only longer ones no longer use the faulty kernel (both sides of the result 16 or more)",
        fix="Pad the summed dimension to 32769 with zeros, or split it in two.",
        issues=(195163,),
        source=f"{_MATRIX}, pull request 183535",
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
        what="a batched matrix product that sums over 32767 elements or more reads past the end of its operands and "
        "adds the values there (both sides of a result 16 or more)",
        fix="Split the summed dimension: `a[..., :16384] @ b[:, :16384] + a[..., 16384:] @ b[:, 16384:]`.",
        issues=(195163,),
        source=f"{_MATRIX}; pull request 195012 is open",
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
        what="with an expanded operand (stride 0, as the gradient of `y.sum()` is) most rows of a matrix product are "
        "zero",
        fix="Make it contiguous; for a gradient, `y.sum()` can be `(y * torch.ones_like(y)).sum()`. "
        "PYTORCH_MPS_PREFER_METAL=1 avoids it too, as does macOS 26.4.",
        issues=(180201,),
        source="aten/src/ATen/native/mps/OperationUtils.mm, pull request 180236 (measured with 2.11.0)",
        until=(2, 11),
        macos=(((15, 0), (26, 4)),),
    ),
    Hazard(
        "MPS616",
        "Batched matrix product of more than 2^32 elements",
        ("bmm",),
        Check.HUGE_BATCHED,
        Outcome.WRONG,
        what="with more than 2^32 elements and an operand that is not contiguous (in a backward one always is), "
        "batches beyond element 2^32 are computed from the first ones",
        fix="Split the batch.",
        issues=(197636,),
        source=f"{_MATRIX} (open)",
        low=2**32,
        until=(2, 15),
    ),
    Hazard(
        "MPS647",
        "Solution for a right side that is broadcast",
        ("_linalg_solve_ex",),
        Check.BROADCAST_SOLVE,
        Outcome.WRONG,
        what="`linalg.solve` of a batch of matrices and one right side for all of them solves the first and gives "
        "zeros for the others",
        fix="Expand it: `torch.linalg.solve(a, b.expand(*a.shape[:-1], b.shape[-1]).contiguous())`.",
        issues=(189134,),
        source="aten/src/ATen/native/mps/operations/LinearAlgebra.mm (reported in July 2026, when 2.13 was the newest "
        "release)",
        until=(2, 13),
    ),
    Hazard(
        "MPS649",
        "Number of the pivot that ends a Cholesky decomposition",
        ("linalg_cholesky_ex",),
        Check.LATE_PIVOT,
        Outcome.WRONG,
        what="`info` of `linalg.cholesky_ex` counts the pivot that is not positive within its block of 32 and takes "
        "the last such block: of a matrix larger than 32 it is another number, if never 0 in place of one that is not",
        fix="Ask only whether `info` is 0, or use torch 2.14 or newer.",
        issues=(),
        source="the kernels factorDiagonalBlockL and factorDiagonalBlockU (LinearAlgebra.metal) of the macOS wheels: "
        "those of torch 2.14 add the block's start and keep the first",
        low=32,
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS637",
        "Gradients of a linear layer whose weight is a vector",
        ("linear_backward",),
        Check.VECTOR_WEIGHT_BACKWARD,
        Outcome.ABORTS,
        what="the backward of `F.linear` with a weight of one dimension ends the process in a Metal assertion",
        fix="Write `x @ weight`, or give the weight two dimensions: `F.linear(x, weight[None]).squeeze(-1)`.",
        issues=(187988,),
        source=f"{_LINEAR}; measured with 2.13.0",
        until=(2, 13),
        text="anymps: the backward of F.linear with a weight of one dimension ends the process on a Mac "
        "(MPSGraphExecutable.mm: failed assertion `original module failed verification', pytorch issue 187988); this "
        "exception is anymps' own. Write `x @ weight`.",
    ),
)
