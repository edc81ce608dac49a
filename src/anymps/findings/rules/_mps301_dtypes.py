"""MPS301 to MPS304: tensors that MPS refuses for what they are: dtype, number of dimensions, layout."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from anymps.findings._model import Example, Finding, Rule, at
from anymps.findings._refusals import Refused, refused_as, told_as_raised
from anymps.findings.advice import ON_THE_CPU
from anymps.findings.edits import Placed, Safety, change_at
from anymps.record import Recording, RefusalKind
from anymps.source import LineEdit, Place, Rewritten, Splice, argument, last_name, name_of, parse_expression, unpacks

FLOAT64 = Rule(
    id="MPS301",
    title="float64 on MPS",
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
        better={"1, 8)": "1, 8, dtype=np.float32)"},
    ),
)

DTYPE = Rule(
    id="MPS302",
    title="dtype not supported by MPS or by the operator",
    refusal=True,
    why="MPS supports fewer dtypes than the CPU, and some of its kernels support fewer still.",
    fix="Convert the tensor before the call to a dtype that the operator takes, such as float32.",
    source="aten/src/ATen/mps/EmptyTensor.cpp, aten/src/ATen/native/mps/OperationUtils.mm, torch 2.13",
    example=Example(
        bad="""
            x = torch.arange(8, device=device).view(2, 4)
            y = torch.nn.functional.linear(x, x)
        """,
        better={"(2, 4)": "(2, 4).float()"},
    ),
)

RANK = Rule(
    id="MPS303",
    title="Tensor with more than 16 dimensions",
    refusal=True,
    why="MPS tensors have at most 16 dimensions.",
    fix="Flatten dimensions that belong together before the call.",
    source="aten/src/ATen/mps/EmptyTensor.cpp, torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.zeros([2] + [1] * 16, device=device)",
        better={"x = torch.zeros([2] + [1] * 16, device=device)": "x = torch.zeros([2] + [1] * 15, device=device)"},
    ),
)

LAYOUT = Rule(
    id="MPS304",
    title="Layout not supported by MPS",
    refusal=True,
    why="MPS supports strided tensors, sparse COO tensors since torch 2.9, and hardly any operator for other layouts.",
    fix="Make it dense with `.to_dense()` before it goes to the device, or keep this part on the CPU.",
    source="aten/src/ATen/mps/EmptyTensor.cpp; native_functions.yaml of the macOS wheels, torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.zeros(3, 3, layout=torch.jagged, device=device)",
        better={"x = torch.zeros(3, 3, layout=torch.jagged, device=device)": "x = torch.zeros(3, 3, device=device)"},
    ),
)

# Double precision that the line asks of a tensor.
_ASKED = re.compile(r"\.double\(\)|\.(?:to|type)\((?:torch\.)?(?:float64|double)\)")

_NO_COMPLEX = re.compile(r"(?:doesn't support|not supported for|not implemented for) '?[Cc]omplex|_float2\b")
_FLOAT = re.compile(r"[Oo]nly (?:supports? )?float")

_LEAVE_DEFAULT = "Let torch's default dtype be float32: `torch.set_default_dtype` made it float64"


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors that MPS refuses for what they are."""
    for refused in refused_as(recording, RefusalKind.FLOAT64):
        yield _float64_by_name(refused) if refused.detail.get("dtype") else _float64(refused)
    complex64 = "Make it complex64 before it goes to the device."
    yield from told_as_raised(recording, RefusalKind.COMPLEX128, DTYPE, complex64)
    for refused in refused_as(recording, RefusalKind.DTYPE):
        yield refused.finding(DTYPE, fix=_on_the_cpu(refused.message))
    yield from told_as_raised(recording, RefusalKind.RANK, RANK)
    yield from told_as_raised(recording, RefusalKind.LAYOUT, LAYOUT)


def _on_the_cpu(message: str) -> str:
    """The advice where no conversion keeps the values: torch's words name what the operator takes."""
    if _NO_COMPLEX.search(message):
        return f"The operator takes no complex numbers on mps. {ON_THE_CPU}"
    return (
        f"The operator takes only float32: convert real numbers. For complex ones, r{ON_THE_CPU[1:]}"
        if _FLOAT.search(message)
        else ""
    )


