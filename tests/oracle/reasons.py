"""Why a kernel gives another number than the device does: read from the kernels, one sentence each."""

from __future__ import annotations

_EXACT_AT_ENDS = "The kernel's formula has no case for this end of the range."
_HALF = "The kernel computes in the 16-bit type from beginning to end; the device does so in float32 and rounds once."
_COMPLEX = "The kernel's formula for complex numbers loses digits where terms cancel, and at zeros and branch points."
_ORDER = "Numbers are taken together in another order, which shows where they cancel."
_POLYNOMIAL = "NaN is treated differently by the CPU's code, and digits are lost where terms cancel."
_OWN = "The kernel has a polynomial or a series of its own, with fewer digits than the CPU's."
_ENDED = "The kernel of int64 takes lanes that have ended for 0 (pytorch pull request 191104), as a Mac does."

_ROUNDS = "The kernel computes in float32 and rounds once; the CPU's code rounds 16-bit numbers in between."

_REASONS = {
    "upsample_bilinear2d": "Another order shows where terms cancel; the kernel cuts bytes off, the CPU rounds them.",
    "upsample_bicubic2d": _ROUNDS,
    "upsample_trilinear3d": _ROUNDS,
    "upsample_bicubic2d_aa": _ORDER,
    "grid_sampler_2d": _ORDER,
    "grid_sampler_3d": _ORDER,
    "grid_sampler_2d_backward": "Another order shows where terms cancel; a place of 16 bits may fall in the next cell.",
    "grid_sampler_3d_backward": _ORDER,
    "abs": "The kernel goes through float32: integers above 2²⁴ lose digits, and the smallest one becomes the largest.",
    "acos": "The kernel returns π for exactly 1 and -π for -1, and loses digits where terms cancel.",
    "erfc": "The kernel is 1 - erf(x), which has few digits left from about 2 on, and none where erf(x) rounds to 1.",
    "erf": "The smallest normal number is zero for the CPU's code in this type.",
    "expm1": "The kernel subtracts 1 from exp(x) for all but the smallest numbers, which costs digits near 0.",
    "cosh": "The CPU's code overflows at 88.7; the kernel only where the result does.",
    "sinh": "The CPU's code overflows at 88.7; the kernel only where the result does.",
    "sinc": "The kernel of complex numbers gives 0 where the limit is 1.",
    "silu": "Of integers: the kernel computes in float32, where the sigmoid of 17 is 1; the device does so in float64.",
    "gelu": "Of infinity the CPU's code makes NaN; the tails of the kernel are zero.",
    "lgamma": _OWN,
    "hypot": "The kernel is sqrt(x² + y²): it overflows early, and NaN wins over infinity.",
    "nextafter": "The kernel of bfloat16 takes the next float32 and rounds it, which gives the number itself.",
    "gcd": "The smallest integer has no absolute value; the two go on with different numbers.",
    "div_floor": "The kernel divides and rounds down; the CPU corrects the remainder, so -0.0 of infinity is -1 there.",
    "remainder": "The kernel is x - y·floor(x/y), which is NaN of an infinite y.",
    "fmod": "The CPU's code gives NaN where the quotient overflows.",
    "silu_backward": "The kernel computes x + 1 - x·sigmoid(x), where the 1 is lost for large x.",
    "hardswish_backward": "The CPU's code lets NaN through as any number; the kernel gives NaN.",
    "hardsigmoid_backward": "The CPU's code and the kernel treat NaN differently.",
    "gelu_backward": "The tails of the CPU's code are zero; the kernel goes on.",
    "gelu_tanh_backward": "The tails of the CPU's code are zero; the kernel goes on.",
    "sigmoid_backward": "The device multiplies by 1 - y first, which may overflow; the kernel takes y·(1 - y) first.",
    "tanh_backward": "The kernel's product of the smallest normal number is zero; complex products cancel otherwise.",
    "mish_backward": "The factor of large negative numbers is zero in the kernel, which makes NaN of an infinity.",
    "logit_backward": "NaN has no gradient for the CPU's code, and NaN for the kernel.",
    "uniform_dist": "What rounds to the upper end becomes the lower one in torch 2.15, but not in torch 2.13.",
    "shrink_backward": "NaN counts as small for the CPU's code, and as large for the kernel.",
    "add_alpha": "The kernel rounds the product before the sum; the CPU's vector code does both in one.",
    "sub_alpha": "The kernel rounds the product before the difference; the CPU's vector code does both in one.",
    "lerp_alpha": "The formula is a + w·(b - a) in both; the kernel rounds each step in the type itself.",
    "lerp": "The kernel is a + w·(b - a) in the type itself; the CPU's code starts from b where w is a half or more.",
    "addcmul": "The kernel fuses the product with the sum, which shows where they cancel.",
    "softmax": _ORDER,
    "conv2d": _ORDER,
    "reflection_pad3d": _ORDER,
    "replication_pad2d": _ROUNDS,
    "replication_pad3d": _ROUNDS,
    "linalg_inv": _ORDER,
    "log_softmax": _ORDER,
    "igamma": _OWN,
    "igammac": _OWN,
    "zeta": "The kernel has no case for very large arguments, and gives NaN or zero.",
    "digamma": _OWN,
    "i0": _HALF,
    "i1": _HALF,
    "erfcx": _HALF,
    "cumsum": _ORDER,
    "cumprod": _ORDER,
    "sum": _ORDER,
    "nansum": _ORDER,
    "mean": _ORDER,
    "amax": _ENDED,
    "amin": _ENDED,
    "norm_l1_reduction": _ORDER,
    "norm_l2_reduction": _ORDER,
    "attention": "The kernel goes through the keys once, in another order, and keeps sums beside the largest so far.",
    "norm": _ORDER,
    "norms": _ORDER,
    "renorm": _ORDER,
    "matmul": _ORDER,
    "addmm": _ORDER,
    "naive_bmm": _ORDER,
    "naive_baddbmm": _ORDER,
    "naive_addbmm": "Numbers are taken together in another order, batches in the type itself.",
    "gemv": _ORDER,
    "grouped_mm": _ORDER,
    "ctc_loss": _ORDER,
    "triangular_solve": _ORDER,
    "geqrf": _ORDER,
    "lu": _ORDER,
    "conv1d": _ORDER,
    "conv3d": _ORDER,
    "image gradients": _ORDER,
    "compute_linear_combination": _ORDER,
    "cholesky": _ORDER,
    "linalg_qr": _ORDER,
    "orgqr": _ORDER,
    "embedding_bag_backward": _ORDER,
    "pow_scalar": "The kernel is exp(y·log(x)), or multiplies complex numbers as these, which loses digits.",
    "elu": "The kernel is exp(x) - 1, which loses digits near zero.",
    "elu_backward": "The kernel is exp(x) - 1, which loses digits near zero.",
    "cdist_backward": "Another order shows where terms cancel; for p = inf, 16-bit distances are found anew.",
    "cross": "Each product is rounded, or fused with the difference, which shows where they cancel.",
    "native_group_norm": _ORDER,
    "native_group_norm_backward": _ORDER,
    "layer_norm": _ORDER,
    "logcumsumexp": "The angle of a complex number may differ by a full turn.",
    "bessel_j0_forward": _HALF,
    "bessel_j1_forward": _OWN,
    "bessel_y0_forward": _HALF,
    "bessel_y1_forward": _OWN,
    "modified_bessel_i0_forward": _HALF,
    "modified_bessel_i1_forward": _HALF,
    "modified_bessel_k0_forward": _EXACT_AT_ENDS,
    "modified_bessel_k1_forward": _EXACT_AT_ENDS,
    "scaled_modified_bessel_k0_forward": _EXACT_AT_ENDS,
    "scaled_modified_bessel_k1_forward": _EXACT_AT_ENDS,
}


_FAMILIES = {
    "chebyshev_polynomial": _POLYNOMIAL,
    "shifted_chebyshev_polynomial": _POLYNOMIAL,
    "hermite_polynomial": _POLYNOMIAL,
    "laguerre_polynomial": _POLYNOMIAL,
}


def reason(kernel: str, dtype: str) -> str:
    """The sentence for a kernel; that of complex numbers where it has none of its own."""
    if kernel in _REASONS:
        return _REASONS[kernel]
    for family, text in _FAMILIES.items():
        if kernel.startswith(family):
            return text
    return _COMPLEX if dtype.startswith("complex") else ""
