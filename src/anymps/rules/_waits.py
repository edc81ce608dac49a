"""Where the host waits for the GPU: what reads back or synchronises, why, and under which condition.

Source, unless a rule says otherwise: all callers of `MPSStream::synchronize`, `MPSStream::copy_and_sync` and
`Tensor::item` below the MPS wrappers of `libtorch_cpu.dylib`, macOS arm64 wheels of torch 2.11 to 2.15, and the
kernels' sources under aten/src/ATen/native/mps/operations. A read-back is `.item()`: a blocking copy of one element.
Not in the list although they call `item`: comparisons, logical operators and `pow` (BinaryOps.mm reads the value of a
0-dim CPU tensor, which waits for nothing) and `nonzero_static` (Indexing.mm skips the count when a size is given).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from anymps._vocabulary import Wait
from anymps.rules._encoding import When
from anymps.rules._readings import Reading, Release, holds
from anymps.rules._versions import OLDEST, TorchVersion, check_supported

READING: Final = Reading(
    "waits",
    "callers of synchronize, copy_and_sync and Tensor::item in the macOS arm64 wheels, and the kernels' sources",
    (2, 11),
    (2, 15),
)

_CALLERS: Final = "callers of Tensor::item in libtorch_cpu.dylib, torch 2.11 to 2.15"
_INDEXING: Final = "aten/src/ATen/native/mps/operations/Indexing.mm"
_LINALG: Final = "aten/src/ATen/native/mps/operations/LinearAlgebra.mm"
_STREAM: Final = "aten/src/ATen/mps/MPSStream.mm"


@dataclass(frozen=True)
class WaitRule:
    """One reason to wait.

    `what` says what the host waits for; `condition` says when, if not always, and `when` is the name by which the
    native core knows it. `operators` are base names (all overloads) or `name.overload`; empty for waits that are calls
    of Python. The rule holds from release `since` to release `until`, both included; None: no end was seen up to
    `READING.last`.
    """

    kind: Wait
    what: str
    source: str
    operators: tuple[str, ...] = ()
    condition: str = ""
    when: When = When.ALWAYS
    since: Release = OLDEST
    until: Release | None = None


def _inside(
    what: str,
    operators: str,
    source: str = _CALLERS,
    *,
    condition: str = "",
    when: When = When.ALWAYS,
    since: Release = OLDEST,
    until: Release | None = None,
) -> WaitRule:
    return WaitRule(Wait.INSIDE_OPERATOR, what, source, tuple(operators.split()), condition, when, since, until)


WAITS: Final[dict[str, WaitRule]] = {
    # calls
    "item": WaitRule(
        Wait.ITEM,
        "one element is copied to the host: item(), tolist(), bool(), int(), float()",
        "aten/src/ATen/native/mps/operations/Scalar.mm",
        ("_local_scalar_dense",),
    ),
    "print": WaitRule(Wait.COPY_TO_CPU, "printing a tensor reads its values", "torch/_tensor_str.py"),
    "copy to cpu": WaitRule(
        Wait.COPY_TO_CPU,
        "a blocking copy waits until the GPU has written its values",
        "aten/src/ATen/native/mps/operations/Copy.mm",
        condition="not with non_blocking=True and equal strides",
    ),
    "copy to mps": WaitRule(
        Wait.COPY_TO_MPS,
        "a blocking copy waits until the GPU has read the host's memory",
        "aten/src/ATen/native/mps/operations/Copy.mm",
        condition="not with non_blocking=True and equal strides",
    ),
    "synchronize": WaitRule(
        Wait.SYNCHRONIZE, "torch.mps.synchronize() and torch.accelerator.synchronize() drain the stream", _STREAM
    ),
    "elapsed_time": WaitRule(Wait.EVENT, "Event.elapsed_time() drains the stream", "aten/src/ATen/mps/MPSEvent.mm"),
    "event": WaitRule(Wait.EVENT, "Event.synchronize() waits for the event's signal", "aten/src/ATen/mps/MPSEvent.mm"),
    "empty_cache": WaitRule(
        Wait.EMPTY_CACHE,
        "empty_cache() drains the stream before it releases buffers",
        "aten/src/ATen/mps/MPSAllocator.mm",
    ),
    "allocator": WaitRule(
        Wait.EMPTY_CACHE,
        "an allocation that does not fit drains the stream and releases every cached buffer",
        "aten/src/ATen/mps/MPSAllocator.mm",
    ),
    "profiler": WaitRule(
        Wait.SYNCHRONIZE,
        "profiling with wait_until_completed waits after each operation",
        "aten/src/ATen/mps/MPSProfiler.mm",
    ),
    "fallback": WaitRule(
        Wait.FALLBACK,
        "the operator runs on the CPU: its inputs are copied there first",
        "aten/src/ATen/mps/MPSFallback.mm",
    ),
    "grad_scaler": WaitRule(Wait.ITEM, "GradScaler.step() reads found_inf", "torch/amp/grad_scaler.py"),
    # operators that need the size of their result
    "nonzero": _inside("the number of non-zero elements sizes the result", "nonzero", _INDEXING),
    "masked_select": _inside(
        "the number of True elements sizes the result",
        "masked_select masked_scatter_",
        "aten/src/ATen/native/mps/operations/Indexing.mm, through nonzero",
    ),
    "mask_index": _inside(
        "a mask is turned into indices, whose number sizes the result",
        "index.Tensor index.Tensor_out _index_put_impl_",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp, through nonzero",
        condition="an index is a bool or uint8 mask",
        when=When.INDEX_IS_MASK,
    ),
    "unique": _inside(
        "the number of distinct values sizes the result",
        "_unique _unique2 unique_consecutive unique_dim unique_dim_consecutive",
        "aten/src/ATen/native/mps/operations/Unique.mm",
    ),
    "bincount": _inside(
        "the largest value sizes the result", "bincount", "aten/src/ATen/native/mps/operations/Bincount.mm"
    ),
    "repeat_interleave": _inside(
        "the sum of the repeats sizes the result",
        "repeat_interleave.Tensor",
        "aten/src/ATen/native/mps/operations/Repeat.mm",
        condition="output_size is not given",
        when=When.NO_OUTPUT_SIZE,
    ),
    "to_sparse": _inside("the non-zero elements are counted", "_to_sparse", "through nonzero, unique_dim"),
    "coalesce": _inside("the distinct indices are counted", "_coalesce", "aten/src/ATen/native/sparse/mps"),
    "sparse_select": _inside(
        "the selected entries are counted",
        "index_select",
        "aten/src/ATen/native/sparse/mps",
        condition="the tensor is sparse",
        when=When.FIRST_IS_SPARSE,
    ),
    "sparse_matmul": _inside("the entries of the product are counted", "_sparse_sparse_matmul", "same as coalesce"),
    "sparse_mask": _inside("the common entries are counted", "sparse_mask", "aten/src/ATen/native/sparse/mps"),
    "sparse_product": _inside(
        "the common entries are counted",
        "mul.Tensor mul_.Tensor mul.out",
        "aten/src/ATen/native/sparse/mps",
        condition="both tensors are sparse",
        when=When.BOTH_ARE_SPARSE,
    ),
    # operators that need a value
    "equal": _inside("the answer is a Python bool", "equal", "aten/src/ATen/native/mps/operations/Equal.cpp"),
    "masked_fill": _inside(
        "the fill value is read",
        "masked_fill_.Tensor",
        _INDEXING,
        condition="the value is an mps tensor",
        when=When.SCALAR_ON_MPS,
    ),
    "index_fill": _inside(
        "the fill value is read",
        "index_fill_.int_Tensor",
        condition="the value is an mps tensor",
        when=When.SCALAR_ON_MPS,
        since=(2, 12),
    ),
    "index_copy": _inside(
        "the index is checked",
        "index_copy index_copy_",
        _INDEXING,
        condition="the tensor is 0-dim",
        when=When.ZERO_DIM,
    ),
    "bernoulli": _inside(
        "the probability is read",
        "bernoulli_.Tensor",
        "aten/src/ATen/native/mps/operations/Distributions.mm",
        condition="the probability is a 0-dim mps tensor",
        when=When.SCALAR_ON_MPS,
    ),
    "normal": _inside(
        "the standard deviation is checked for negative elements",
        "normal.Tensor_Tensor normal.Tensor_Tensor_out normal.float_Tensor normal.float_Tensor_out",
        since=(2, 13),
    ),
    "multinomial": _inside(
        "the probabilities are checked, twice",
        "multinomial",
        "aten/src/ATen/native/mps/operations/Distributions.mm",
        until=(2, 12),
    ),
    "searchsorted": _inside(
        "the sorter's range is checked",
        "searchsorted",
        "aten/src/ATen/native/BucketizationUtils.h",
        condition="a sorter is given",
        when=When.SORTER_GIVEN,
    ),
    "histc": _inside(
        "the smallest and largest value set the bins",
        "histc",
        "aten/src/ATen/native/mps/operations/HistogramKernel.mm",
        condition="no range is given",
        when=When.EQUAL_ENDS,
    ),
    "histogram": _inside(
        "the smallest and largest value set the bins",
        "histogram.bin_ct histogram.bin_ct_out _histogramdd_bin_edges _histogramdd_from_bin_cts",
        "aten/src/ATen/native/mps/operations/HistogramKernel.mm",
        condition="no range is given",
        when=When.NO_RANGE,
    ),
    "fused_optimizer": _inside(
        "the learning rate is read",
        "_fused_adam_.tensor_lr _fused_adamw_.tensor_lr _fused_sgd_.tensor_lr",
        "aten/src/ATen/native/mps/operations/FusedAdamKernel.mm",
        condition="lr is an mps tensor",
        when=When.SCALAR_ON_MPS,
    ),
    # linear algebra that reads the status of a factorisation
    "linalg_status": _inside(
        "the status of the factorisation is read",
        "_linalg_solve_ex linalg_inv_ex linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet",
        _LINALG,
        until=(2, 13),
    ),
    "linalg_qr": _inside("the status of the kernel is read", "linalg_qr", _LINALG, since=(2, 12), until=(2, 13)),
    "linalg_lstsq": _inside("the rank or status is read", "linalg_lstsq.out", since=(2, 14)),
    "linalg_matrix_exp": _inside("the norms choose the degree of the polynomial", "linalg_matrix_exp", since=(2, 14)),
    "cholesky": _inside("the status of the factorisation is read", "cholesky", _LINALG, until=(2, 13)),
}
"""Every rule by a short stable name."""


def wait_of(name: str, version: str | TorchVersion, *, sparse: bool = False) -> WaitRule | None:
    """The rule for an operator overload (`nonzero`, `index.Tensor`), or None if it does not make the host wait.

    `sparse` asks for its sparse kernel. Raises UnsupportedTorchError outside the supported range of torch.
    """
    table = _table(check_supported(version).release, sparse)
    return table.get(name if "." in name else f"{name}.", table.get(name.partition(".")[0]))


_SPARSE_RULES: Final = frozenset({"coalesce", "sparse_select", "sparse_matmul", "sparse_mask", "sparse_product"})


@lru_cache(maxsize=10)
def _table(release: tuple[int, int], sparse: bool) -> dict[str, WaitRule]:
    return {
        operator: rule
        for name, rule in WAITS.items()
        if holds(rule, release) and (name in _SPARSE_RULES) == sparse
        for operator in rule.operators
    }
