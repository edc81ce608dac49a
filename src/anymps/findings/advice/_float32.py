"""The line that makes a float64 tensor, with float32."""

from __future__ import annotations

import ast
from functools import partial

from anymps.source import LineEdit, Place, Rewritten, Splice, argument, last_name, name_of, parse_expression, unpacks

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
