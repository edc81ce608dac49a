"""One call on the CPU and on mps: which of them takes it, and why both may be right."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch._ops import OpOverload

from anymps.rules import SCALAR_TYPES, dtype_table, operator_rules
from leniency.calls import Call
from leniency.known import Known, find

_MISSING_DTYPE = re.compile(r"not implemented for '(\w+)'")
_COMPOSITE = "made of other operators on mps"
_DTYPES = {
    "Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
    "Half": "float16", "BFloat16": "bfloat16", "ComplexFloat": "complex64", "ComplexHalf": "complex32",
}  # fmt: skip


class Outcome(NamedTuple):
    """What a call raised on each side, late errors too; None where it ran."""

    cpu: Exception | None
    mps: Exception | None
    why: str
    """Why mps is right to take what the CPU refuses; empty if nobody knows, and for any other call."""

    @property
    def lenient(self) -> bool:
        """Whether mps takes what the CPU refuses."""
        return self.mps is None and self.cpu is not None


def run(call: Call, tell: Callable[[str], object] = lambda side: None) -> Outcome:
    """The call on the CPU, and on mps if the CPU refuses it; `tell` is told each side before it is tried."""
    tell("cpu")
    cpu = _attempt(call, "cpu")
    if cpu is None:
        return Outcome(None, None, "")
    tell("mps")
    mps = _attempt(call, "mps")
    return Outcome(cpu, mps, _why(call, cpu) if mps is None else "")


def told(error: Exception | None) -> str:
    """An exception in one line."""
    return "ran" if error is None else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]


def _attempt(call: Call, device: str) -> Exception | None:
    args, kwargs = call.on(device)
    raised: Exception | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call.function(*args, **kwargs)
        except Exception as error:
            raised = error
        try:
            torch.mps.synchronize()
        except Exception as error:  # an index that the kernel found
            raised = raised or error
    return raised


def _why(call: Call, cpu: Exception) -> str:
    known: Known | None = find(call.name, str(cpu))
    return _by_dtype(call, cpu) or _by_composite(call) or (known.why if known is not None else "")


def _by_dtype(call: Call, cpu: Exception) -> str:
    """A dtype that a kernel of the CPU lacks: mps has it by the tables of `anymps.rules`, or takes another way."""
    if isinstance(cpu, NotImplementedError) and "Could not run" in str(cpu):
        return "operator of mps alone"
    missing = _MISSING_DTYPE.search(str(cpu))
    said = "Bool" if "Boolean inputs not supported" in str(cpu) else missing[1] if missing is not None else ""
    if said not in _DTYPES:
        return ""
    number = SCALAR_TYPES[_DTYPES[said]]
    wider = {_base(name) for name, _, widened, _ in dtype_table(torch.__version__) if (widened >> number) & 1}
    args, kwargs = call.on("cpu")
    with warnings.catch_warnings(), torch.autograd.profiler.profile() as seen:
        warnings.simplefilter("ignore")
        try:
            call.function(*args, **kwargs)
        except Exception:
            pass
    inside = sorted(seen.function_events, key=lambda event: event.time_range.start)
    if {_base(event.name) for event in inside} & wider:
        return "dtype that only mps has"
    return _COMPOSITE if inside and _base(inside[-1].name) in _composites() else ""


def _by_composite(call: Call) -> str:
    """An operator that has a kernel on the CPU, and that torch's own code makes of others on mps."""
    if not isinstance(call.function, OpOverload):
        return ""
    name = str(call.function.name()).removeprefix("aten::")  # type: ignore[no-untyped-call]
    rule = operator_rules().get(name)
    if rule is not None and rule.from_python:
        return "kernel of torch's own in Python"
    return _COMPOSITE if _is_composite_on_mps(name) else ""


def _is_composite_on_mps(name: str) -> bool:
    rule = operator_rules().get(name)
    own = rule is not None and rule.composite and not rule.mps
    return own and torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU")


@lru_cache(maxsize=1)
def _composites() -> set[str]:
    return {_base(name) for name in operator_rules() if _is_composite_on_mps(name)}


def _base(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0].removesuffix("_")