def _by_default(refused: Refused) -> bool:
    """Whether torch's default dtype may be why: it was float64 then, and no line about the tensor names a dtype."""
    if refused.detail.get("numpy_default") or refused.detail.get("array") or not refused.detail.get("torch_default"):
        return False
    lines = (refused.site.source, refused.origin.source, refused.expression)
    return not any(word in line for line in lines for word in ("float64", "double", "numpy"))


def _float64_by_name(refused: Refused) -> Finding:
    """A line that asks for a dtype by a name of the program's."""
    set_at = f", set at {at(refused.origin)}," if refused.origin.known else ""
    where = f" at {at(refused.origin)}" if refused.origin.known else ""
    return refused.finding(
        FLOAT64,
        what=(
            f"{refused.name}{set_at} is float64; a tensor of that dtype on mps raised {refused.error}{refused.called}."
        ),
        fix=f"Make {refused.name} float32{where} if the device is mps.",
        edit=float32_edit(refused.expression),
        edit_at=[refused.origin],
        safety=Safety.PROVED,
        written=f"Write `{{new}}`{where}.",
    )


def _float64(refused: Refused) -> Finding:
    name, expression = refused.name, refused.expression
    looped = refused.origin.source.strip().startswith(("for ", "async for "))
    subject = name[0].upper() + name[1:]
    by_default = _by_default(refused)
    of_torch = ", as is torch's default dtype here" if by_default else ""
    what = f"{subject} is float64{of_torch}, and going to mps raised {refused.error}."
    edit, places = float32_edit(expression), [refused.origin, refused.site]
    fix, written = "", "Write `{new}`."
    asked = None if refused.origin.known else _ASKED.search(refused.site.source)
    if asked is not None:
        fix = f"Leave out `{asked[0]}`; what needs double precision is computed on the CPU: `.cpu().double()`."
        written = f"Write `{{new}}`; {fix.partition('; ')[2]}"
    if refused.origin.known:
        made = f" by `{expression}`" if expression else ""
        default = ", NumPy's default dtype" if refused.detail.get("numpy_default") else ""
        what = (
            f"{subject}, made{made} at {at(refused.origin)}, is float64{default or of_torch}; going to mps raised "
            f"{refused.error}."
        )
        cast = '`.astype("float32")`' if refused.detail.get("array") else "`.float()`"
        fix = f"Make it float32 at {at(refused.origin)}, or write {cast} before it goes to the device."
        written = f"Write `{{new}}` at {at(refused.origin)}, or {cast} before it goes to the device."
        if looped:
            fix = f"Make it float32 where the data set makes it, or write {cast} before it goes to the device."
        if looped or change_at(Placed(edit, (refused.origin,), Safety.PROVED)) is None:
            where = "where the data set makes it" if looped else f"at {at(refused.origin)}"
            places, written = [refused.site], f"Write `{{new}}`, or make it float32 {where}."
    if by_default:
        fix = f"{_LEAVE_DEFAULT}. Or write `dtype=torch.float32` where it is made."
        written = f"{_LEAVE_DEFAULT}. For this one alone, write `{{new}}`."
    return refused.finding(
        FLOAT64,
        what=f"{what[:-1]}{refused.called}.",
        fix=fix,
        edit=edit,
        edit_at=places,
        safety=Safety.PROVED,
        written=written,
    )


# NumPy's makers of float64 arrays that take a dtype; the others need `.astype`.
_TAKES_DTYPE = frozenset(
    {"arange", "array", "asarray", "empty", "eye", "full", "geomspace", "identity"}
    | {"linspace", "logspace", "mean", "ones", "std", "sum", "var", "zeros"}
)
_NAMES_DTYPE = ("dtype", "float", "double")
# What keeps the dtype of a NumPy array.
_FROM_ARRAY = frozenset({"as_tensor", "asarray", "from_numpy", "tensor"})
_MOVES = ("cuda", "mps", "to")


