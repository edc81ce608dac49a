"""Fused optimizers and the scaling of gradients: kernels that take many tensors at once, as tables of addresses.

Source: `aten/src/ATen/native/mps/operations/MultiTensorApply.h`, `FusedAdamKernelImpl.mm`, `FusedSgdKernel.mm` and
`Amp.mm` of the pytorch tree; pytorch pull request 186360 for the two tensors of a GradScaler. A group of threads takes
a chunk of a tensor, and a launch at most 32 tensors and 32 chunks; a tensor with more goes on in the next launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from anymps.kernels.launches._call import Call, Describe, Launch, Work
from anymps.kernels.launches._elements import NAMES

_CHUNK = 65536
_MOST = 32  # tensors of a launch, and chunks
_STEP_WIDTH, _SCALING_WIDTH, _SINGLE_WIDTH = 512, 64, 256  # threads of a group
_Lists = Mapping[str, Sequence[torch.Tensor]]


@dataclass
class _Batch:
    """What one launch takes: tensors by their places in the lists, and each chunk with the tensor that it is of."""

    tensors: list[int] = field(default_factory=list)
    chunks: list[tuple[int, int]] = field(default_factory=list)

    def buffers(self, lists: _Lists) -> tuple[dict[str, Any], dict[str, Any]]:
        """The table of addresses, and which chunk each group takes."""
        numels = [next(iter(lists.values()))[at].numel() for at in self.tensors]
        columns = {"numels": numels, "threadgroup_to_tensor": [], "threadgroup_to_chunk": []}
        for tensor, chunk in self.chunks:
            columns["threadgroup_to_tensor"].append(tensor)
            columns["threadgroup_to_chunk"].append(chunk)
        return {name: [tensors[at] for at in self.tensors] for name, tensors in lists.items()}, columns


def _batches(tensors: Sequence[torch.Tensor], one_each: bool = False) -> Iterator[_Batch]:
    """The launches over these tensors. With `one_each` the host starts anew after each."""
    batch = _Batch()
    for at, tensor in enumerate(tensors):
        count = -(-tensor.numel() // _CHUNK)
        if count:
            batch.tensors.append(at)
        for chunk in range(count):
            batch.chunks.append((len(batch.tensors) - 1, chunk))
            last = chunk == count - 1
            if len(batch.chunks) == _MOST or (last and (one_each or len(batch.tensors) == _MOST)):
                yield batch
                batch = _Batch([] if last else [at])
    if batch.chunks:
        yield batch


def _launches(kernel: str, lists: _Lists, rest: tuple[Any, ...], width: int, one_each: bool) -> tuple[Launch, ...]:
    return tuple(
        Launch(kernel, (*batch.buffers(lists), *rest), (len(batch.chunks) * width,), (width,))
        for batch in _batches(next(iter(lists.values())), one_each)
    )


def _rate(call: Call) -> torch.Tensor | float | None:
    """The learning rate: a number, also of a tensor on the CPU, or the tensor itself; None if it is of another type."""
    given = call.given["lr"]
    if not isinstance(given, torch.Tensor):
        return float(given)
    if "lr" in call.foreign:
        return float(given.item())
    return given if given.dtype == torch.float32 else None


def _step(call: Call, kernel: str, lists: _Lists, numbers: Sequence[str]) -> Work | None:
    """One step of an optimizer; `numbers` are the names of its arguments in the order of the kernel's."""
    rate = _rate(call)
    scaler = [call.given[name] for name in ("grad_scale", "found_inf")]
    sizes = {tuple(one.numel() for one in tensors) for name, tensors in lists.items() if name != "state_steps"}
    if not call.is_read_or_older or rate is None or len(sizes) != 1 or not sum(next(iter(sizes))):
        return None
    if call.foreign - {"lr"} or any(one is not None and one.dtype != torch.float32 for one in scaler):
        return None
    values = [rate if name == "lr" else float(call.given[name]) for name in numbers]
    return Work((), _launches(kernel, lists, (*values, *scaler), _STEP_WIDTH, False))


