"""MPS301 to MPS304: tensors that MPS refuses for what they are: dtype, number of dimensions, layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._refusals import Refused, at, refused_as
from anymps.findings.advice import checked
from anymps.record import Recording, RefusalKind

FLOAT64 = Rule(
    id="MPS301",
    title="float64 on MPS",
    severity=Severity.ERROR,
    refusal=True,
    why="Metal has no float64: any float64 tensor on mps raises TypeError.",
    fix="Make it float32 before it goes to the device: `.float()`, or `dtype=torch.float32` where it is made.",
    source="aten/src/ATen/mps/EmptyTensor.cpp, torch 2.7 to 2.15",
    example=Example(
        bad="""
            import numpy as np

            x = torch.from_numpy(np.linspace(0, 1, 8))
            x = x.to(device)
        """,
        good="""
            import numpy as np

            x = torch.from_numpy(np.linspace(0, 1, 8, dtype=np.float32))
            x = x.to(device)
        """,
    ),
)

DTYPE = Rule(
    id="MPS302",
    title="dtype that MPS or the operator does not take",
    severity=Severity.ERROR,
    refusal=True,
    why="MPS has fewer dtypes than the CPU, and some of its kernels take fewer still.",
    fix="Convert the tensor before the call: to float32, int64 or complex64.",
    source="aten/src/ATen/mps/EmptyTensor.cpp, aten/src/ATen/native/mps/OperationUtils.mm, torch 2.13",
    example=Example(
        bad="""
            x = torch.arange(8, device=device).view(2, 4)
            y = torch.nn.functional.linear(x, x)
        """,
        good="""
            x = torch.arange(8, device=device).view(2, 4).float()
            y = torch.nn.functional.linear(x, x)
        """,
    ),
)

RANK = Rule(
    id="MPS303",
    title="Tensor with more than 16 dimensions",
    severity=Severity.ERROR,
    refusal=True,
    why="MPS tensors have at most 16 dimensions.",
    fix="Flatten dimensions that belong together before the call.",
    source="aten/src/ATen/mps/EmptyTensor.cpp, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.zeros([2] + [1] * 16, device=device)
        """,
        good="""
            x = torch.zeros([2] + [1] * 15, device=device)
        """,
    ),
)

LAYOUT = Rule(
    id="MPS304",
    title="Layout that MPS does not have",
    severity=Severity.ERROR,
    refusal=True,
    why="MPS has strided tensors, sparse COO tensors from torch 2.9 on, and hardly any operator for the other layouts.",
    fix="Make it dense with `.to_dense()` before it goes to the device, or keep this part on the CPU.",
    source="aten/src/ATen/mps/EmptyTensor.cpp; native_functions.yaml of the macOS wheels, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.zeros(3, 3, layout=torch.jagged, device=device)
        """,
        good="""
            x = torch.zeros(3, 3, device=device)
        """,
    ),
)

RULES = (FLOAT64, DTYPE, RANK, LAYOUT)

# NumPy's makers of float64 arrays that take a dtype; the others need `.astype`.
_TAKES_DTYPE = frozenset(
    {"arange", "array", "asarray", "empty", "eye", "full", "geomspace", "identity"}
    | {"linspace", "logspace", "mean", "ones", "std", "sum", "var", "zeros"}
)
# What keeps the dtype of a NumPy array.
_FROM_ARRAY = frozenset({"as_tensor", "asarray", "from_numpy", "tensor"})


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors that MPS refuses for what they are."""
    for refused in refused_as(recording, RefusalKind.FLOAT64):
        yield _float64(refused)
    for kind, rule in (
        (RefusalKind.COMPLEX128, DTYPE),
        (RefusalKind.DTYPE, DTYPE),
        (RefusalKind.RANK, RANK),
        (RefusalKind.LAYOUT, LAYOUT),
    ):
        for refused in refused_as(recording, kind):
            yield rule.finding(
                refused.site,
                what=f"`{refused.operator}` raised {refused.error}: {refused.message}{refused.called}",
                count=refused.count,
                fix="Make it complex64 before it goes to the device." if kind is RefusalKind.COMPLEX128 else "",
                related_sites=[refused.origin],
            )


def _float64(refused: Refused) -> Finding:
    name, expression = refused.name, refused.expression
    looped = refused.origin.source.strip().startswith(("for ", "async for "))
    subject = name[0].upper() + name[1:]
    what = f"{subject} is float64, and going to mps raised {refused.error}."
    fix = ""
    if not refused.origin.known and ".double()" in refused.site.source:
        fix = "Leave out `.double()`; what needs double precision is computed on the CPU: `.cpu().double()`."
    if refused.origin.known:
        made = f" by `{expression}`" if expression else ""
        default = ", NumPy's default dtype" if refused.detail.get("numpy_default") else ""
        what = (
            f"{subject}, made{made} at {at(refused.origin)}, is float64{default}; going to mps raised {refused.error}."
        )
        float32 = _as_float32(expression)
        cast = '`.astype("float32")`' if refused.detail.get("array") else "`.float()`"
        if looped:
            fix = f"Make it float32 where the data set makes it, or write {cast} before it goes to the device."
        elif float32:
            fix = f"Write `{float32}` at {at(refused.origin)}, or {cast} before it goes to the device."
        else:
            fix = f"Make it float32 at {at(refused.origin)}, or write {cast} before it goes to the device."
    return FLOAT64.finding(
        refused.site, what=f"{what[:-1]}{refused.called}.", count=refused.count, fix=fix, related_sites=[refused.origin]
    )


def _as_float32(expression: str) -> str:
    """The expression with float32 for NumPy's float64, or the empty text where that cannot be told."""
    call = re.fullmatch(r"(?P<root>np|numpy|torch)\.(?P<name>[\w.]+)\((?P<arguments>.*)\)", expression)
    names_dtype = "dtype" in expression or "float" in expression  # by keyword, or by position
    if call is None or names_dtype or not _is_balanced(call["arguments"]):
        return ""
    if call["root"] == "torch":
        if call["name"] not in _FROM_ARRAY:
            return ""
        inner = _as_float32(call["arguments"])
        return f"torch.{call['name']}({inner})" if inner else f"{expression}.float()"
    if call["name"] in _TAKES_DTYPE:
        separator = ", " if call["arguments"].strip() else ""
        return checked(f"{expression[:-1]}{separator}dtype={call['root']}.float32)", instead_of=expression)
    return checked(f"{expression}.astype({call['root']}.float32)", instead_of=expression)


def _is_balanced(arguments: str) -> bool:
    """Whether a call's arguments close their own parentheses, so that the call is the whole expression."""
    depth = 0
    for character in arguments:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0
