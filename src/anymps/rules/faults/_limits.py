"""Rows of `_table`: large sizes, determinism, events, threads, memory, compilers, optimizers. Sources: see each row."""

from __future__ import annotations

from typing import Final

from anymps.rules._encoding import Family
from anymps.rules._limits import OPERATOR_LIMITS
from anymps.rules.faults._model import Check, Hazard, Outcome

_INDEXING: Final = "aten/src/ATen/native/mps/operations/Indexing.mm"
_EVENTS: Final = "aten/src/ATen/mps/MPSEvent.mm; fixed by pull request 196395"
_ALERTS: Final = "callers of alertNotDeterministic in libtorch_cpu.dylib, torch 2.13 to 2.15"
_NOT_REPEATABLE: Final = (
    "deterministic algorithms are on, but this operator adds in an order that varies, without an alert"
)
_POOLS: Final = ("max_pool2d", "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d")


LIMITS: Final[tuple[Hazard, ...]] = (
    Hazard(
        "MPS651",
        "Lookup in a table of more than 2^31 elements",
        ("index_select",),
        Check.ELEMENTS,
        Outcome.WRONG,
        what="rows beyond element 2^31 of the table (`index_select`, `F.embedding`) are zeros",
        fix="Split the table in two.",
        issues=(188756,),
        source=f"{_INDEXING}; fixed by pull request 187109",
        low=2**31,
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS652",
        "Concatenation to more than 2^31 elements",
        ("cat",),
        Check.CAT_ELEMENTS,
        Outcome.WRONG,
        what="a concatenation of more than 2^31 elements is wrong, and writes before the start of its result",
        fix="Concatenate fewer at once.",
        issues=(189960,),
        source="aten/src/ATen/native/mps/operations/Shape.mm; fixed by pull request 189965",
        low=2**31,
        until=(2, 13),
        fixed=(2, 14),
    ),
    Hazard(
        "MPS653",
        "Fold of more than 2^32 elements",
        ("col2im",),
        Check.FOLD_ELEMENTS,
        Outcome.WRONG,
        what="`F.fold` of columns with more than 2^32 elements is wrong",
        fix="Fold fewer channels at once.",
        issues=(185663,),
        source="aten/src/ATen/native/mps/operations/Im2Col.mm; fixed by pull request 185664",
        low=2**32,
        until=(2, 12),
        fixed=(2, 13),
    ),
    Hazard(
        "MPS654",
        "Pooling of more than 2^31 elements",
        _POOLS,
        Check.ELEMENTS,
        Outcome.WRONG,
        what="pooling of a tensor with more than 2^31 elements is wrong",
        fix="Pool fewer samples at once.",
        issues=(194600,),
        source="aten/src/ATen/native/mps/operations/Pooling.mm; torch 2.15 raises instead (pull request 194460)",
        low=2**31,
        until=(2, 14),
        fixed=(2, 15),
    ),
    Hazard(
        "MPS655",
        "Pooling of more than 2^31 elements",
        _POOLS,
        Check.ELEMENTS,
        Outcome.RAISES,
        what="pooling does not support tensors with more than 2^31 elements",
        fix="Pool fewer samples at once.",
        issues=(194600,),
        source="C strings of the torch 2.15 wheel; pull request 194460",
        low=2**31,
        since=(2, 15),
        until=(2, 15),
        error="NotImplementedError",
        text="MPS pooling does not support tensors that require 64-bit indexing",
    ),
    Hazard(
        "MPS656",
        "masked_fill_ of more than 2^32 elements",
        ("masked_fill_",),
        Check.ELEMENTS,
        Outcome.RAISES,
        what="masked_fill_ does not support tensors with more than 2^32 elements",
        fix="Fill it in slices.",
        issues=(),
        source=f"{_INDEXING}, C strings of the wheels",
        low=2**32,
        until=(2, 15),
        text=OPERATOR_LIMITS["masked_fill size"].text,
    ),
    Hazard(
        "MPS657",
        "Batched matrix product with a dimension above 2^32",
        ("bmm",),
        Check.MATMUL_OUTPUT,
        Outcome.RAISES,
        what="no dimension of the result of a batched matrix product may be larger than 2^32",
        fix="Split the dimension.",
        issues=(),
        source="aten/src/ATen/native/mps/operations/LinearAlgebra.mm, C strings of the wheels",
        low=2**32,
        until=(2, 15),
        text=OPERATOR_LIMITS["matmul size"].text,
    ),
    Hazard(
        "MPS658",
        "MPSGraph tensor of more than 4 GiB",
        (),
        Check.BYTES,
        Outcome.MAY_ABORT,
        what="MPSGraph arrays above 2^32 bytes can fail an assertion (`total bytes of NDArray > 2**32`)",
        fix="Split the tensor.",
        issues=(84039, 149325),
        source="operators whose kernels are MPSGraphs (machine code of the wheels)",
        low=2**32,
        until=(2, 15),
        family=Family.PLACEHOLDER,
    ),
    # determinism
    Hazard(
        "MPS661",
        "Operator that is not deterministic",
        ("index_add", "index_add_"),
        Check.DETERMINISTIC,
        Outcome.VARIES,
        what=_NOT_REPEATABLE,
        fix="Accept that, or run it on the CPU.",
        issues=(161029,),
        source=_ALERTS,
        since=(2, 13),
        until=(2, 15),
    ),
    Hazard(
        "MPS661",
        "Operator that is not deterministic",
        ("embedding_dense_backward",),
        Check.DETERMINISTIC,
        Outcome.VARIES,
        what=_NOT_REPEATABLE,
        fix="Accept that, or run it on the CPU.",
        issues=(161029,),
        source=_ALERTS,
        since=(2, 13),
        until=(2, 14),
        fixed=(2, 15),
    ),
    # events and threads
    Hazard(
        "MPS671",
        "Event.elapsed_time() that never returns",
        (),
        Check.EVENT_HANGS,
        Outcome.HANGS,
        what="measuring up to the same end event twice, or up to one without timing or that was never recorded, waits "
        "for a signal that does not come",
        fix="Measure once for each `end.record()`, with `enable_timing=True` on both events.",
        issues=(162872,),
        source=_EVENTS,
        until=(2, 14),
        fixed=(2, 15),
        text="anymps: this elapsed_time() never returns on a Mac up to torch 2.14 (the end event was measured "
        "before, has no timing or was never recorded; pytorch issue 162872); this exception is anymps' own. Record "
        "an end event with enable_timing=True and measure it once.",
    ),
    Hazard(
        "MPS672",
        "Event.elapsed_time() after the event's synchronize()",
        (),
        Check.EVENT_MAY_HANG,
        Outcome.MAY_HANG,
        what="`end.synchronize()` can use up the signal that `start.elapsed_time(end)` then waits for",
        fix="Call `torch.mps.synchronize()` instead of `end.synchronize()`.",
        issues=(162872,),
        source=_EVENTS,
        until=(2, 14),
        fixed=(2, 15),
    ),
    Hazard(
        "MPS673",
        "Two threads on mps at the same time",
        (),
        Check.THREADS,
        Outcome.MAY_ABORT,
        what="two Python threads that issue operators on mps at the same time crash inside Metal",
        fix="Let one thread at a time use mps: put a lock around it.",
        issues=(197805,),
        source="reported with 2.14.0 and nightly builds of 2.15",
        since=(2, 14),
        until=(2, 15),
    ),
    # memory
    Hazard(
        "MPS674",
        "torch.accelerator.empty_host_cache()",
        (),
        Check.HOST_CACHE,
        Outcome.ABORTS,
        what="`torch.accelerator.empty_host_cache()` ends Python with a segmentation fault: mps has no host "
        "allocator, and the function does not check for one",
        fix="Skip the call on mps, which caches no host memory.",
        issues=(197561,),
        source="at::accelerator::emptyHostCache in libtorch_cpu.dylib, torch 2.12 to 2.15",
        since=(2, 12),
        until=(2, 14),
        fixed=(2, 15),
        text="anymps: torch.accelerator.empty_host_cache() ends Python with a segmentation fault on a Mac with torch "
        "2.12 to 2.14 (pytorch issue 197561); this exception is anymps' own. Skip the call on mps, which caches no "
        "host memory.",
    ),
    # compiled code
    Hazard(
        "MPS681",
        "Compiled LayerNorm",
        (),
        Check.COMPILED_LAYER_NORM,
        Outcome.MAY_BE_WRONG,
        what="an nn.LayerNorm compiled by inductor was off by more than the range of its input, without a warning",
        fix="Use torch 2.13 or newer, or do not compile.",
        issues=(191976,),
        source="reported in August 2026 of a release before 2.13; right in 2.13 (the reporter and a maintainer)",
        until=(2, 12),
        fixed=(2, 13),
    ),
    # transforms
    Hazard(
        "MPS659",
        "Fourier transform of a dimension before the last four",
        ("_fft_c2c", "_fft_r2c", "_fft_c2r"),
        Check.OUTER_TRANSFORM,
        Outcome.ABORTS,
        what="a Fourier transform of a dimension that is not among the last four ends the process in a Metal assertion",
        fix="Move the dimension: `torch.fft.fft(x.movedim(0, -1)).movedim(-1, 0)`.",
        issues=(186885, 188864),
        source="aten/src/ATen/native/mps/operations/FastFourierTransform.mm; fixed by pull request 186967",
        until=(2, 13),
        fixed=(2, 14),
        text="anymps: a Fourier transform of a dimension before the last four ends the process on a Mac "
        "(MPSGraphExecutable.mm: failed assertion `original module failed verification', pytorch issue 186885); this "
        "exception is anymps' own. Move the dimension to the end first.",
    ),
    # decompositions
    Hazard(
        "MPS660",
        "Batched singular values of 8192 elements or more",
        ("_linalg_svd",),
        Check.BATCHED_MATRICES,
        Outcome.RAISES,
        what="`svd`, `svdvals` and `lstsq` of a batch of matrices with 8192 elements or more fail to compile their "
        "kernel",
        fix="Split the batch below 8192 elements, or decompose on the CPU: `torch.linalg.svd(x.cpu())`.",
        issues=(195937, 192802),
        source="measured with 2.14.0 on an M1 and M4; kornia issue 4201",
        low=8192,
        since=(2, 14),
        until=(2, 14),
        text='Failed to created pipeline state object, error: Error Domain=AGXMetal13_3 Code=2 "Compilation failed due '
        'to an interrupted connection: XPC_ERROR_CONNECTION_INTERRUPTED. This error occurred after multiple retries." '
        "UserInfo={NSLocalizedDescription=Compilation failed due to an interrupted connection: "
        "XPC_ERROR_CONNECTION_INTERRUPTED. This error occurred after multiple retries.}",
    ),
    # optimizers
    Hazard(
        "MPS691",
        "Fused optimizer under a GradScaler",
        ("_fused_adam_", "_fused_adamw_", "_fused_sgd_"),
        Check.GRAD_SCALER,
        Outcome.WRONG,
        what="the fused kernels ignore the GradScaler: they update the weights with gradients that are still scaled, "
        "or infinite, which makes the weights NaN",
        fix="Leave `fused=True` out, or use torch 2.13.",
        issues=(),
        source="pytorch pull request 186360; arguments of the kernels (FusedOptimizerOps.metal) in the macOS wheels",
        until=(2, 12),
        fixed=(2, 13),
    ),
    Hazard(
        "MPS692",
        "GradScaler over gradients in half precision",
        ("_amp_foreach_non_finite_check_and_unscale_",),
        Check.HALF_GRADIENTS,
        Outcome.WRONG,
        what="a GradScaler makes gradients in float16 and bfloat16 zero, so that the model does not train",
        fix="Keep the weights in float32 under autocast, leave the GradScaler out with bfloat16, or use torch 2.13 or "
        "newer.",
        issues=(),
        source="pytorch pull request 184286, which fixes it (Amp.metal)",
        until=(2, 12),
        fixed=(2, 13),
    ),
)
