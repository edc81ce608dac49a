"""The dispatch mode of a recording without the native core: which calls reach the device, and how far they are entered.

The mode sees an operator where the dispatcher is about to call the device's kernel: one that torch makes of others is
entered, so that its parts are seen, as the native tape sees them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from anymps.capture.dispatch._calls import Kind, Plan, Tensors, tensors_of

if TYPE_CHECKING:
    from anymps.capture.dispatch._core import DispatchCore

# What torch takes out of the way before a dispatch mode is called.
_AUTOGRAD = (
    torch._C.DispatchKey.AutogradFunctionality,
    torch._C.DispatchKey.ADInplaceOrView,
    torch._C.DispatchKey.AutogradOther,
    torch._C.DispatchKey.AutogradNestedTensor,
)
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
_compiler_knows = False


class RecordingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode of one thread; the autograd engine takes it along to its own."""

    supports_higher_order_operators = True  # they pass, and their parts are seen

    def __init__(self, core: DispatchCore) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._core = core

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's own way imports all of torch.compile, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(kind.__torch_dispatch__ is not _NO_DISPATCH for kind in types):
            return NotImplemented  # tensors with a dispatch of their own go first, and what they call comes by here
        if not _compiler_knows:
            keep_compiler_out()
            if not _compiler_knows:
                return self._dispatch(func, args, kwargs or {})
        compiler = set_eval_frame(None)  # what runs here is not to be compiled
        try:
            return self._dispatch(func, args, kwargs or {})
        finally:
            set_eval_frame(compiler)

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        core = self._core
        if not core.tape.on or not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        plan = core.plans.of(func)
        if plan.kind is Kind.VIEW and not core.copies and not core.trips.following:
            return func(*args, **kwargs)
        tensors = tensors_of(plan, args, kwargs)
        on_device = False
        for _, tensor in tensors:
            if tensor.is_mps:
                on_device = True
                break
        if core.copies:
            core.copies_touched(plan, args, kwargs, tensors)
        elsewhere = not on_device and not (plan.has_device and _is_mps(kwargs.get("device")))
        if core.trips.following and not core.tape.here.below:
            core.trips.following -= 1
            if elsewhere:
                return self._follow(plan, func, args, kwargs, tensors)
        if elsewhere or plan.kind is Kind.VIEW:
            return func(*args, **kwargs)
        here = core.tape.here
        if plan.tracked and not here.below and torch.is_grad_enabled() and any(it.requires_grad for _, it in tensors):
            with _autograd():
                return self._run(plan, func, args, kwargs, tensors)
        here.below += 1
        try:
            return self._run(plan, func, args, kwargs, tensors)
        finally:
            here.below -= 1

    def _follow(self, plan: Plan, func: Any, args: Any, kwargs: Any, tensors: Tensors) -> Any:
        """Run an operator of the CPU, and see what it makes of values that came from mps."""
        if plan.is_composite:
            with self:  # the operators that it is made of count
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        trips = self._core.trips
        came = trips.before([tensor for _, tensor in tensors])
        result = func(*args, **kwargs)
        if came is not None:
            trips.made(result, came, plan.name)
        return result

    def _run(self, plan: Plan, func: Any, args: Any, kwargs: Any, tensors: Tensors) -> Any:
        key = plan.composite_key(tensors)
        if key is not None:
            with self:
                return func._op_dk(key, *args, **kwargs)
        return self._core.call(plan, func, args, kwargs, tensors)


def keep_compiler_out() -> None:
    """Tell torch.compile, once it is there, to leave the mode alone: it would take the mode for the user's code."""
    global _compiler_knows
    if "torch._dynamo.eval_frame" in sys.modules:
        sys.modules["torch._dynamo.eval_frame"].skip_code(RecordingMode.__torch_dispatch__.__code__)
        _compiler_knows = True


def _autograd() -> Any:
    """A block in which autograd records, as it does in an operator without a derivative of its own."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(included, excluded)


def _is_mps(device: Any) -> bool:
    return device is not None and torch.device(device).type == "mps"