def _adam(call: Call, name: str) -> Work | None:
    amsgrad = call.given["amsgrad"]
    names = {"params": "self"} | {one: one for one in ("grads", "exp_avgs", "exp_avg_sqs")}
    names |= {"max_exp_avg_sqs": "max_exp_avg_sqs"} if amsgrad else {}
    lists = {word: call.given[of] for word, of in {**names, "state_steps": "state_steps"}.items()}
    if not lists["params"] or len(lists["state_steps"]) != len(lists["params"]):
        return None
    types = f"{NAMES.get(lists['params'][0].dtype)}_{NAMES.get(lists['state_steps'][0].dtype)}"
    kernel = f"{name}{'_amsgrad' * amsgrad}_{types}"
    return _step(call, kernel, lists, ("lr", "beta1", "beta2", "weight_decay", "eps", "maximize"))


def _fused_adam(call: Call) -> Work | None:
    return _adam(call, "fused_adam")


def _fused_adamw(call: Call) -> Work | None:
    return _adam(call, "fused_adamw")


def _fused_sgd(call: Call) -> Work | None:
    lists = {"params": call.given["self"], "grads": call.given["grads"]}
    if not lists["params"]:
        return None
    type_ = NAMES.get(lists["params"][0].dtype)
    if not call.given["momentum_buffer_list"]:
        return _step(call, f"fused_sgd_{type_}", lists, ("weight_decay", "lr", "maximize"))
    lists["momentum_buffer_list"] = call.given["momentum_buffer_list"]
    numbers = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize", "is_first_step")
    return _step(call, f"fused_sgd_momentum_{type_}", lists, numbers)


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side, in whatever order of dimensions."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


def _unscale(call: Call) -> Work | None:
    """One by one first those that do not fill their memory or are of another type than the first, then the others.

    The kernel of a single one goes on from its first number, whatever its strides.
    """
    tensors, found, scale = (call.given[name] for name in ("self", "found_inf", "inv_scale"))
    if not call.is_read_or_older or call.foreign or {found.dtype, scale.dtype} != {torch.float32} or not tensors:
        return None
    of = tensors[0].dtype
    together = [one for one in tensors if one.dtype == of and _fills_its_memory(one)]
    alone = [one for one in tensors if all(one is not other for other in together) and one.numel()]
    kernel = f"ampNonFiniteCheckAndUnscale_{NAMES.get(of)}"
    if not sum(one.numel() for one in tensors):
        return None
    factor = float(scale) if alone else 0.0
    single = [f"ampNonFiniteCheckAndUnscaleSingle_{NAMES.get(one.dtype)}" for one in alone]
    first = tuple(
        Launch(name, (one, found, factor), (one.numel(),), (_SINGLE_WIDTH,))
        for name, one in zip(single, alone, strict=True)
    )
    if not sum(one.numel() for one in together):
        return Work((), first)
    return Work((), first + _launches(kernel, {"data": together}, (found, scale), _SCALING_WIDTH, True))


def _update_scale(call: Call) -> Work | None:
    scale, tracker, found = (call.given[name] for name in ("self", "growth_tracker", "found_inf"))
    kernel = f"ampUpdateScale_{NAMES.get(scale.dtype)}"
    if not call.is_read_or_older or call.foreign or tracker.dtype != torch.int32:
        return None
    if any(one.storage_offset() for one in (scale, tracker, found)):
        return None  # the host gives whole buffers
    factors = [float(call.given[f"scale_{word}_factor"]) for word in ("growth", "backoff")]
    buffers = (scale, tracker, found, *factors, int(call.given["growth_interval"]))
    return Work((scale,), (Launch(kernel, buffers, (1,), (1,)),))


OPTIMIZERS: dict[str, Describe] = {
    "_fused_adam_": _fused_adam,
    "_fused_adamw_": _fused_adamw,
    "_fused_sgd_": _fused_sgd,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "_amp_update_scale_": _update_scale,
}
