"""Fused optimizers and the scaling of gradients, over three steps of many tensors of many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from anymps.kernels import KernelLibrary, Launcher

from .compare import Difference

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SIZES = ((3, 5), (0,), (70_000,), (1,), (33,))
MANY = 9  # times these: more tensors than a launch takes
CHUNKS = (33 * 65_536 + 5,)  # of float32: more chunks than a launch takes
_STEPS = 3

Lists = dict[str, list[torch.Tensor]]
Call = dict[str, Any]

_ADAM: tuple[Call, ...] = tuple(
    {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay, "amsgrad": amsgrad, "maximize": up}
    for decay, amsgrad, up in ((0.0, False, False), (0.1, True, False), (0.1, False, True))
)
_SGD: tuple[Call, ...] = tuple(
    {"lr": 0.1, "weight_decay": decay, "momentum": momentum, "dampening": damp, "nesterov": nesterov, "maximize": up}
    for decay, momentum, damp, nesterov, up in (
        (0.0, 0.0, 0.0, False, False),
        (0.1, 0.0, 0.0, False, True),
        (0.0, 0.9, 0.0, False, False),
        (0.1, 0.9, 0.5, False, True),
        (0.1, 0.9, 0.0, True, False),
    )
)


def _tensors(dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = SIZES * MANY + ((CHUNKS,) if dtype == torch.float32 else ())
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def _adam(settings: Call, dtype: torch.dtype) -> Iterator[tuple[Lists, Call]]:
    """Its lists as they are before each step, and its other arguments."""
    params = _tensors(dtype, 0)
    zeros = {name: [torch.zeros_like(one) for one in params] for name in ("exp_avgs", "exp_avg_sqs")}
    most = [torch.zeros_like(one) for one in params] if settings["amsgrad"] else []
    lists = {"self": params, "grads": params, **zeros, "max_exp_avg_sqs": most, "state_steps": params}
    for step in range(1, _STEPS + 1):
        lists["grads"] = _tensors(dtype, step)
        lists["state_steps"] = [torch.tensor(float(step)) for _ in params]
        yield lists, settings


def _sgd(settings: Call, dtype: torch.dtype) -> Iterator[tuple[Lists, Call]]:
    params = _tensors(dtype, 0)
    momenta = [torch.zeros_like(one) for one in params] if settings["momentum"] else []
    lists = {"self": params, "grads": params, "momentum_buffer_list": momenta}
    for step in range(1, _STEPS + 1):
        lists["grads"] = _tensors(dtype, step)
        yield lists, {**settings, "is_first_step": step == 1 and bool(momenta)}


def _unscale(settings: Call, dtype: torch.dtype) -> Iterator[tuple[Lists, Call]]:
    grads = _tensors(dtype, 1)
    if not settings["finite"]:
        grads[2][-1] = float("inf")
    yield {"self": grads}, {"found_inf": torch.zeros(1), "inv_scale": torch.tensor([0.25])}


def _update(settings: Call, dtype: torch.dtype) -> Iterator[tuple[Lists, Call]]:
    if dtype == torch.float32:
        scalars = {"self": torch.tensor([2.0**16]), "growth_tracker": torch.tensor([settings["steps"]]).int()}
        factors = {"scale_growth_factor": 2.0, "scale_backoff_factor": 0.5, "growth_interval": 2}
        yield {}, {**scalars, "found_inf": torch.tensor([settings["found"]]), **factors}


Steps = Callable[[Call, torch.dtype], Iterator[tuple[Lists, Call]]]
OPTIMIZERS: dict[str, tuple[str, Steps, tuple[Call, ...]]] = {
    "fused_adam": ("_fused_adam_", _adam, _ADAM),
    "fused_adamw": ("_fused_adamw_", _adam, _ADAM),
    "fused_sgd": ("_fused_sgd_", _sgd, _SGD),
    "ampNonFiniteCheckAndUnscale": (
        "_amp_foreach_non_finite_check_and_unscale_",
        _unscale,
        ({"finite": True}, {"finite": False}),
    ),
    "ampUpdateScale": (
        "_amp_update_scale_",
        _update,
        ({"steps": 0, "found": 0.0}, {"steps": 1, "found": 0.0}, {"steps": 1, "found": 1.0}),
    ),
}
"""By the name that kernels begin with: the operator, its steps, and the settings that it is asked with."""


def compare_optimizers(
    library: KernelLibrary, release: tuple[int, int], names: set[str]
) -> Iterator[tuple[str, str, torch.dtype, Difference]]:
    """Each operator and dtype: all tensors that it writes, after each step from what the device had before."""
    launcher = Launcher(library, release)
    for kernel, (operator, steps, settings) in OPTIMIZERS.items():
        for dtype in _FLOATS if not names or kernel in names else ():
            found = Difference()
            for one in settings:
                for lists, others in steps(one, dtype):
                    _compare(launcher, operator, {**others, **lists}, found)
            if found.elements:
                yield operator.strip("_"), kernel, dtype, found


def _compare(launcher: Launcher, operator: str, given: Call, found: Difference) -> None:
    """Runs a call on the device, and a copy by its kernels. What was given becomes what the device has made of it."""
    packet = getattr(torch.ops.aten, operator)
    overload = packet.default
    device, kernel = _copied(given, "mps"), _copied(given, "cpu")
    overload(**device)
    arguments = [kernel.get(one.name, one.default_value) for one in overload._schema.arguments]
    if launcher(f"aten::{operator}", arguments, []) is None:
        return
    for name, value in given.items():
        for before, on_device, by_kernel in zip(*map(_listed, (value, device[name], kernel[name])), strict=True):
            found.add(on_device.cpu(), by_kernel, (on_device.cpu(),))
            before.copy_(on_device)


def _copied(given: Call, place: str) -> Call:
    def copy(value: Any) -> Any:
        if isinstance(value, list):
            return [copy(one) for one in value]
        return value.to(place, copy=True) if isinstance(value, torch.Tensor) else value

    return {name: copy(value) for name, value in given.items()}


def _listed(value: Any) -> list[torch.Tensor]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, torch.Tensor)]
