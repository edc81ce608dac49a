"""What a Mac with the newest macOS does with each (operator, dtype), by the lists of torch's own MPS tests.

Sources, all in the installed wheel under torch/testing/_internal:

* `OpInfo.dtypesIfMPS`: the dtypes that torch claims for mps. Where `TestCommon.test_dtypes` is not marked as failing on
  mps, that test holds the claim to be exact in both directions: in a claimed dtype at least one sample runs, in any
  other at least one raises.
* `common_mps.py`, `mps_ops_modifier`: marks for `TestConsistency.test_output_match` (results against the CPU), over the
  dtypes of `TESTED`. A mark there means an exception or another result, on mps or on the CPU.
* `common_mps.py`, `mps_ops_grad_modifier`: marks for `TestConsistency.test_output_grad_match`, float32 and float16.
* `common_mps.py`, `mps_ops_error_inputs_modifier`: marks for `TestErrorInputs.test_error_inputs`; from torch 2.14 or
  2.15 on there is no such list, and the marks are those of the database for `TestCommon.test_errors` on mps.

Reading them needs a torch whose mps device is available.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import unittest
from dataclasses import dataclass
from typing import Any, Final

import torch

TESTED: Final = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
)
"""The dtypes of `test_output_match`; every allocation of float64 and complex128 is refused before an operator runs."""
GRADIENTS: Final = (torch.float32, torch.float16)
"""The dtypes of `test_output_grad_match`."""
RUNS, REFUSES, FAILS, UNKNOWN = "runs", "refuses", "fails", "unknown"
"""What a Mac does: every sample runs and agrees with the CPU, some sample is refused, some sample fails, or unknown.

