"""Why a kernel gives another number than the device does: read from the kernels, one sentence each."""

from __future__ import annotations

_EXACT_AT_ENDS = "The kernel's formula does not handle this end of the range."
_HALF = "The kernel computes in the 16-bit type throughout; the device computes in float32 and rounds once."
_COMPLEX = "The kernel's formula for complex numbers loses digits where terms cancel, and at zeros and branch points."
_ORDER = "The two sum in a different order, which shows where terms cancel."
_POLYNOMIAL = "The CPU's code handles NaN differently, and digits are lost where terms cancel."
_OWN = "The kernel uses its own polynomial or series, which is less accurate than the CPU's."
_ENDED = "The int64 kernel reads inactive lanes as 0 (pytorch pull request 191104), as it does on a Mac."

_ROUNDS = "The kernel computes in float32 and rounds once; the CPU's code rounds intermediate results to 16 bits."

_REASONS = {
    "upsample_bilinear2d": "The order of sums differs; for bytes, the kernel truncates and the CPU rounds.",
    "upsample_bicubic2d": _ROUNDS,
    "upsample_trilinear3d": _ROUNDS,
    "upsample_bicubic2d_aa": _ORDER,
    "grid_sampler_2d": _ORDER,
    "grid_sampler_3d": _ORDER,
    "grid_sampler_2d_backward": "The order of sums differs; a 16-bit coordinate may fall into the next cell.",
    "grid_sampler_3d_backward": _ORDER,
    "abs": "The kernel converts to float32: integers above 2²⁴ lose digits, and the smallest one becomes the largest.",
    "acos": "The kernel returns π for exactly 1 and -π for -1, and loses digits where terms cancel.",
    "erfc": "The kernel computes 1 - erf(x), which has few correct digits above 2, and none once erf(x) rounds to 1.",
    "erf": "The CPU's code returns zero for the smallest normal number of this dtype.",
    "expm1": "The kernel subtracts 1 from exp(x) for all but the smallest numbers, which costs digits near 0.",
    "cosh": "The CPU's code overflows at 88.7; the kernel only overflows where the result does.",
    "sinh": "The CPU's code overflows at 88.7; the kernel only overflows where the result does.",
    "sinc": "The complex kernel returns 0 where the limit is 1.",
    "silu": "For integers, the kernel computes in float32, where sigmoid(17) is 1; the device uses float64.",
    "gelu": "The CPU's code returns NaN for infinity; the kernel's tails are zero.",
    "lgamma": _OWN,
    "hypot": "The kernel computes sqrt(x² + y²): it overflows early, and NaN takes precedence over infinity.",
    "nextafter": "The bfloat16 kernel rounds the next float32, which gives back the number itself.",
    "gcd": "The smallest integer has no absolute value, and the two continue with different values.",
    "div_floor": "The kernel divides and rounds down; the CPU corrects the remainder: -0.0 // inf is -1.",
    "remainder": "The kernel computes x - y·floor(x/y), which is NaN if y is infinite.",
    "fmod": "The CPU's code returns NaN where the quotient overflows.",
    "silu_backward": "The kernel computes x + 1 - x·sigmoid(x), where the 1 is lost for large x.",
    "hardswish_backward": "The CPU's code treats NaN like any other number; the kernel returns NaN.",
    "hardsigmoid_backward": "The CPU's code and the kernel treat NaN differently.",
    "gelu_backward": "The CPU's code sets the tails to zero; the kernel does not.",
    "gelu_tanh_backward": "The CPU's code sets the tails to zero; the kernel does not.",
    "sigmoid_backward": "The device multiplies by 1 - y first, which may overflow; the kernel takes y·(1 - y) first.",
    "tanh_backward": "The kernel flushes products with the smallest normal number to 0; complex ones cancel "
    "differently.",
    "mish_backward": "The kernel's factor for large negative numbers is zero, which turns infinity into NaN.",
    "logit_backward": "The gradient at NaN is 0 in the CPU's code, and NaN in the kernel.",
    "uniform_dist": "A value that rounds to the upper end becomes the lower end in torch 2.15, but not in torch 2.13.",
    "shrink_backward": "The CPU's code treats NaN as small, the kernel as large.",
    "add_alpha": "The kernel rounds the product before the sum; the CPU's vector code fuses the two.",
    "sub_alpha": "The kernel rounds the product before the difference; the CPU's vector code fuses the two.",
    "lerp_alpha": "Both compute a + w·(b - a); the kernel rounds each step to the dtype.",
    "lerp": "The kernel computes a + w·(b - a) in the dtype; the CPU's code starts from b if w is 0.5 or more.",
    "addcmul": "The kernel fuses the product and the sum, which shows where terms cancel.",
    "softmax": _ORDER,
    "conv2d": _ORDER,
    "reflection_pad3d": _ORDER,
    "replication_pad2d": _ROUNDS,
    "replication_pad3d": _ROUNDS,
    "linalg_inv": _ORDER,
    "log_softmax": _ORDER,
    "igamma": _OWN,
    "igammac": _OWN,
    "zeta": "The kernel does not handle very large arguments: it returns NaN or zero.",
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
    "attention": "The kernel reads the keys once, in another order, with a running maximum and running sums.",
    "norm": _ORDER,
    "norms": _ORDER,
    "renorm": _ORDER,
    "matmul": _ORDER,
    "addmm": _ORDER,
    "naive_bmm": _ORDER,
    "naive_baddbmm": _ORDER,
    "naive_addbmm": "The order of sums differs, and batches are added in the dtype itself.",
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
    "pow_scalar": "The kernel computes exp(y·log(x)), or multiplies complex numbers repeatedly, which loses digits.",
    "elu": "The kernel computes exp(x) - 1, which loses digits near zero.",
    "elu_backward": "The kernel computes exp(x) - 1, which loses digits near zero.",
    "cdist_backward": "The order of sums differs; for p = inf, 16-bit distances are recomputed.",
    "cross": "Each product is rounded, or fused with the difference, which shows where terms cancel.",
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
