"""Calls that mps takes and the CPU refuses because torch has it so: each with its source."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import torch

from anymps.rules import version_rules


class Known(NamedTuple):
    """`names`: operators (base names, also of torch.nn.functional) of which the CPU's text matches `text`."""

    names: tuple[str, ...]
    text: str
    why: str
    source: str


def _row(names: str, text: str, why: str, source: str) -> Known:
    return Known(tuple(names.split()), text, why, source)


_DISTRIBUTIONS: Final = "aten/src/ATen/native/mps/operations/Distributions.mm of torch 2.14"

KNOWN: Final = (
    _row(
        "bernoulli bernoulli_ dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_alpha_dropout",
        '"bernoulli_.*not implemented',
        "kernels of more dtypes",
        "bernoulli_scalar_*, bernoulli_tensor_* in the metallib of the macOS wheel 2.13",
    ),
    *(
        ()
        if version_rules(torch.__version__).late_random_checks
        else (
            _row(
                "bernoulli bernoulli_",
                "Expected p_in >= 0 && p_in <= 1 to be true",
                "a graph compares random numbers with probabilities of any value",
                "bernoulli_mps_impl in aten/src/ATen/native/mps/operations/Distributions.mm of torch 2.11 and 2.12",
            ),
        )
    ),
    _row(
        "_standard_gamma _sample_dirichlet",
        '"(gamma_cpu|dirichlet)" not implemented',
        "half kernels, and no look at the dtype of an empty tensor",
        f"standard_gamma_half, standard_dirichlet_half in the metallib of 2.13; _s_gamma_mps in {_DISTRIBUTIONS}",
    ),
    _row(
        "randperm",
        '"randperm" not implemented',
        "sorts, then copies into any dtype",
        f"randperm_out_mps in {_DISTRIBUTIONS}",
    ),
    _row(
        "multinomial",
        "invalid multinomial distribution|probability tensor contains",
        "several draws with replacement check no value",
        f"multinomial_with_replacement_mps_kernel in {_DISTRIBUTIONS}",
    ),
    _row(
        "native_dropout",
        "bernoulli_ expects p|can't be cast",
        "without train, and where p is 0, the input is copied",
        "native_dropout_mps in aten/src/ATen/native/mps/operations/Dropout.mm",
    ),
    _row(
        "scaled_dot_product_attention",
        "flash_attention: Currently do not support dropout",
        "flash attention is the CPU's; the mathematics takes any dropout that is not above 0",
        "_scaled_dot_product_attention_math in aten/src/ATen/native/transformers/attention.cpp",
    ),
    _row(
        "quantile nanquantile",
        "q values must be in the range",
        "the range of q is looked at on the CPU only",
        "quantile_impl in aten/src/ATen/native/Sorting.cpp",
    ),
    _row(
        "lu_solve linalg_lu_solve",
        "lu_solve",
        "up to torch 2.13 a kernel of torch's own in Python, which is given out= without the checks before it",
        "torch/_refs/linalg/__init__.py in the wheel",
    ),
    _row(
        "div div_ floor_divide floor_divide_ fmod fmod_ remainder remainder_",
        "ZeroDivisionError",
        "integers divided by zero raise nothing",
        "Metal Shading Language Specification, 3.1",
    ),
    _row(
        "_foreach_powsum",
        "powsum_cpu|without overflow",
        "made of other operators on mps",
        "foreach_tensor_powsum_slow, linalg__powsum_slow in native_functions.yaml of the wheel",
    ),
    _row(
        "max_pool1d",
        "max_pool1d_impl",
        "a kernel of its own on the CPU, max_pool2d_with_indices elsewhere",
        "max_pool1d in aten/src/ATen/native/MaxPooling.cpp",
    ),
)


def find(name: str, text: str) -> Known | None:
    """The row for a call by its name (`aten.quantile.out`, `nn.functional.max_pool1d`) and what the CPU said to it."""
    parts = set(name.removeprefix("aten.").split("."))
    return next((row for row in KNOWN if parts & set(row.names) and re.search(row.text, text)), None)
