"""A rule says up to which torch release it was read; of a later one it is assumed, and a known bug is not claimed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.unread import tables, unread

from anymps import rules
from anymps.rules import NEWEST, OLDEST, OPERATOR_LIMITS, WAITS, Family, _families, _versions
from anymps.rules.faults import FIRST_ASKED, all_hazards, hazards

TABLES = tables()


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> str:
    """A release that is supported and that nobody has read."""
    release = (NEWEST[0], NEWEST[1] + 1)
    monkeypatch.setattr(_versions, "NEWEST", release)
    return f"{release[0]}.{release[1]}.0"


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_read_for_each_supported_release(table: str) -> None:
    """A new release of torch begins here: `python -m tests.unread 2.16` names what is to be looked up first."""
    reading = TABLES[table]
    assert (reading.first <= OLDEST, reading.last >= NEWEST) == (True, True), f"{table}: read to {reading.last}"


def test_no_table_was_read_before_there_was_an_mps_device() -> None:
    """The first torch with one is 1.12."""
    assert {table: reading.first for table, reading in TABLES.items() if reading.first < (1, 12)} == {}


def test_only_the_range_of_support_follows_the_newest_release() -> None:
    """No table takes the newest supported release for the last one in which its rows were seen."""
    folder = Path(rules.__file__).parent
    users = {path.name for path in folder.rglob("*.py") if "NEWEST" in path.read_text(encoding="utf-8")}
    assert users == {"__init__.py", "_coverage.py", "_versions.py"}


def test_every_family_has_a_letter_for_each_release_that_was_read() -> None:
    """The letters of the device checks are those of the releases from the first to the last reading."""
    reading = _families.READING
    assert {len(letters) for letters in _families._FAMILIES} == {reading.last[1] - reading.first[1] + 1}


def test_a_release_that_nobody_has_read_is_taken_for_the_last_one(next_release: str) -> None:
    """What is open goes on to hold: families, texts, limits, waits, dtypes, alerts and the release's own rules."""
    last = f"{NEWEST[0]}.{NEWEST[1]}.0"
    assert rules.family("mm", next_release) is Family.SAME_GPU
    assert rules.missing_stub(next_release) == rules.missing_stub(last)
    assert rules.operator_limits(next_release) == rules.operator_limits(last)
    assert rules.wait_of("nonzero", next_release) is WAITS["nonzero"]
    assert rules.widened_dtypes("histc", next_release) == rules.widened_dtypes("histc", last) != ()
    assert rules.refused_dtype("relu", "bool", next_release) == rules.refused_dtype("relu", "bool", last) is not None
    assert rules.alerts(next_release) == rules.alerts(last)
    assert rules.device_checks(next_release) == rules.device_checks(last)
    known, new = rules.version_rules(last), rules.version_rules(next_release)
    assert {**vars(known), "version": None} == {**vars(new), "version": None}


def test_what_has_ended_does_not_come_back(next_release: str) -> None:
    """A row whose end was seen is silent in a later release, read or not."""
    assert OPERATOR_LIMITS["softmax cast"].until == (2, 14)
    assert "softmax cast" not in rules.operator_limits(next_release)
    assert rules.wait_of("cholesky", next_release) is None


def test_a_known_fault_is_not_claimed_of_a_release_that_nobody_has_looked_at(
    next_release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of a new supported release, and not of one that ANYMPS_ALLOW_ANY_TORCH lets through."""
    assert hazards(f"{NEWEST[0]}.{NEWEST[1]}", (26, 4), "apple9") != ()
    assert hazards(next_release, (26, 4), "apple9") == ()
    monkeypatch.setenv("ANYMPS_ALLOW_ANY_TORCH", "1")
    assert hazards("2.99.0", (26, 4), "apple9") == hazards("2.3.1", (26, 4), "apple9") == ()
    assert all(FIRST_ASKED <= hazard.since <= hazard.until <= NEWEST for hazard in all_hazards())


def test_what_is_unread_is_listed_by_table() -> None:
    """Of a new release each table is named with its source; of the newest only faults that nobody retried."""
    listed = unread((NEWEST[0], NEWEST[1] + 1)).split("\n")
    heads = [line.partition(":")[0] for line in listed if not line.startswith(" ")]
    assert heads == [*TABLES, "known bugs"]
    assert f"watermarks: read to torch {NEWEST[0]}.{NEWEST[1]}, MPSAllocator.mm and MPSAllocator.h" in listed
    assert unread(NEWEST) == (
        "known bugs: the last release in which each was seen\n"
        "    MPS610 (2.13), MPS615 (2.11), MPS619 (2.13), MPS620 (2.13), MPS622 (2.11), MPS628 (2.13), MPS633 (2.12), "
        "MPS637\n    (2.13), MPS639 (2.13), MPS642 (2.14), MPS647 (2.13), MPS660 (2.14), MPS668 (2.8), MPS669 (2.10), "
        "MPS670 (2.10),\n    MPS675 (2.10), MPS676 (2.9), MPS679 (2.13), MPS680 (2.10), MPS684 (2.7), MPS687 (2.11), "
        "MPS690 (2.9), MPS693\n    (2.14), MPS863 (2.9), MPS871 (2.11), MPS876 (2.11), MPS877 (2.11)"
    )
    assert unread(OLDEST) == (
        "known bugs: the last release in which each was seen\n"
        "    MPS668 (2.8), MPS669 (2.10), MPS670 (2.10), MPS675 (2.10), MPS676 (2.9), MPS680 (2.10), MPS684 (2.7), "
        "MPS690\n    (2.9), MPS863 (2.9)"
    )
