"""Calls of operators, as texts, and the Mac and the coefficients that the tests of costs ask about."""

from __future__ import annotations

import json
from pathlib import Path

from anymps import parse_mac
from anymps.cost import OperatorCall

ROOT = Path(__file__).parents[2]
COEFFICIENTS = json.loads((ROOT / "src" / "anymps" / "cost" / "coefficients.json").read_text(encoding="utf-8"))
M1 = parse_mac("M1 16GB")
TORCH = "2.13"


def call(text: str) -> OperatorCall:
    """Read one call."""
    return OperatorCall.parse(text)


def product(n: int, dtype: str = "float32") -> OperatorCall:
    """A product of two square matrices."""
    side = f"{dtype}[{n}, {n}]"
    return OperatorCall("aten::mm", (side, side), (side,))
