"""What MPS does otherwise than the CPU with a line of `worlds`: told by the rules from the operators the CPU ran."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anymps.rules import SCALAR_TYPES, Family, dtype_table, operator_rules, version_rules
from anymps.rules.texts import (
    SAME_GPU_CHECKS,
    BackendText,
    devices_differ,
    float64_allocation,
    tensor_on_cpu,
    too_many_cpu_scalars,
)


class Trace(TorchDispatchMode):
    """Watches the operators of a line in a CPU world, and tells by the rules what mps does with one of them.

    `hosts` are the tensors that would be on the CPU in the mps world too, by identity.
    """

    def __init__(self, hosts: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.hosts = hosts
        self.refusal: BackendText | None = None
        self.failure: Exception | None = None  # a mistake of this class
        self.widened = False  # the operator that was begun last has a dtype that MPS computes and the CPU may not

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        hosts = [tensor for tensor in tensors if id(tensor) in self.hosts]
        try:
            self._look(_name(func), tensors, hosts)
        except Exception as error:  # not the program's: `_attempt` would take it for the line's
            self.failure = error
        results = func(*args, **kwargs)
        stay = bool(hosts) and len(hosts) == len(tensors) and kwargs.get("device") is None
        for result in tree_leaves(results):
            if not isinstance(result, torch.Tensor):
                continue
            if stay:
                self.hosts[id(result)] = result
            elif result.dtype == torch.float64:
                self._refuse(float64_allocation())
            elif result.dtype == torch.complex128:
                self._refuse(float64_allocation() if version_rules(torch.__version__).complex128_refused else None)
        return results

    def _look(self, name: str, tensors: list[torch.Tensor], hosts: list[torch.Tensor]) -> None:
        if hosts and len(hosts) < len(tensors):
            self._refuse(_refused_devices(name, tensors, hosts))
        self._look_at_dtypes(name, tensors)

    def _look_at_dtypes(self, name: str, tensors: list[torch.Tensor]) -> None:
        refused, _ = _dtypes().get(name, ({}, 0))
        # By base name: a list operator and an out= form are made of the operator, which the trace does not see inside.
        widened = _widened_by_base().get(_base(name).removeprefix("_foreach_").removesuffix("_"), 0)
        number = SCALAR_TYPES.get(str(tensors[0].dtype).removeprefix("torch."), -1) if tensors else -1
        self._refuse(refused.get(number))
        self.widened = bool((widened >> number) & 1) if tensors and number >= 0 else bool(widened)

    def _refuse(self, text: BackendText | None) -> None:
        self.refusal = self.refusal or text


def _base(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0]


def _refused_devices(name: str, tensors: list[torch.Tensor], hosts: list[torch.Tensor]) -> BackendText | None:
    """What MPS says to these CPU tensors among the others of an operator; None if it takes them."""
    base = _base(name)
    rules = operator_rules()
    rule = rules.get(name.removeprefix("aten::"))
    if rule is None or not rule.mps:
        rule = rules.get(f"{base.removesuffix('_')}.out", rule)
    if rule is None or base == "copy_":
        return None
    scalars = all(host.dim() == 0 for host in hosts)
    if rule.cross_device is Family.NONE or (scalars and rule.cross_device is Family.METAL):
        return None
    if rule.cpu_index_ok and all(host is not tensors[0] for host in hosts):
        return None
    if scalars and rule.scalar_cpu_ok:
        return too_many_cpu_scalars() if len(hosts) > 1 else None
    if rule.cross_device is Family.SAME_GPU:
        check = SAME_GPU_CHECKS[base]
        printed = {number: name for number, name, _ in check.arguments}
        on_cpu = [i for i, tensor in enumerate(tensors) if any(tensor is host for host in hosts)]
        result = ["out"] if 0 in on_cpu else []  # it lies where the first tensor does
        return tensor_on_cpu(check, result + [printed[i + 1] for i in on_cpu])
    return devices_differ(rule.cross_device, "mps:0", "cpu")


def _name(func: Any) -> str:
    overload = func._schema.overload_name
    return str(func._schema.name) + (f".{overload}" if overload else "")


@lru_cache(maxsize=1)
def _dtypes() -> dict[str, tuple[dict[int, BackendText], int]]:
    errors = ("RuntimeError", "TypeError", "NotImplementedError", "ValueError", "IndexError")
    return {
        name: ({number: BackendText(errors[error], text) for number, error, text in refused}, widened)
        for name, refused, widened, _ in dtype_table(torch.__version__)
    }


@lru_cache(maxsize=1)
def _widened_by_base() -> dict[str, int]:
    return {_base(name).removesuffix("_"): row[1] for name, row in _dtypes().items()}
