"""Operators whose launches are described, over the samples of torch's database, forward and backward.

Each sample is run on the device; every operator that it comes to, and that a kernel computes, is compared.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.metal.kernels import KernelLibrary, Launcher
from anymps.verify.cases import DTYPES, database

from .compare import Difference

_MOST_SAMPLES = 24
FAMILIES: dict[str, tuple[str, ...]] = {
    "clamp": ("clamp", "clamp_min", "clamp_max"),
    "lerp": ("lerp",),
    "cumsum": ("cumsum",),
    "cumprod": ("cumprod",),
    "logcumsumexp": ("logcumsumexp",),
    "cummax": ("cummax",),
    "cummin": ("cummin",),
    "sort": ("sort",),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "scatter_add": ("scatter_add",),
    "scatter_reduce": ("scatter_reduce", "scatter_reduce.amax", "scatter_reduce.amin", "scatter_reduce.prod"),
    "embedding": ("nn.functional.embedding",),
    "avg_pool": ("nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d"),
    "max_pool": ("nn.functional.max_pool3d",),
    "im2col": ("nn.functional.unfold",),
    "embedding_bag": ("nn.functional.embedding_bag",),
    "group_norm": ("nn.functional.group_norm",),
    "fill": ("fill",),
    "masked_fill": ("masked_fill",),
    "searches": ("bucketize", "searchsorted"),
    "upsampling": tuple(f"nn.functional.interpolate.{mode}" for mode in ("linear", "bilinear", "bicubic", "trilinear")),
    "grid_sample": ("nn.functional.grid_sample",),
}
"""By family: the entries of the database, a variant after a dot where it has one."""
_EMPTY_FIRST = {"nn.functional.unfold"}
"""Entries that begin with more empty samples than are taken."""
_VARIANTS = ("scatter_reduce.", "nn.functional.interpolate.")
_PACKETS = {
    *("clamp", "clamp_min", "clamp_max", "lerp"),
    *("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort", "gather", "scatter", "scatter_add"),
    *("scatter_reduce", "embedding_dense_backward", "native_group_norm", "native_group_norm_backward"),
    *("im2col", "col2im", "_embedding_bag_per_sample_weights_backward"),
    *("avg_pool2d", "avg_pool3d", "avg_pool3d_backward"),
    *("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
    *("fill", "masked_fill", "searchsorted", "bucketize", "grid_sampler_2d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
}


class _Results(TorchDispatchMode):
    """Notes each call: the operator, its arguments as they were before, and its results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any], list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema, named = func._schema, dict(kwargs or {})
        packet = schema.name.partition("::")[2]
        if packet not in _PACKETS and packet.removesuffix("_") not in _PACKETS:
            return func(*args, **named)
        given = [
            args[at] if at < len(args) else named.get(one.name, one.default_value)
            for at, one in enumerate(schema.arguments)
        ]
        given = [one.detach().cpu().clone() if isinstance(one, torch.Tensor) else one for one in given]
        result = func(*args, **named)
        kept = result if isinstance(result, (tuple, list)) else (result,)
        kept = [one if one is None else one.detach().cpu().clone() for one in kept]  # it may be written to later
        self.seen.append((schema.name + (f".{schema.overload_name}" * bool(schema.overload_name)), given, kept))
        return result


def compare_families(
    library: KernelLibrary, release: tuple[int, int], names: set[str]
) -> Iterator[tuple[str, torch.dtype, Difference]]:
    """Each operator of the families and dtype that a kernel computed."""
    launcher = Launcher(library, release)
    described = set(launcher.operators())
    found: dict[tuple[str, torch.dtype], Difference] = {}
    for family, entries in FAMILIES.items():
        if names and family not in names:
            continue
        for dtype in DTYPES:
            for operator, given, results in _calls(entries, dtype):
                by_kernel = launcher(operator, given, []) if operator in described else None
                if by_kernel is None:
                    continue
                packet = operator.partition("::")[2].partition(".")[0].strip("_")
                seen = found.setdefault((packet, dtype), Difference())
                for device, kernel in zip(results, by_kernel, strict=True):
                    seen.add(device, kernel.reshape(device.shape), (device,))
    for packet in dict.fromkeys(packet for packet, _ in found):
        for dtype in DTYPES:
            if (packet, dtype) in found and found[packet, dtype].elements:
                yield packet, dtype, found[packet, dtype]


def _calls(entries: tuple[str, ...], dtype: torch.dtype) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The calls that samples come to; what the device refuses, a Mac refuses too."""
    for entry in entries:
        name, _, variant = entry.rpartition(".") if entry.startswith(_VARIANTS) else (entry, "", "")
        info = database().get((name, variant)) or database().get((entry, "sum"))
        if info is None or dtype not in info.dtypes:
            continue
        torch.manual_seed(0)
        backward = dtype.is_floating_point and info.supports_autograd
        samples = info.sample_inputs("cpu", dtype, requires_grad=backward)
        if entry in _EMPTY_FIRST:
            samples = (one for one in samples if one.input.numel())
        for sample in itertools.islice(samples, _MOST_SAMPLES):
            with _Results() as mode:
                try:
                    moved = sample.transform(functools.partial(_on_device, backward=backward))
                    result = info.op(moved.input, *moved.args, **moved.kwargs)
                    first = result[0] if isinstance(result, (tuple, list)) else result
                    if backward and first.requires_grad:
                        first.backward(torch.ones_like(first))
                except (RuntimeError, NotImplementedError, TypeError, AttributeError):
                    continue
            yield from mode.seen


def _on_device(value: Any, backward: bool) -> Any:
    """A tensor of a sample on mps, as a leaf of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    moved = value.detach().to("mps")
    return moved.requires_grad_(backward and moved.is_floating_point())
