"""Which kernels of a release the comparison reaches, and why the others are left out: every kernel has a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from .operators import OPERATORS
from .reached import sort_kernels

_EARLIER = (
    "angle",
    "copy_conj",
    "copy_identity",
    "make_complex",
    "polar",
    "sqr",
    "clamp_min_scalar",
    "clamp_max_scalar",
)
"""Kernels that were compared until November 2026, and that the device takes for no call."""
_ELEMENTS = "|".join(sorted({*_EARLIER, *(one.kernel for one in OPERATORS)}, key=len, reverse=True))
_COMPARED = re.compile(
    rf"({_ELEMENTS})_(dense|strided|inner_contiguous)"
    r"|clamp_scalar_|lerp_tensor_"
)
_TO_2_13 = re.compile(
    r"(sum|nansum|count_nonzero|any|all|max|min)_reduction_|(argmax|argmin|norm_l[12])_reduction_"
    r"|norm_(float2?|half2?|bfloat)_|(cumsum|cumprod|logcumsumexp|cummax|cummin)_"
    r"|(pow_scalar|elu|elu_backward|copy_neg|copy_conj_neg)_(dense|strided)|cross_(dense|strided)_"
    r"|cdist_backward_|(sdpa_vector|prefill_attention)_|(matmul|addmm|naive_(bmm|baddbmm|addbmm))_"
    r"|(factorDiagonalBlock|applyTRSM|applySYRK)[LU]$|linalg_qr_householder_|orgqr_"
    r"|standard_(gamma_grad|dirichlet)_|dirichlet_grad_|randperm_small_"
    r"|gather_(dense|strided)_|scatter_(set|add|amax|amin|prod|signbit)_|embedding_dense_backward"
    r"|(avg|max)_pool_|group_norm|im2col_|col2im_|embedding_bag_"
    r"|cat_int32_t_(?!(\w+_)?(uint|ushort|ulong)(_|$))|tri[ul]_(inplace_)?int_|(eye|replication_pad1d)_(?!\w*half2)"
    r"|index_(copy_\w+_32$|fill_|reduce_|select_|put_)|count_nonzero_prefix_sum_|prefix_sum_blocks|scatter_nonzero_"
    r"|unfold_backward_|max_unpool_|repeat_interleave_|histogramdd_(float|half|bfloat)|kernel_index_offset$|renorm_"
    r"|(uniform|normal|log_normal|exponential|cauchy|geometric|bernoulli|random_int|dropout)_"
    r"|(fill|masked_fill)_scalar_|searchsorted_|upsample_(?!\w+_aa_(backward_)?(half|bfloat)|\w+_u64$)"
    r"|grid_sampler_[23]d_(?!\w*i64_)"
    r"|standard_gamma_(float|half|bfloat)|fused_(adam|sgd)|ampNonFiniteCheckAndUnscale_|ampUpdateScale_float"
    r"|\w+_polynomial_|clamp_(dense|strided)_|layer_norm_|rms_norm_(?!looped)"
)
"""These were compared for torch 2.13 only, but for those of both."""
_OF_BOTH = re.compile(
    r"(cumsum|cumprod|logcumsumexp|cummax|cummin)_|(pow_scalar|elu|elu_backward)_(dense|strided|inner_contiguous)"
    r"|cross_(dense|strided)_|cdist_backward_|(sdpa_vector|prefill_attention)_|orgqr_"
    r"|(standard_gamma|dirichlet)_grad_"
)
_OF_2_15 = re.compile(
    r"norm_(l\d|inf|neginf)|(sum|nansum|prod|count_nonzero|any|all|max|min|var|std|argmax|argmin)_reduction_|where_|log_sigmoid_backward_"
    r"|addc(mul|div)_|lerp_(dense|strided)_|glu_|frexp_|(log_)?softmax_|copy_(conj_)?neg_inner_contiguous_"
    r"|(factorDiagonalBlock|applyTRSM|applySYRK)[LU]_float2?$|arange_\w+_i32$|nllnd_loss_|conv2d_r\d_i32_|int_mm_char|luInvSmall_"
    r"|arange_strided_|linspace_(?!\w+_i64)|logspace_(?!(strided_)?bool|\w+_i64)"
    r"|gemv_(t|t2d|nt)_\w+(?<!_i64)$|grouped_mm_(rows|k)_\w+_u32$|compute_linear_combination_\w+_u32$"
    r"|ctc_loss_(backward_(log_beta|collect)_)?float_\w+_int32_t$"
    r"|constant_pad_nd_(dense_)?(?!dense|ushort|uint|ulong|half2|\w+_u64)|(reflection|replication)_pad\dd_(?!\w*(half2|_i64))"
    r"|upsample_(bilinear2d|nearest\w*2d)_backward_\w+_u32$|upsample_\w+_aa_backward_float|histc_atomic_global_"
    r"|histogramdd_(atomic_)?float$"
    r"|index_(select_dim|add|check_bounds)_|median_(gather|select)_|unique_(?!\w*(_bool|_32)(_|$))"
    r"|conv1d_depthwise_|conv3d_simd_(?!long)|geqrf_|triangular_solve_small_|grouped_mm_few_rows_\w+_u32$"
    r"|(factorPanel|trsmPanel|trsmDiagSolve|gemmSimd|gemmTiled|transposeInPlace|laswpGather)LU|luStream|luApplyPivotsRHS_"
)
"""Of later releases alone."""
_NOT_IN_2_15 = re.compile(
    r"(matmul|addmm|naive_(bmm|baddbmm|addbmm))_|(factorDiagonalBlock|applyTRSM|applySYRK)[LU]$"
    r"|linalg_qr_householder_|histogramdd_(half|bfloat)$"
)
"""Of those that were compared for torch 2.13, what torch 2.15 launches otherwise."""
_SORTS = re.compile(r"(mb_|radix_|sort_block)")
_OF_2_13 = "matrix products, factorizations"
_UNSIGNED = "sorts, concatenations and pads of unsigned integers of 16 to 64 bits, pads of complex32"
_NO_ROW = "sorts of block sizes that no input reaches"
_LARGE = "concatenations, slices, grids, pads and ranges of 2²⁹ elements or more"
_LACKING = "dtypes that the CPU's code does not support"
_EIGHT_BITS = "floats of eight bits"
UNEXPLAINED = "others"
"""Kernels that have neither a launch nor a reason of their own."""
_FLOAT8 = re.compile("float8")
LEFT_OUT: dict[str, tuple[str, str]] = {
    _OF_2_13: (_TO_2_13.pattern, "They run, but were compared for torch 2.13 only."),
    "norms by root mean square of more than 4096 numbers": (
        r"(layer|rms)_norm_",
        "Only `_fused_rms_norm` launches them, and only a PyTorch built with MPS calls it.",
    ),
    _UNSIGNED: (
        r"cat_int32_t_(\w+_)?(uint|ushort|ulong)(_|$)|constant_pad_nd_(dense_)?(uint|ushort|ulong|half2)(_u32)?$",
        "They run, but the comparison does not cover these dtypes.",
    ),
    _NO_ROW: (
        r"(mb_|radix_|sort_block)",
        "The host merges blocks of 256 threads or more, sorts floats as integers, and other long rows by radix.",
    ),
    _LARGE: (
        r"layer_norm_\w+_i64_|conv2d_r\d_i64_|conv3d_simd_long_|(arange|linspace|logspace)_\w+_i64$|cat_int64_t_|index_copy_\w+_64$|grid_sampler_\w+_i64_"
        r"|upsample_\w+_u64$|gemv_\w+_i64$|grouped_mm_(rows|k|few_rows)_\w+_u64$|compute_linear_combination_\w+_u64$|ctc_loss_\w+_int64_t$"
        r"|constant_pad_nd_\w+_u64$|(reflection|replication)_pad\dd_\w+_i64$",
        "They run only for tensors larger than those compared.",
    ),
    _LACKING: (
        r"int_mm_uchar|upsample_\w+_aa_(backward_)?(half|bfloat)|(eye|re(flection|plication)_pad\dd)_\w*half2|histogramdd_|logspace_(strided_)?bool"
        r"|ctc_loss_(backward_(log_beta|collect)_)?(half|bfloat)_",
        "They run, but the CPU's code rejects the dtype, so there is no result to compare.",
    ),
    _EIGHT_BITS: (
        r"scaled_mm_",
        "They are compared with the device of torch 2.13, which does not have this dtype.",
    ),
    "copies of bytes, rows and layouts": (
        r"(contiguous_byte_copy|inner_contiguous_(copy|scatter)|nchw_to_nhwc|conv_weight_to|flip_)",
        "They move data and compute nothing.",
    ),
    "factorizations by panels": (
        r"(factorDiagonalPanel|applyPanelTRSM)[LU]$",
        "The host uses them on chips whose GPU has tensor units, which no virtual Mac has.",
    ),
    "blocks of reflections": (
        r"householder_block_",
        "MPSGraph multiplies by their result in between, so a list of launches cannot describe the call.",
    ),
    "eigenvalues, singular values, large triangles": (
        r"(eigh|svd)_jacobi_|triangular_solve_float|histc_atomic_threadgroup_",
        "They take threadgroup memory whose length is set at launch, which is not supported here.",
    ),
    "tables of offsets": (
        r"kernel_index_offsets_",
        "In the host code that was read, no operator calls them; indexing computes its offsets in its own kernels.",
    ),
    "indices of triangles": (
        r"tri[ul]_indices_",
        "The call takes no tensor, and only calls with tensors can be computed by a kernel.",
    ),
    "repetitions by sums of 32 bits, and of truth values": (
        r"unique_\w+_32$|unique_\w+_bool",
        "The host counts in 64 bits and treats bool as bytes, so it uses none of these.",
    ),
    "permutations of more than 32,768 numbers": (
        r"randperm_dedup_islands_",
        "They only reorder keys that a radix sort found equal.",
    ),
    "samplers by rejection": (
        r"(poisson|standard_binomial)_",
        "They draw from their own streams until a draw is accepted; no CPU sampler draws the same numbers.",
    ),
    "scaling of gradients of odd layouts and types": (
        r"ampNon",
        "The launch is described, but the kernel reads such gradients as contiguous; no CPU code does.",
    ),
    "scales of 16 bits": (r"amp", "The CPU's operator takes only a float32 scale."),
    "products with weights of eight bits": (
        r"(int8pack_mv|large_m_int8pack_mm)_",
        "They take threadgroup memory whose length is set at launch, which is not supported here.",
    ),
    "products with weights of four bits": (
        r"(int4pack_mm|weight_to_int4pack)",
        "The launch is described, but the CPU has no operator with this packing.",
    ),
    "application of pivots": (r"applyPivots$", "The host's code does not use this kernel."),
    "pivots as a permutation": (
        r"unpack_pivots",
        "`lu_unpack` checks the pivots' values first, and scatters with other kernels afterwards.",
    ),
    "sparse tensors": (
        r"(\w*sparse|spmm|coalesce|build_|intersect|flatten_indices|fused_gather|mark_|compute_o|shift_right|kogge)",
        "The CPU computes all calls with sparse tensors: the device does not pass them to a kernel.",
    ),
    "assertions": (r"assert_async", "They compute nothing."),
    UNEXPLAINED: (r"", "The launch has not been described yet."),
}
"""By family: what its kernels' names begin with, and why no kernel of it is compared. The first that fits counts."""
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in LEFT_OUT.items()}
REACHED = "compared"


