"""How many times as fast one Mac does a step as another, with an interval that was scored for ratios.

Part of a prediction's error is the same on all Macs and cancels in a ratio; the rest of both errors adds up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from anymps.cost._walk import WalkedStep


class Ratio(NamedTuple):
    """How many times as fast, and the ends of the 80 % interval of that."""

    value: float
    low: float
    high: float


def speed_ratio(of: WalkedStep, against: WalkedStep) -> Ratio:
    """How many times as fast the first step is as the second: the same happenings by the same torch on two Macs."""
    if not of.seconds or not against.seconds:
        return Ratio(1.0, 1.0, 1.0)
    value = against.seconds / of.seconds
    off = math.exp(_off(of, against))
    return Ratio(value, value / off, value * off)


def _off(of: WalkedStep, against: WalkedStep) -> float:
    """The 80 % interval in logarithms: what is wrong for a chip is wrong for all Macs with it."""
    one, other = of.mac, against.mac
    if one is None or other is None:
        return max(of.between, against.between)
    alike = (one.chip, one.gpu_cores) == (other.chip, other.gpu_cores)
    return max(of.alike, against.alike) if alike else max(of.between, against.between)
