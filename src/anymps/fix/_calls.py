"""Changes of one call: what a rule's advice says in words, made in the syntax tree."""

from __future__ import annotations

import libcst as cst

from anymps.fix._script import CallChange

_TRUE = cst.Name("True")
_FACTORIES = ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "tensor", "zeros")
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def named(call: cst.Call) -> str:
    """The last name of what is called: `AdamW` of `torch.optim.AdamW(...)`."""
    function = call.func
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else ""


def argument(call: cst.Call, name: str) -> cst.Arg | None:
    """What is given by this name."""
    return next((it for it in call.args if it.keyword is not None and it.keyword.value == name), None)


def unpacks(call: cst.Call) -> bool:
    """Whether `**options` may hold more than the call shows."""
    return any(it.star == "**" for it in call.args)


def without(call: cst.Call, *names: str) -> cst.Call:
    """The call without arguments of these names."""
    kept = [it for it in call.args if it.keyword is None or it.keyword.value not in names]
    if kept and len(kept) < len(call.args) and kept[-1] is not call.args[-1]:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=kept)


def with_argument(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """The call with this argument, in the place of the one it has, else as the last."""
    known = argument(call, name)
    if known is not None:
        return call.with_changes(args=[it.with_changes(value=value) if it is known else it for it in call.args])
    new = cst.Arg(
        value,
        keyword=cst.Name(name),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    *before, last = call.args
    end = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else None
    if isinstance(end, cst.ParenthesizedWhitespace):  # a line for each, with a comma at the end
        above = getattr(before[-1].comma, "whitespace_after", None) if before else call.whitespace_before_args
        indent = above.last_line if isinstance(above, cst.ParenthesizedWhitespace) else cst.SimpleWhitespace("")
        own = end.with_changes(last_line=indent)  # a comment stays with the argument that it is about
        line = end.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        closing = cst.Comma(whitespace_after=end.with_changes(first_line=line, empty_lines=[]))
        last = last.with_changes(comma=cst.Comma(whitespace_after=own))
        return call.with_changes(args=[*before, last, new.with_changes(comma=closing)])
    if isinstance(last.comma, cst.Comma):
        last, new = last.with_changes(comma=_COMMA), new.with_changes(comma=last.comma)
        return call.with_changes(args=[*before, last, new])
    last = last.with_changes(comma=_COMMA)
    return call.with_changes(args=[*before, last, new])


def fused(call: cst.Call) -> cst.Call | None:
    """MPS812: one of torch's optimizers with `fused=True`, in place of `foreach=True`."""
    if named(call) not in ("Adam", "AdamW", "SGD") or unpacks(call):
        return None
    return with_argument(without(call, "foreach"), "fused", _TRUE)


def dropped_gradients(call: cst.Call) -> cst.Call | None:
    """MPS811: `zero_grad()`, whose default drops the gradients."""
    if named(call) != "zero_grad" or argument(call, "set_to_none") is None:
        return None
    return without(call, "set_to_none")


def pinned_for_cuda(call: cst.Call, when: str = "torch.cuda.is_available()") -> cst.Call | None:
    """MPS801: pinned memory where there is CUDA."""
    given = argument(call, "pin_memory")
    if given is None or not isinstance(given.value, cst.Name) or given.value.value != "True":
        return None
    return with_argument(call, "pin_memory", cst.parse_expression(when))


def pinned_by_device(call: cst.Call) -> cst.Call | None:
    """MPS801 in a script that is made portable, where nothing is to ask for CUDA by name."""
    return pinned_for_cuda(call, 'device.type == "cuda"')


def persistent_workers(call: cst.Call) -> cst.Call | None:
    """MPS804: workers that stay from one epoch to the next. Without workers a DataLoader refuses that they stay."""
    if not named(call).endswith("DataLoader") or unpacks(call):
        return None
    workers = argument(call, "num_workers")
    if workers is not None and isinstance(workers.value, (cst.Name, cst.Attribute, cst.Subscript)):
        some = cst.Comparison(workers.value, [cst.ComparisonTarget(cst.GreaterThan(), cst.Integer("0"))])
        return with_argument(call, "persistent_workers", some)
    return with_argument(call, "persistent_workers", _TRUE)


def in_float32(call: cst.Call) -> cst.Call | None:
    """MPS301: `dtype=torch.float32` for float64, `.float()` for `.double()`, `.float()` before `.to(device)`."""
    dtype = argument(call, "dtype")
    if dtype is not None and isinstance(dtype.value, cst.Attribute) and dtype.value.attr.value in ("float64", "double"):
        return with_argument(call, "dtype", dtype.value.with_changes(attr=cst.Name("float32")))
    function = call.func
    if not isinstance(function, cst.Attribute):
        return None
    if named(call) == "double" and not call.args:
        return call.with_changes(func=function.with_changes(attr=cst.Name("float")))
    if named(call) == "from_numpy" or (named(call) in ("to", "mps", "cuda") and not _is_float(function.value)):
        whole = call if named(call) == "from_numpy" else function.value
        single = cst.Call(cst.Attribute(whole, cst.Name("float")))
        return single if whole is call else call.with_changes(func=function.with_changes(value=single))
    return None


def made_on_device(call: cst.Call) -> cst.Call | None:
    """MPS404: `torch.zeros(..., device=device)` for `torch.zeros(...).to(device)`."""
    made = call.func.value if isinstance(call.func, cst.Attribute) else None
    if named(call) != "to" or not isinstance(made, cst.Call) or named(made) not in _FACTORIES or len(call.args) != 1:
        return None
    if argument(made, "device") is not None or unpacks(made) or call.args[0].keyword is not None or call.args[0].star:
        return None
    return with_argument(made, "device", call.args[0].value)


def mapped_to_cpu(call: cst.Call) -> cst.Call | None:
    """MPS111 of a checkpoint: read to the CPU, from where `load_state_dict` copies."""
    if named(call) != "load" or argument(call, "map_location") is not None or unpacks(call):
        return None
    return with_argument(call, "map_location", cst.SimpleString('"cpu"'))


def _is_float(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Call) and named(value) == "float"


CHANGES: dict[str, CallChange] = {
    "MPS301": in_float32,
    "MPS111": mapped_to_cpu,
    "MPS404": made_on_device,
    "MPS801": pinned_for_cuda,
    "MPS804": persistent_workers,
    "MPS811": dropped_gradients,
    "MPS812": fused,
}
"""By rule; what is not here follows the new line that the finding itself shows."""
