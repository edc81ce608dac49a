"""The table of known bugs: the releases and systems of each, and what is left of it beside other kernels."""

from __future__ import annotations

import pytest

from anymps.rules import Family
from anymps.rules.faults import Check, Hazard, Outcome, all_hazards
from anymps.rules.faults._table import _of_operators

KNOWN = {hazard.id: hazard for hazard in all_hazards()}


def test_a_fault_is_fixed_in_the_release_after_the_last_that_has_it() -> None:
    """Nothing is known to be fixed later: a release between would be one that nobody has looked at."""
    fixed = {identity: hazard.fixed for identity, hazard in KNOWN.items() if hazard.fixed is not None}
    assert fixed
    assert fixed == {identity: (KNOWN[identity].until[0], KNOWN[identity].until[1] + 1) for identity in fixed}


def test_sizes_from_which_the_backend_fails() -> None:
    """The limits of MPSGraph and of 32-bit indices, and those of single kernels, as (low, high); 0 is none."""
    assert {identity: (hazard.low, hazard.high) for identity, hazard in KNOWN.items() if hazard.low or hazard.high} == {
        "MPS607": (65_536, 0),
        "MPS610": (16_384, 0),
        "MPS611": (32_767, 0),
        "MPS612": (32_767, 0),
        "MPS613": (32_767, 32_768),
        "MPS614": (32_767, 0),
        "MPS616": (4_294_967_296, 0),
        "MPS620": (33, 992),
        "MPS623": (256, 0),
        "MPS624": (65_536, 0),
        "MPS625": (65_536, 0),
        "MPS645": (16_777_216, 0),
        "MPS649": (32, 0),
        "MPS651": (2_147_483_648, 0),
        "MPS652": (2_147_483_648, 0),
        "MPS653": (4_294_967_296, 0),
        "MPS654": (2_147_483_648, 0),
        "MPS655": (2_147_483_648, 0),
        "MPS656": (4_294_967_296, 0),
        "MPS657": (4_294_967_296, 0),
        "MPS658": (4_294_967_296, 0),
        "MPS660": (8_192, 0),
    }


def test_systems_that_have_a_fault() -> None:
    """From which macOS on, and the first without it; (1000, 0) is none."""
    assert {identity: hazard.macos for identity, hazard in KNOWN.items() if hazard.macos} == {
        "MPS608": (((26, 0), (27, 0)),),
        "MPS609": (((15, 0), (1000, 0)),),
        "MPS615": (((15, 0), (26, 4)),),
        "MPS621": (((15, 0), (1000, 0)),),
        "MPS625": (((0, 0), (15, 1)),),
        "MPS626": (((26, 2), (26, 3)),),
    }


def hazard(operators: tuple[str, ...], outcome: Outcome = Outcome.WRONG) -> Hazard:
    """A fault of these operators, or of a whole family."""
    return Hazard(
        "MPS699", "", operators, Check.BYTES, outcome, "", "", (), "", until=(2, 15),
        family=None if operators else Family.PLACEHOLDER,
    )  # fmt: skip


FAMILY, TWO = hazard(()), hazard(("mm", "bmm"))
ABORTS = hazard(("mm",), Outcome.ABORTS)


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
