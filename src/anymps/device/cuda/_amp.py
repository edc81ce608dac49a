"""Mixed precision: autocast and GradScaler of CUDA are those of mps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from anymps.device.cuda._patches import Patches
from anymps.device.cuda._uses import report_use


def install(patches: Patches) -> None:
    """`torch.autocast("cuda")`, `torch.cuda.amp.autocast()`, the scalers, `custom_fwd` and `custom_bwd`."""
    for owner, name in ((autocast_mode.autocast, "device_type"), (grad_scaler.GradScaler, "device")):
        patches.put(owner, "__init__", _renamed(owner.__init__, name))
    patches.put(autocast_mode, "_cast", _cast_on_mps(autocast_mode._cast))
    patches.put(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)


def _renamed(original: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    default = inspect.signature(original).parameters[parameter].default

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        device = args[0] if args else kwargs.get(parameter, default)
        if isinstance(device, str) and device.partition(":")[0] == "cuda":
            report_use()
            if args:
                args = ("mps", *args[1:])
            else:
                kwargs = kwargs | {parameter: "mps"}
        original(self, *args, **kwargs)

    return made


def _cast_on_mps(original: Callable[..., Any]) -> Callable[..., Any]:
    """What `custom_fwd` casts: tensors of the named device."""

    @functools.wraps(original)
    def cast(value: Any, device_type: str, dtype: torch.dtype) -> Any:
        return original(value, "mps" if device_type == "cuda" else device_type, dtype)

    return cast
