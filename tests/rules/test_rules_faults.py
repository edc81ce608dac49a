"""The table of known bugs: the releases and systems of each, and what is left of it beside other kernels."""

from __future__ import annotations

import pytest

from anymps import parse_mac
from anymps.rules import Family
from anymps.rules.faults import FIRST_ASKED, Effect, Hazard, all_hazards, hazards
from anymps.rules.faults._table import _of_operators

KNOWN = {hazard.id: hazard for hazard in all_hazards()}


def test_a_fault_is_fixed_in_the_release_after_the_last_that_has_it() -> None:
    """Nothing is known to be fixed later: a release between would be one that nobody has looked at."""
    fixed = [hazard for hazard in all_hazards() if hazard.fixed is not None]
    assert fixed
    assert [one.id for one in fixed if one.fixed != (one.until[0], one.until[1] + 1)] == []


def test_what_is_known_of_a_release() -> None:
    """It has a bug, has it not, or nobody has told: before a first release that is one of sight alone, after a last."""
    begun, seen = KNOWN["MPS664"], KNOWN["MPS668"]
    assert [begun.has((2, minor)) for minor in (7, 8, 9, 15)] == [False, True, False, False]
    assert [seen.has((2, minor)) for minor in (7, 8, 9)] == [None, True, None]
    assert all(FIRST_ASKED <= hazard.since <= hazard.until for hazard in all_hazards())


@pytest.mark.parametrize(
    ("mac", "release", "expected"),
    [
        ("M5 16GB, macOS 26.2", "2.13", set()),
        ("M5 16GB, macOS 27", "2.13", {"MPS688", "MPS689"}),
        ("M5 16GB, macOS 27.1", "2.13", {"MPS688", "MPS689"}),
        ("M3 Pro 18GB, macOS 27", "2.13", {"MPS689"}),
        ("M5 16GB, macOS 27", "2.14", set()),
        ("M3 Pro 18GB, macOS 26.2", "2.14", {"MPS626"}),
        ("M3 Pro 18GB, macOS 26.2.1", "2.14", {"MPS626"}),
        ("M3 Pro 18GB, macOS 26.7", "2.14", set()),
        ("M2 16GB, macOS 26.4", "2.13", {"MPS611", "MPS612", "MPS614"}),
        ("M2 16GB, macOS 27", "2.13", {"MPS689"}),
    ],
)
def test_bugs_of_single_systems(mac: str, release: str, expected: set[str]) -> None:
    """Point versions of macOS and macOS 27 count, as `--mac` takes them."""
    asked = {"MPS611", "MPS612", "MPS614", "MPS626", "MPS688", "MPS689"}
    known = parse_mac(mac)
    assert {hazard.id for hazard in hazards(release, known.macos, known.metal_family)} & asked == expected


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
