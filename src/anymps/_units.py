"""Times as people read them, in the unit that suits them. Plain ASCII."""

from __future__ import annotations

__all__ = ["duration", "duration_range", "duration_short"]


def duration(nanoseconds: float) -> str:
    """A time in the unit that suits it: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`; the empty text for nothing."""
    if nanoseconds <= 0:
        return ""
    factor, unit = _unit(nanoseconds)
    return f"{_digits(nanoseconds / factor)} {unit}"


def duration_short(nanoseconds: float) -> str:
    """A round time without zeros behind the point, as an axis has it: `0`, `5 ms`, `2.5 s`."""
    factor, unit = _unit(nanoseconds)
    return f"{nanoseconds / factor:g} {unit}" if nanoseconds else "0"


def duration_range(low: float, high: float) -> str:
    """Two times in one unit: `0.30 to 0.60 ms`."""
    factor, unit = _unit(high)
    if unit != "ns" and low >= factor / 100:
        return f"{_digits(low / factor)} to {_digits(high / factor)} {unit}"
    return f"{duration(low) or '0'} to {duration(high)}"


def _unit(nanoseconds: float) -> tuple[float, str]:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= 0.9995 * factor:
            return factor, unit
    return 1.0, "ns"


def _digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