def float32_edit(expression: str) -> LineEdit:
    """The edit of a statement in which `expression` makes the tensor; of any that makes one, if it is empty."""
    return LineEdit(partial(_in_float32, expression))


def _in_float32(expression: str, place: Place) -> Rewritten | None:
    made = parse_expression(expression)
    wanted = ast.unparse(made) if made is not None else ""
    for node in place.code.nodes:
        if isinstance(node, ast.Call) and wanted and ast.unparse(node) == wanted:
            splices = _made(node, place)
            return None if splices is None else Rewritten(tuple(splices), shown=place.code.span(node))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == wanted and _is_float64(node, place):
            return Rewritten((_narrowed(node, place),))  # `dtype = torch.float64`
    calls = place.code.calls
    moves = sum(isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES for call in calls)
    for node in calls:
        moving = isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
        if moving and moves > 1:
            continue  # one of them is the tensor's, and which is not known
        if found := _changed(node, place):
            return Rewritten(tuple(found), shown=place.code.span(node))
    return None


def _made(call: ast.Call, place: Place) -> list[Splice] | None:
    """A call of NumPy, or one of torch that keeps the dtype of an array of NumPy."""
    root, _, name = place.names.meaning(call.func).partition(".")
    alias = ast.unparse(call.func).partition(".")[0]
    if root == "torch" and name in _FROM_ARRAY:
        inner = call.args[0] if len(call.args) == 1 and not call.keywords else None
        found = _made(inner, place) if isinstance(inner, ast.Call) else None
        return found or _changed(call, place) or [_after(call, place, ".float()")]
    if root not in ("np", "numpy") or not isinstance(call.func, ast.Attribute):
        return _changed(call, place)
    arguments = ast.unparse(call).partition("(")[2]
    if any(word in arguments for word in _NAMES_DTYPE) or unpacks(call):
        return _changed(call, place)
    if name in _TAKES_DTYPE:
        end = place.code.span(call)[1] - 1
        separator = ", " if call.args or call.keywords else ""
        return [Splice(end, end, f"{separator}dtype={alias}.float32")]
    return [_after(call, place, f".astype({alias}.float32)")]


def _changed(call: ast.Call, place: Place) -> list[Splice] | None:
    """A dtype that is named, `.double()`, an array, or a move of a tensor whose dtype is not told."""
    dtype = argument(call, "dtype")
    if isinstance(dtype, ast.Attribute) and dtype.attr in ("float64", "double"):
        return [_narrowed(dtype, place)]
    if not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr == "double" and not call.args:
        end = place.code.span(call.func)[1]
        return [Splice(end - len("double"), end, "float")]
    if call.func.attr in ("to", "type"):  # `.to(torch.float64)`, `.to(device, torch.double)`
        for named in call.args:
            if isinstance(named, ast.Attribute) and _is_float64(named, place):
                return [_narrowed(named, place)]
    if call.func.attr == "to" and _names_dtype(call, place):
        return None  # it has the last word, whatever the tensor is before
    if call.func.attr == "from_numpy":
        return [_after(call, place, ".float()")]
    made = call.func.value
    if call.func.attr in _MOVES and not (isinstance(made, ast.Call) and last_name(made) == "float"):
        if isinstance(made, ast.Call) and (inner := _made(made, place)):
            return inner
        return [_after(made, place, ".float()")]
    return None


def _names_dtype(call: ast.Call, place: Place) -> bool:
    """Whether `.to` is given a dtype by a name of the program's: `.to(device, dtype)`, `.to(y.dtype)`."""
    named = argument(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
    if named is None:
        last = call.args[0] if call.args else None
        named = last if "dtype" in name_of(last) else None
    return named is not None and not place.names.meaning(named).startswith("torch.")


def _is_float64(node: ast.Attribute, place: Place) -> bool:
    return place.names.meaning(node) in ("torch.float64", "torch.double")


def _narrowed(dtype: ast.Attribute, place: Place) -> Splice:
    end = place.code.span(dtype)[1]
    return Splice(end - len(dtype.attr), end, "float32")


def _after(node: ast.expr, place: Place, text: str) -> Splice:
    end = place.code.span(node)[1]
    return Splice(end, end, text)