`FAILS`: the operator has the dtype, and torch's test of it fails in some sample. Whether by an exception or by another
result the lists do not tell, so a pair that a Mac computes wrongly and we compute rightly stands against us.
"""

_NEWEST_MACOS: Final = 26.4
# Marked because the index order of equal elements is no promise (comments beside the marks): nothing to agree with.
_ORDER_OF_EQUALS: Final = frozenset({"argsort", "sort"})


@dataclass(frozen=True)
class Expectation:
    """What a Mac does with one (operator, dtype), and why we think so.

    `on_cpu` tells whether the CPU has the dtype: where it does and the Mac refuses, or the other way round, a copy of
    the CPU gets it wrong (`summary.discriminates`).
    """

    what: str
    why: str
    on_cpu: bool


class Expectations:
    """The operators of the database, and what a Mac does with each."""

    def __init__(self) -> None:
        from torch.testing._internal import common_mps, common_utils

        # Some lists depend on the macOS that runs the tests; they are made when the database is imported.
        common_utils.MACOS_VERSION = common_mps.MACOS_VERSION = _NEWEST_MACOS
        from torch.testing._internal.common_methods_invocations import op_db

        if not hasattr(common_mps, "mps_ops_grad_modifier"):
            raise RuntimeError(
                "torch's MPS lists were read before the device was there; enable it before importing them"
            )
        self._claims = copy.deepcopy(op_db)  # as TestCommon has them, without the marks for TestConsistency
        self._errors, self._error_test = self._claims, ("TestCommon", "test_errors")
        if hasattr(common_mps, "mps_ops_error_inputs_modifier"):
            self._errors = common_mps.mps_ops_error_inputs_modifier(copy.deepcopy(op_db))
            self._error_test = ("TestErrorInputs", "test_error_inputs")
        # TestCommon.test_errors takes NotImplemented, as reflected operators return it, for an error.
        self.returned_errors = self._error_test[0] == "TestCommon"
        self.undefined = _undefined_names(common_mps.mps_ops_modifier)
        self.operators = list(common_mps.mps_ops_modifier(op_db))
        self._gradients = common_mps.mps_ops_grad_modifier(copy.deepcopy(self.operators))

    def forward(self, index: int, dtype: torch.dtype) -> Expectation:
        """Whether a call runs and its results agree with the CPU's."""
        op = self.operators[index]
        claimed, on_cpu = op.supports_dtype(dtype, "mps"), op.supports_dtype(dtype, "cpu")
        if any(getattr(mark, "__name__", "") in ("onlyCUDA", "onlyCPU") for mark in op.decorators):
            return Expectation(UNKNOWN, "tested on another device only", on_cpu)
        exact = not _marks(self._claims[index], "TestCommon", "test_dtypes", torch.float32)
        marks = _marks(op, "TestConsistency", "test_output_match", dtype)
        key = op.name + op.variant_test_name
        if not claimed:
            if exact:
                return Expectation(REFUSES, "not among the dtypes that torch claims for mps", on_cpu)
            return Expectation(UNKNOWN, "not claimed for mps, and the claim is known to be inexact", on_cpu)
        if "skips" in marks:
            return Expectation(UNKNOWN, "skipped by torch's own test", on_cpu)
        if "fails" not in marks:
            return Expectation(RUNS, "claimed for mps and tested", on_cpu)
        if key in self.undefined or op.name in _ORDER_OF_EQUALS:
            return Expectation(UNKNOWN, "torch's own test fails for a reason that is not the device's", on_cpu)
        if exact and not on_cpu:
            return Expectation(RUNS, "claimed for mps exactly; only the comparison with the CPU fails", on_cpu)
        if exact:
            return Expectation(FAILS, "claimed for mps exactly, and torch's own test fails in some sample", on_cpu)
        return Expectation(REFUSES, "marked as failing on mps", on_cpu)

    def gradient(self, index: int, dtype: torch.dtype) -> Expectation:
        """Whether the gradients of an operator that runs forward are computed and agree with the CPU's."""
        op, forward = self._gradients[index], self.forward(index, dtype)
        on_cpu = dtype in op.supported_backward_dtypes("cpu")
        if not op.supports_autograd:
            return Expectation(UNKNOWN, "has no gradient", on_cpu)
        if forward.what != RUNS:
            return Expectation(forward.what, forward.why, on_cpu)
        marks = _marks(op, "TestConsistency", "test_output_grad_match", dtype)
        if "skips" in marks:
            return Expectation(UNKNOWN, "skipped by torch's own test", on_cpu)
        if "fails" in marks:
            return Expectation(FAILS, "gradient marked as failing on mps", on_cpu)
        return Expectation(RUNS, "tested", on_cpu)

    def errors(self, index: int) -> Expectation | None:
        """Whether every wrong input gets the error that the database describes; None without wrong inputs."""
        op = self._errors[index]
        if op.error_inputs_func is None:
            return None
        marks = _marks(op, *self._error_test, None)
        if "skips" in marks:
            return Expectation(UNKNOWN, "skipped by torch's own test", True)
        if "fails" in marks:
            return Expectation(FAILS, "marked: some wrong input gets no such error on mps", True)
        return Expectation(RUNS, "tested", True)


def _marks(op: Any, test_class: str, test: str, dtype: torch.dtype | None) -> set[str]:
    """`fails` and `skips`, if a mark of that kind is set for this test on mps."""
    found = set()
    for mark in op.get_decorators(test_class, test, "mps", dtype, {}):
        if mark is unittest.expectedFailure:
            found.add("fails")
        elif mark is unittest.skip or getattr(mark, "__qualname__", "").startswith("skip.<locals>"):
            found.add("skips")
    return found


def _undefined_names(modifier: Any) -> frozenset[str]:
    """The operators of `UNDEFINED_XFAILLIST`, a local of torch's function: read from its source."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(modifier)))):
        targets = (
            [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
        )
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if "UNDEFINED_XFAILLIST" in names and isinstance(node.value, ast.Dict):
            return frozenset(key.value for key in node.value.keys if isinstance(key, ast.Constant))
    raise RuntimeError("torch's MPS lists have changed their shape: no UNDEFINED_XFAILLIST in mps_ops_modifier")


def family_of(op: Any) -> str:
    """A coarse family for the report: the namespace of a name that has one, else the kind of OpInfo."""
    for prefix in ("nn.functional", "linalg", "fft", "special", "masked", "signal", "sparse"):
        if op.name.startswith(prefix + "."):
            return prefix
    kind = type(op).__name__
    return {"UnaryUfuncInfo": "unary", "BinaryUfuncInfo": "binary", "ReductionOpInfo": "reduction"}.get(kind, "other")
