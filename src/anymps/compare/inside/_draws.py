"""Random numbers from the CPU's generator, wherever they go: the call is made there, and its results are moved."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

_WITH_LAYERS: Final = ("lstm", "_lstm", "scaled_dot_product", "_scaled_dot_product")
_OVERRIDES: Final[list[torch.library.Library]] = []  # kept: they end with their object


def _drawn_on_cpu(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Make the call with copies on the CPU and its generator, and take the results to where they belong."""
    tensors = tensors_of((args, kwargs))
    devices = {tensor.device for tensor in tensors} | _devices_named(kwargs)
    device = next(one for one in devices if one.type not in ("cpu", "meta"))

    def to_cpu(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.detach().cpu()
        if isinstance(item, torch.device):
            return torch.device("cpu")
        return None if isinstance(item, torch.Generator) and item.device.type != "cpu" else item

    copies, named = pytree.tree_map(to_cpu, args), pytree.tree_map(to_cpu, kwargs)
    out = func(*copies, **named)
    written = list(zip(written_by(func, args, kwargs), written_by(func, copies, named), strict=True))
    for own, new in written:
        own.copy_(new)  # what the call writes in place, and its `out=`
    back = {id(new): own for own, new in written}

    def to_device(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return back[id(item)] if id(item) in back else item.to(device)
        return item

    return pytree.tree_map(to_device, out)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [item for item in pytree.tree_leaves(tree) if isinstance(item, torch.Tensor)]


def written_by(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that a call writes, lists of them too."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from tensors_of(value)


def _devices_named(kwargs: Any) -> set[torch.device]:
    return {torch.device(kwargs["device"])} if kwargs.get("device") is not None else set()


def draw_on_cpu(device: str) -> None:
    """Have every operator on a device that draws random numbers do so on the CPU, to the end of the process.

    Attention and recurrent layers with a dropout inside the operator keep their own numbers: the CPU has none of them.
    """
    key = device.upper()
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _OVERRIDES.append(library)
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, whole = name.partition("::")
        operator, _, overload = whole.partition(".")
        packet = getattr(torch.ops.aten, operator, None) if namespace == "aten" else None
        func = getattr(packet, overload or "default", None)
        if func is None or torch.Tag.nondeterministic_seeded not in func.tags or operator.startswith(_WITH_LAYERS):
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            library.impl(whole, partial(_drawn_on_cpu, func), key)  # type: ignore[no-untyped-call]
