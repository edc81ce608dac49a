"""The table of known bugs: the releases and systems of each, and what is left of it beside other kernels."""

from __future__ import annotations

import pytest

from anymps.rules import Family
from anymps.rules.faults import Effect, Hazard, all_hazards
from anymps.rules.faults._table import _of_operators

KNOWN = {hazard.id: hazard for hazard in all_hazards()}


def test_a_fault_is_fixed_in_the_release_after_the_last_that_has_it() -> None:
    """Nothing is known to be fixed later: a release between would be one that nobody has looked at."""
    fixed = {identity: hazard.fixed for identity, hazard in KNOWN.items() if hazard.fixed is not None}
    assert fixed
    assert fixed == {identity: (KNOWN[identity].until[0], KNOWN[identity].until[1] + 1) for identity in fixed}


def hazard(operators: tuple[str, ...], effect: Effect = Effect.WRONG) -> Hazard:
    """A fault of these operators, or of a whole family."""
    return Hazard(
        "MPS699", "", operators, "bytes", effect, "", "", (), "", until=(2, 15),
        family=None if operators else Family.PLACEHOLDER,
    )  # fmt: skip


FAMILY, TWO = hazard(()), hazard(("mm", "bmm"))
ABORTS = hazard(("mm",), Effect.ABORTS)


@pytest.mark.parametrize(
    ("known", "inside", "operators"),
    [
        (FAMILY, False, ()),  # of no single operator: stays as it is
        (FAMILY, True, None),
        (TWO, False, ("bmm",)),
        (TWO, True, ("mm",)),
        (hazard(("mm",)), False, None),
        (hazard(("mm",)), True, ("mm",)),
        (hazard(("bmm",)), False, ("bmm",)),
        (ABORTS, False, ("mm",)),  # how torch ends is the installed release's
    ],
)
def test_what_is_left_of_a_fault(known: Hazard, inside: bool, operators: tuple[str, ...] | None) -> None:
    """Where the kernels of another release compute `mm`: outside of these, and inside."""
    left = _of_operators(known, {"mm"}, inside=inside)
    assert (left.operators if left is not None else None) == operators
