"""Cases of the device's surface: names of modules, what they answer, and the texts of common refusals."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Final

import torch

from anymps.verify.cases._answering import refusal
from anymps.verify.cases._case import Answer, Case

_MODULES: Final = (
    "torch.mps", "torch.mps.profiler", "torch.mps.event", "torch.backends.mps", "torch.accelerator", "torch._C",
)  # fmt: skip

_EXPRESSIONS: Final = """\
torch.backends.mps.is_built()
torch.backends.mps.is_available()
torch.backends.mps.is_macos_or_newer(14, 0)
torch.backends.mps.get_name()
torch.backends.mps.get_core_count()
torch.mps.device_count()
torch.mps.is_available()
torch.mps.current_device()
torch.mps.recommended_max_memory()
torch._C._mps_maxBufferLength()
torch.mps.get_rng_state().shape
torch.mps.synchronize()
torch.mps.empty_cache()
torch.mps.is_capturing_metal()
torch.mps.profiler.is_metal_capture_enabled()
torch.accelerator.is_available()
torch.accelerator.current_accelerator()
torch.accelerator.device_count()
torch.accelerator.current_device_index()
torch.accelerator.current_stream()
torch.accelerator.memory_stats()['allocated_bytes.all.current'] >= 0
torch.get_device_module('mps').__name__
torch.device('mps')
torch.tensor([1.0], device='mps')
torch.tensor([1.0], device='mps').device
torch.zeros(2, device='mps').is_mps
torch.zeros(2, device='mps').type()
torch.zeros(2, device='mps').data_ptr() != 0
torch.zeros(2, device='mps').is_pinned()
torch.amp.is_autocast_available('mps')
torch.get_autocast_dtype('mps')
torch.zeros(2, 2, device='mps').to_sparse().layout
torch.promote_types(torch.float16, torch.bfloat16)
torch.zeros(2, device='mps:0').device
torch.zeros(2, device='mps:1')
torch.zeros(2, device='mps', dtype=torch.float64)
torch.zeros(2, device='mps', dtype=torch.complex128)
torch.zeros(2, device='mps', dtype=torch.float8_e4m3fn)
torch.zeros(2, device='mps', dtype=torch.uint16)
torch.zeros(2, dtype=torch.float64).to('mps')
torch.zeros(2, device='mps').double()
torch.zeros(2, device='mps').to('cpu', torch.float64)
torch.zeros(2, device='mps').numpy()
torch.zeros(2, device='mps').__array__()
torch.zeros(0, device='mps').item()
torch.zeros(2, device='mps').item()
torch.zeros(2, device='mps') + torch.zeros(2)
torch.zeros(2, device='mps') + torch.zeros(())
torch.zeros(2, 2, device='mps') @ torch.zeros(2, 2)
torch.zeros(2, 2) @ torch.zeros(2, 2, device='mps')
torch.nn.functional.linear(torch.zeros(2, 2), torch.zeros(2, 2, device='mps'))
torch.nn.functional.linear(torch.zeros(2, 2, device='mps'), torch.zeros(2, 2))
torch.nn.functional.embedding(torch.zeros(2, dtype=torch.long), torch.zeros(2, 2, device='mps'))
torch.nn.functional.conv2d(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 2, 2, device='mps'))
torch.nn.functional.conv2d(torch.zeros(1, 1, 4, 4, device='mps'), torch.zeros(1, 1, 2, 2))
torch.nn.functional.layer_norm(torch.zeros(2, 2, device='mps'), (2,), torch.ones(2))
torch.nn.functional.cross_entropy(torch.zeros(2, 2, device='mps'), torch.zeros(2, dtype=torch.long))
torch.nn.functional.batch_norm(torch.zeros(2, 2, device='mps'), torch.zeros(2), torch.ones(2))
torch.cat([torch.zeros(2, device='mps'), torch.zeros(2)])
torch.stack([torch.zeros(2, device='mps'), torch.zeros(2)])
torch.where(torch.zeros(2, device='mps') > 0, torch.zeros(2), torch.zeros(2, device='mps'))
torch.zeros(2, device='mps').dot(torch.zeros(2))
torch.zeros(2, device='mps').masked_fill(torch.zeros(2, dtype=torch.bool), 1.0)
torch.zeros(2, device='mps')[torch.tensor([0])]
torch.zeros(2)[torch.tensor([0], device='mps')]
torch.zeros(2, 2, device='mps').index_select(0, torch.tensor([0]))
torch.zeros(2, device='mps').gather(0, torch.tensor([0]))
torch.zeros(2, device='mps').copy_(torch.zeros(3, device='mps'))
torch.zeros(2, device='mps').view(3)
torch.zeros(2, device='mps').pin_memory()
torch.zeros(2, pin_memory=True)
torch.empty((1,) * 17, device='mps')
torch.empty(-1, device='mps')
torch.zeros(2, device='mps', layout=torch.sparse_csr)
torch.rand(2, device='mps', generator=torch.Generator())
torch.rand(2, generator=torch.Generator(device='mps'))
torch.Generator(device='mps').manual_seed(1).get_state().shape
torch.mps.Event(enable_timing=True).query()
torch.Event('mps')
torch.Stream('mps')
torch.mps.compile_shader('this is no shader')
torch.mps.compile_shader('kernel void f(device float* x [[buffer(0)]]) { x[0] = 1; }').f
torch.zeros(2, device='mps').kthvalue(1)
torch.zeros(2, 2, device='mps').cumsum(5)
torch.zeros(2, 3, device='mps') @ torch.zeros(2, 3, device='mps')
torch.linalg.eig(torch.zeros(2, 2, device='mps'))
torch.linalg.cholesky(-torch.eye(2, device='mps'))
torch.linalg.inv(torch.zeros(2, 2, device='mps'))
torch.linalg.solve(torch.zeros(2, 2, device='mps'), torch.zeros(2, 2, device='mps'))
torch.quantize_per_tensor(torch.zeros(2, device='mps'), 1.0, 0, torch.qint8)
torch.zeros(2, device='mps').share_memory_().device
torch.from_dlpack(torch.zeros(2, device='mps')).device
torch.zeros(2, device='mps').__dlpack_device__()
torch.zeros(2, device='mps').cuda()
torch.nn.functional.scaled_dot_product_attention(*[torch.zeros(1, 1, 4, 8, device='mps')] * 3, dropout_p=0.5).shape
torch.nn.functional.max_unpool2d(torch.zeros(1, 1, 2, 2, device='mps'), torch.zeros(1, 1, 2, 2, device='mps'), 2)
"""


def surface_cases() -> list[Case]:
    """The names of each module, then what each expression gives."""
    names = [Case(f"names of {module}", functools.partial(_names, module)) for module in _MODULES]
    return names + [Case(text, functools.partial(_value, text)) for text in _EXPRESSIONS.splitlines()]


def _names(module: str) -> Answer:
    found: Any = torch
    try:
        for part in module.split(".")[1:]:
            found = getattr(found, part)
    except AttributeError as error:
        return refusal(error)
    if module == "torch._C":
        return {"names": sorted(name for name in dir(found) if name.startswith("_mps"))}
    return {"names": sorted(name for name in dir(found) if not name.startswith("_"))}


def _value(text: str) -> Answer:
    """What the text, a constant of this module, gives; a late error counts as the expression's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = repr(eval(text, {"torch": torch}))
            torch.mps.synchronize()
        except Exception as error:
            return refusal(error)
    return {"does": "computes", "value": value}
