"""Calls beside torch's database of operators: shapes that have kernels of their own, which no sample of it has.

Each is run on the device, and the operators that it comes to are compared. Rows of more than 4096 numbers are sorted in
several launches; results of eight bytes, of one, and rows of many numbers and few each take other kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

Calls = Iterator[Callable[[], object]]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_SORTED = ((3, 50), (3, 3000), (1, 9000), (7, 40), (2, 70_000), (40, 5000))


def _numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers of a dtype over most of its range."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return (torch.randn(shape, generator=generator) * 100).to(dtype).to("mps")
    if dtype == torch.bool:
        return (torch.rand(shape, generator=generator) > 0.5).to("mps")
    limits = torch.iinfo(dtype)
    return (
        torch.randint(max(limits.min, -(2**40)), min(limits.max, 2**40), shape, generator=generator).to(dtype).to("mps")
    )


def _places(below: int, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed)).to("mps")


def _sorts(dtype: torch.dtype) -> Calls:
    for shape in _SORTED if not dtype.is_complex else ():
        x = _numbers(*shape, dtype=dtype)
        for dim in range(2):
            yield lambda x=x, dim=dim: torch.sort(x, dim=dim, stable=True)
            yield lambda x=x, dim=dim: torch.sort(x, dim=dim, descending=True)
            yield lambda x=x, dim=dim: torch.topk(x, 1, dim=dim)
            yield lambda x=x, dim=dim: torch.kthvalue(x, x.shape[dim] // 2 + 1, dim=dim)
        yield lambda x=x: torch.topk(x, 5, largest=False)


def _pads(dtype: torch.dtype) -> Calls:
    x = _numbers(2, 3, 7, dtype=dtype)
    for pads in ((2, 3), (-1, 2), (0, 1)) if dtype in _FLOATS else ():
        yield lambda pads=pads: _backward(lambda y: F.pad(y, pads, mode="replicate"), x)


def _volumes(dtype: torch.dtype) -> Calls:
    """Grids of three dimensions, and of two where a gradient of the images alone is wanted."""
    if dtype not in _FLOATS:
        return
    x = _numbers(2, 3, 4, 5, 6, dtype=dtype) / 100
    grid = (_numbers(2, 3, 4, 5, 3, dtype=dtype, seed=3) / 80).to(dtype)
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            yield lambda mode=mode, padding=padding: _backward(
                lambda y: F.grid_sample(y, grid, mode=mode, padding_mode=padding, align_corners=False), x
            )
    yield lambda: F.interpolate(x[:, :, 0], size=(9, 4), mode="bilinear", antialias=True)
    yield lambda: F.interpolate(x[:, :, 0], size=(9, 4), mode="bicubic", antialias=True)
    for mode in ("nearest", "nearest-exact"):
        yield lambda mode=mode: _backward(lambda y: F.interpolate(y, size=(7, 3, 9), mode=mode), x)


def _bags(dtype: torch.dtype) -> Calls:
    if dtype not in _FLOATS:
        return
    weight = _numbers(9, 5, dtype=dtype)
    for index_dtype in (torch.int64, torch.int32):
        places, starts = _places(9, 12).to(index_dtype), torch.tensor([0, 3, 7], device="mps", dtype=index_dtype)
        for mode in ("sum", "mean", "max"):
            yield lambda mode=mode, places=places, starts=starts: _backward(
                lambda y: F.embedding_bag(places, y, starts, mode=mode), weight
            )


def _backward(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    leaf = x.detach().requires_grad_()
    result = call(leaf)
    result.backward(torch.ones_like(result))


CALLS: dict[str, Callable[[torch.dtype], Calls]] = {
    "sorts": _sorts,
    "pads": _pads,
    "volumes": _volumes,
    "bags": _bags,
}
