"""Which device check an operator makes first, by torch release.

Source: the call graphs of `libtorch_cpu.dylib` in the macOS arm64 wheels of torch 2.11, 2.12, 2.13, 2.14 and 2.15.
From each MPS wrapper the calls were followed in order to the first of `TensorIteratorBase::build`, `checkAllSameGPU`,
the `Placeholder` constructor, or the argument setter that says `Passed CPU tensor to MPS op`; a kernel that only calls
other operators has the family of the first one that checks. Kernels behind a dispatch stub without an iterator are
Metal kernels. The machine code was read, not run on a Mac. `where` builds an iterator first, so its own check (torch
2.11 to 2.14, `... found at least two devices.`) is out of reach.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from anymps.rules._encoding import Family
from anymps.rules._readings import Reading, Release
from anymps.rules._versions import TorchVersion, check_supported

READING: Final = Reading("families", "call graphs of libtorch_cpu.dylib in the macOS arm64 wheels", (2, 11), (2, 15))

_LETTERS: Final = {
    "D": Family.DOT,
    "F": Family.FUSED_OPTIMIZER,
    "G": Family.SAME_GPU,
    "I": Family.ITERATOR,
    "K": Family.MASKED_FILL,
    "L": Family.LINEAR,
    "M": Family.METAL,
    "N": Family.NONE,
    "P": Family.PLACEHOLDER,
    "S": Family.GRADSCALER,
}

# One letter for each release that was read; then operators: a base name stands for all its overloads, `name.overload`
# for one, `name.` for the overload without a name. A release that lacks the operator has the letter of the nearest one
# with it. Operators that are not listed are TensorIterator operators in every release.
_FAMILIES: Final = {
    "DDDDD": "dot vdot",
    "FFFFF": "_fused_adam_ _fused_adamw_ _fused_sgd_",
    "GGGGG": """
        _ctc_loss _mps_convolution _mps_convolution_transpose addmm addmm_ addr mm mps_convolution_backward
        mps_convolution_transpose_backward
    """,
    "IIIII": "isin.Tensor_Scalar isin.Tensor_Scalar_out",
    "IIIMM": "max_pool3d_with_indices",
    "IIMMM": "native_dropout native_dropout_backward",
    "KKKKK": "masked_fill_",
    "LLLLL": "linear",
    "MMIII": "cauchy_ conj_physical geometric_ log_normal_ logical_not",
    "MMIIP": "logit",
    "MMMMM": """
        _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _assert_async _cdist_backward _cholesky_solve_helper
        _convert_weight_to_int4pack _ctc_loss_backward _cummax_helper _cummin_helper _dirichlet_grad
        _embedding_bag _embedding_bag_dense_backward _embedding_bag_forward_only
        _embedding_bag_per_sample_weights_backward _fused_rms_norm _grouped_mm _histogramdd_bin_edges
        _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _int_mm _linalg_eigh _linalg_solve_ex
        _linalg_svd _sample_dirichlet _scaled_mm_v2 _standard_gamma _standard_gamma_grad _to_sparse.
        _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
        _upsample_bilinear2d_aa_backward _upsample_nearest_exact3d _upsample_nearest_exact3d_backward
        _weight_int4pack_mm _weight_int8pack_mm adaptive_avg_pool2d avg_pool2d avg_pool3d avg_pool3d_backward
        binomial bucketize cat cholesky cholesky_inverse col2im cumprod cumprod_ cumsum cumsum_ geqrf
        grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward histogram im2col
        index_copy index_copy_ linalg_cholesky_ex linalg_cross linalg_householder_product linalg_inv_ex
        linalg_lu_factor_ex linalg_lu_solve linalg_qr linalg_solve_triangular logspace
        max_pool3d_with_indices_backward max_unpool2d max_unpool3d mvlgamma native_group_norm
        native_group_norm_backward native_layer_norm nonzero_static poisson repeat_interleave roll searchsorted
        triangular_solve tril tril_ tril_indices triu triu_ triu_indices unfold_backward upsample_bicubic2d
        upsample_bicubic2d_backward upsample_bilinear2d upsample_linear1d upsample_nearest3d
        upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward
    """,
    "NNNNN": """
        _copy_from _copy_from_and_resize _efficientzerotensor _local_scalar_dense _reshape_alias as_strided
        empty empty_strided is_set_to permute record_stream resize_ set_ unfold view view_as_complex
        view_as_real
    """,
    "PIIII": "fill_ index_fill_ linalg_vector_norm norm relu relu_ renorm renorm_",
    "PIMMM": "_cdist_forward",
    "PMIII": "exponential_",
    "PMMMM": "_logcumsumexp _to_sparse.sparse_dim eye masked_scatter_ nonzero zero_",
    "PPIII": """
        all amax amin any count_nonzero mean nansum normal.Tensor_Tensor normal.Tensor_Tensor_out
        normal.Tensor_float normal.Tensor_float_out normal.float_Tensor normal.float_Tensor_out random_ randperm sum
        uniform_
    """,
    "PPMMM": """
        aminmax argmax argmin bernoulli bernoulli_ embedding_dense_backward gather histc kthvalue multinomial
        normal_ replication_pad1d replication_pad1d_backward scatter scatter_ scatter_add scatter_add_
        scatter_reduce scatter_reduce_ sort topk trace
    """,
    "PPPGG": "linear_backward",
    "PPPII": """
        glu_backward log_sigmoid_backward log_sigmoid_forward max. min. mish_backward nan_to_num
    """,
    "PPPMM": """
        _upsample_nearest_exact1d _upsample_nearest_exact2d adaptive_max_pool2d adaptive_max_pool2d_backward
        arange bmm index_select linspace max.dim max.dim_max median min.dim min.dim_min nanmedian range
        unique_dim upsample_nearest1d upsample_nearest2d
    """,
    "PPPPI": "flip logical_and logical_or logical_xor prod std std_mean var var_mean",
    "PPPPM": """
        _log_softmax _softmax _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward addbmm
        addbmm_ baddbmm baddbmm_ constant_pad_nd nll_loss2d_backward nll_loss2d_forward nll_loss_backward
        nll_loss_forward reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
        reflection_pad3d reflection_pad3d_backward replication_pad2d replication_pad2d_backward
        replication_pad3d replication_pad3d_backward upsample_bilinear2d_backward upsample_linear1d_backward
        upsample_nearest1d_backward upsample_nearest2d_backward
    """,
    "PPPPP": """
        _batch_norm_with_update _fft_c2c _fft_c2r _fft_r2c _log_softmax_backward_data _lstm_mps
        _native_batch_norm_legit _prelu_kernel _prelu_kernel_backward _scaled_dot_product_attention_math_for_mps
        _softmax_backward_data _unique _unique2 _weight_norm_interface _weight_norm_interface_backward addmv
        addmv_ avg_pool2d_backward batch_norm_backward binary_cross_entropy binary_cross_entropy_backward
        bincount hardtanh_backward huber_loss huber_loss_backward isin.Scalar_Tensor isin.Scalar_Tensor_out
        isin.Tensor_Tensor isin.Tensor_Tensor_out lstm_mps_backward max_pool2d max_pool2d_backward
        max_pool2d_with_indices max_pool2d_with_indices_backward mse_loss_backward native_batch_norm
        native_batch_norm_backward native_layer_norm_backward pixel_shuffle pixel_unshuffle repeat
        smooth_l1_loss_backward unique_consecutive unique_dim_consecutive
    """,
    "SSSSS": "_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_",
}

_UNVERIFIED: Final = """
    _cholesky_solve_helper _embedding_bag _embedding_bag_forward_only _int_mm _linalg_solve_ex _to_sparse
    _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _upsample_nearest_exact3d_backward adaptive_max_pool2d avg_pool3d_backward cat
    constant_pad_nd grid_sampler_2d grid_sampler_3d linalg_inv_ex linalg_lu_factor_ex linalg_qr
    linalg_solve_triangular max_pool3d_with_indices median mvlgamma nanmedian replication_pad1d
    replication_pad1d_backward roll trace triangular_solve upsample_bicubic2d upsample_bicubic2d_backward
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward zero_
"""


def family(name: str, version: str | TorchVersion) -> Family:
    """The first device check of an operator overload (`add.Tensor`) that has a dense MPS kernel.

    Raises UnsupportedTorchError for a release outside the supported range.
    """
    table = _table(READING.nearest(check_supported(version).release))
    full = name if "." in name else f"{name}."
    found = table.get(full)
    return found if found is not None else table.get(name.partition(".")[0], Family.ITERATOR)


@lru_cache(maxsize=5)
def _table(release: Release) -> dict[str, Family]:
    column = release[1] - READING.first[1]
    return {name: _LETTERS[letters[column]] for letters, names in _FAMILIES.items() for name in names.split()}


def is_verified(name: str) -> bool:
    """Whether a check was found for the operator in every release that has it.

    For the few others METAL is an assumption: they set Metal kernel arguments, but the setter was not seen.
    """
    return name.partition(".")[0] not in _unverified()


@lru_cache(maxsize=1)
def _unverified() -> frozenset[str]:
    return frozenset(_UNVERIFIED.split())