def family(kernel: str, release: tuple[int, int]) -> str:
    """`compared`, or the family that is left out."""
    if _FLOAT8.search(kernel):
        return _EIGHT_BITS
    if _OF_BOTH.match(kernel) or (release > (2, 13) and _OF_2_15.match(kernel)):
        return REACHED
    if _SORTS.match(kernel):
        return _sort(kernel, min(release, (2, 15)) if release > (2, 13) else (2, 13))
    if _TO_2_13.match(kernel):
        return _OF_2_13 if release > (2, 13) and _NOT_IN_2_15.match(kernel) else REACHED
    if _COMPARED.match(kernel):
        return REACHED
    return next(name for name, rule in _PATTERNS.items() if rule.match(kernel))


def _sort(kernel: str, release: tuple[int, int]) -> str:
    """Of a kernel that sorts: the blocks of unsigned integers are as those of integers."""
    signed = kernel
    for unsigned, name in (("_ushort_", "_short_"), ("_uint_", "_int_"), ("_ulong_", "_long_")):
        signed = signed.replace(unsigned, name)
    if kernel in sort_kernels(release):
        return REACHED
    return _UNSIGNED if signed in sort_kernels(release) else _NO_ROW


def count(kernels: Iterable[str], release: tuple[int, int]) -> dict[str, int]:
    """How many kernels of a release each family has."""
    found = Counter(family(one, release) for one in kernels)
    return {name: found[name] for name in (REACHED, *LEFT_OUT) if found[name]}


def table(counts: dict[str, int]) -> list[str]:
    """Lines of the page: each family that is left out, how many kernels it has, and why."""
    lines = [
        f"{counts[REACHED]:,} of {sum(counts.values()):,} kernels belong to operators that were compared, "
        "in at least one layout. The others:",
        "",
        "| kernels | number | why they were not compared |",
        "| --- | ---: | --- |",
    ]
    return lines + [f"| {name} | {counts[name]:,} | {why} |" for name, (_, why) in LEFT_OUT.items() if name in counts]
