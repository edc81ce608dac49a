"""A tensor made where it is used: `torch.zeros(2, device=device)` for `torch.zeros(2).to(device)`."""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import Final

from anymps.source import LineEdit, Place, Rewritten, Splice, argument, last_name, parse_expression, unpacks

_FROM_VALUES: Final = {"as_tensor": "full", "new_tensor": "new_full", "tensor": "full"}
_DEVICE: Final = re.compile(r"(?:\w+\.)*(?:device|DEVICE)")


def made_on_device(expression: str, *, number: bool) -> LineEdit:
    """The edit of a statement in which `expression` makes a tensor, of one `number` or not, and `.to` moves it."""
    return LineEdit(partial(_made_on_device, expression, number))


def _made_on_device(expression: str, number: bool, place: Place) -> Rewritten | None:
    wanted = parse_expression(expression)
    same = ast.dump(wanted) if wanted is not None else ""
    made = next((call for call in place.code.calls if ast.dump(call) == same), None)
    if made is None or unpacks(made):
        return None
    name = last_name(made)
    if name in _FROM_VALUES and not (number and made.args):
        return None
    move = _moved_by(made, place)
    given = argument(made, "device") is not None
    if (move is None and not given) or (given and name not in _FROM_VALUES):
        return None
    splices = []
    if name in _FROM_VALUES:  # `torch.tensor(0.5)` as `torch.full((), 0.5)`, which copies nothing from the host
        end = place.code.span(made.func)[1]
        first = place.code.span(made.args[0])[0]
        splices += [Splice(end - len(name), end, _FROM_VALUES[name]), Splice(first, first, "(), ")]
    shown = place.code.span(move if move is not None else made)
    if move is not None and isinstance(move.func, ast.Attribute):
        end = place.code.span(made)[1] - 1
        if not given:
            separator = ", " if made.args or made.keywords else ""
            splices.append(Splice(end, end, f"{separator}device={place.code.source(move.args[0])}"))
        splices.append(Splice(place.code.span(move.func.value)[1], place.code.span(move)[1], ""))
    return Rewritten(tuple(splices), shown=shown) if splices else None


def _moved_by(made: ast.Call, place: Place) -> ast.Call | None:
    """The `.to(device)` at the end of the methods that are called on what was made."""
    node: ast.AST = made
    while True:
        attribute = place.code.parents.get(node)
        call = place.code.parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return None
        if last_name(call) == "to":
            device = call.args[0] if len(call.args) == 1 and not call.keywords else None
            return call if device is not None and _DEVICE.fullmatch(place.code.source(device)) else None
        node = call
