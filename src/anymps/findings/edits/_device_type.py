"""The type of a device by its name, `"cuda" if "cuda" in device else "cpu"`: with mps before it."""

from __future__ import annotations

import ast
from typing import Final

from anymps.source import CUDA, LineEdit, Place, Rewritten, Splice, compares_device, is_device_text, mentions_mps


def _with_mps(place: Place) -> Rewritten | None:
    """`"mps" if "mps" in device else` before such a choice; the rest stays word for word."""
    code = place.code
    for node in code.nodes:
        if (
            isinstance(node, ast.IfExp)
            and isinstance(node.orelse, ast.Constant)
            and node.orelse.value == "cpu"
            and isinstance(node.body, ast.Constant)
            and is_device_text(node.body)
            and compares_device(node.test)
            and not any(map(_asks_otherwise, ast.walk(node.test)))
            and not any(mentions_mps(part) for part in code.nodes)
        ):
            start = code.span(node)[0]
            body, test = (CUDA.sub("mps", code.source(part)) for part in (node.body, node.test))
            return Rewritten((Splice(start, start, f"{body} if {test} else "),))
    return None


def _asks_otherwise(part: ast.AST) -> bool:
    """Whether a part of a test would mean something else with mps in its place: `torch.cuda`, `not`, `!=`."""
    return isinstance(part, (ast.Not, ast.NotIn, ast.NotEq)) or (
        isinstance(part, ast.Attribute) and part.attr == "cuda"
    )


TYPE_WITH_MPS: Final = LineEdit(_with_mps)
"""mps before CUDA where the type of a device is told by its name."""
