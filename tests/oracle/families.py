"""Operators whose launches are described, over the samples of torch's database and calls beside it.

Each sample is run on the device, forward and backward; every operator that it comes to, and that a kernel computes, is
compared. Where equal numbers have no order, the numbers that places name are compared, and not the places.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.kernels import KernelLibrary, Launcher
from anymps.verify.cases import database

from .calls import CALLS
from .compare import Difference
from .launches import described_by
from .values import DTYPES

_MOST_SAMPLES = 24
FAMILIES: dict[str, tuple[str, ...]] = {
    "lerp": ("lerp",),
    "cumsum": ("cumsum",),
    "cumprod": ("cumprod",),
    "logcumsumexp": ("logcumsumexp",),
    "sort": ("sort",),
    "scatter": ("scatter",),
    "scatter_add": ("scatter_add",),
    "scatter_reduce": ("scatter_reduce", "scatter_reduce.amax", "scatter_reduce.amin", "scatter_reduce.prod"),
    "embedding": ("nn.functional.embedding",),
    "avg_pool": ("nn.functional.avg_pool3d",),
    "col2im": ("nn.functional.unfold",),
    "embedding_bag": ("nn.functional.embedding_bag",),
    "group_norm": ("nn.functional.group_norm",),
    "upsampling": tuple(f"nn.functional.interpolate.{mode}" for mode in ("linear", "bilinear", "bicubic", "trilinear")),
    "grid_sample": ("nn.functional.grid_sample",),
    "nearest": ("nn.functional.interpolate.nearest", "nn.functional.interpolate.nearest-exact"),
    "unfold": ("unfold",),
    "histograms": ("histc", "histogram"),
}
"""By family: the entries of the database, a variant after a dot where it has one."""
_EMPTY_FIRST = {"nn.functional.unfold"}
"""Entries that begin with more empty samples than are taken."""
_VARIANTS = ("scatter_reduce.", "nn.functional.interpolate.")
_PACKETS = {
    *("lerp", "cumsum", "cumprod", "logcumsumexp", "sort", "scatter", "scatter_add"),
    *("scatter_reduce", "embedding_dense_backward", "native_group_norm", "native_group_norm_backward"),
    *("col2im", "_embedding_bag_per_sample_weights_backward"),
    *("avg_pool3d_backward", "grid_sampler_2d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    *("upsample_bicubic2d_backward", "upsample_trilinear3d_backward", "upsample_nearest3d_backward"),
    *("_upsample_nearest_exact3d_backward", "grid_sampler_3d", "grid_sampler_2d_backward", "grid_sampler_3d_backward"),
    *("unfold_backward", "replication_pad1d_backward", "topk", "kthvalue", "histc", "histogram"),
    *("_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_backward", "_embedding_bag_dense_backward"),
}
_PLACES = {"sort", "topk", "kthvalue"}
_FIRST_ALONE = {"_embedding_bag", "_embedding_bag_forward_only"}
"""The other results tell of the bags, of which the CPU's tell nothing."""


Seen = tuple[str, list[Any], list[Any], bool]
"""A call: the operator, its arguments as they were before, its results, and whether algorithms are deterministic."""


class _Results(TorchDispatchMode):
    """Notes each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema, named = func._schema, dict(kwargs or {})
        packet = schema.name.partition("::")[2]
        if packet not in _PACKETS and packet.removesuffix("_") not in _PACKETS:
            return func(*args, **named)
        given = [
            args[at] if at < len(args) else named.get(one.name, one.default_value)
            for at, one in enumerate(schema.arguments)
        ]
        given = [_kept(one) for one in given]
        result = func(*args, **named)
        kept = result if isinstance(result, (tuple, list)) else (result,)
        kept = [one if one is None else one.detach().cpu().clone() for one in kept]  # it may be written to later
        name = schema.name + (f".{schema.overload_name}" * bool(schema.overload_name))
        self.seen.append((name, given, kept, torch.are_deterministic_algorithms_enabled()))
        return result


def _kept(value: Any) -> Any:
    """A tensor, or those of a list, as they are now."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    return [_kept(one) for one in value] if isinstance(value, (list, tuple)) else value


def compare_families(
    library: KernelLibrary, release: tuple[int, int], names: set[str]
) -> Iterator[tuple[str, torch.dtype, Difference]]:
    """Each operator of the families and dtype that a kernel computed."""
    launcher = Launcher(library, release)
    described = described_by(launcher)
    found: dict[tuple[str, torch.dtype], Difference] = {}
    for family in (*FAMILIES, *CALLS):
        if names and family not in names:
            continue
        for dtype in DTYPES:
            calls = _calls(FAMILIES[family], dtype) if family in FAMILIES else _further(family, dtype)
            for operator, given, results, deterministic in calls:
                by_kernel = _by_kernel(launcher, operator, given, deterministic) if operator in described else None
                if by_kernel is None:
                    continue
                packet = operator.partition("::")[2].partition(".")[0]
                seen = found.setdefault((packet.strip("_"), dtype), Difference())
                for device, kernel in compared(packet, given, results, by_kernel):
                    seen.add(device, kernel.reshape(device.shape), (device,))
    for packet in dict.fromkeys(packet for packet, _ in found):
        for dtype in DTYPES:
            if (packet, dtype) in found and found[packet, dtype].elements:
                yield packet, dtype, found[packet, dtype]


def _by_kernel(
    launcher: Launcher, operator: str, given: list[Any], deterministic: bool
) -> tuple[torch.Tensor, ...] | None:
    """What the kernels give."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        return launcher(operator, given, [])
    finally:
        torch.use_deterministic_algorithms(before)


def compared(
    packet: str, given: list[Any], results: list[Any], by_kernel: tuple[torch.Tensor, ...]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What is compared of a call: all results, or what their places name."""
    if packet in _FIRST_ALONE:
        results, by_kernel = results[:1], by_kernel[:1]
    elif packet in _PLACES and results[0].numel():
        x, places = given[0], by_kernel[1]
        dim = next(one for one in reversed(given) if isinstance(one, int) and not isinstance(one, bool))
        named = x.gather(dim, places) if places.dim() == x.dim() else x.gather(dim, places.unsqueeze(dim)).squeeze(dim)
        results, by_kernel = [results[0], results[0]], (by_kernel[0], named)
    yield from zip(results, by_kernel, strict=True)


def _further(family: str, dtype: torch.dtype) -> Iterator[Seen]:
    """The calls that those beside the database come to."""
    for call in CALLS[family](dtype):
        with _Results() as mode:
            try:
                call()
            except (RuntimeError, NotImplementedError, TypeError):
                continue
        yield from mode.seen


def _calls(entries: tuple[str, ...], dtype: torch.dtype) -> Iterator[Seen]:
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
