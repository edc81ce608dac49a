"""Which operators are exact, and how many units in the last place the functions of one element may be off.

The numbers of Metal's own functions are those of the Metal Shading Language Specification 4.1, section 8.4: table 8.1
(without fast math), table 8.2 (with it), table 8.3 (half) and table 8.4 (bfloat). PyTorch compiles its kernels without
fast math. What MPSGraph does is not published, so the second table is allowed for its operators. The functions that
PyTorch builds of Metal's are allowed the sum of what their steps are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from anymps._tables import read_table

TABLE: Final[dict[str, Any]] = read_table(__file__, "operators.toml")


def named(row: str) -> frozenset[str]:
    """The names in a row of the table."""
    return frozenset(TABLE[row].split())


EXACT: Final = named("exact")
MOVES: Final = named("moves")
ROUNDED_IF_COMPLEX: Final = named("rounded_if_complex")
_COMPARISONS: Final = named("comparisons")
_SPECIFICATION: Final = "Metal Shading Language Specification 4.1, table 8.1"


@dataclass(frozen=True)
class Accuracy:
    """What one function of an element is allowed, in units in the last place of its result.

    `fast` is allowed where MPSGraph computes it; None: the same. `of_input` says that the units are of the largest
    input, not of the result: its formula cancels.
    """

    ulps: float
    fast: float | None = None
    of_input: bool = False
    source: str = _SPECIFICATION


FUNCTIONS: Final = {
    name: Accuracy(source=source, **row)
    for table, source in (
        ("functions", _SPECIFICATION),
        ("own_functions", f"the sum of its steps, each by the {_SPECIFICATION}"),
    )
    for names, row in TABLE[table].items()
    for name in names.split()
}
"""The functions of one element whose accuracy follows from the specification."""


def is_comparison(name: str) -> bool:
    """Whether an operator answers yes or no for each element."""
    return name in _COMPARISONS


def is_fused_step(name: str) -> bool:
    """Whether an operator is the step of a fused optimizer."""
    return name.startswith("_fused_") and "rms_norm" not in name
