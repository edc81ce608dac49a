"""No package grows: tests/size.toml holds the size of each, and a change only lowers it."""

from __future__ import annotations

from pathlib import Path

import pytest

import size


def test_nothing_grew_and_lower_numbers_are_written_down() -> None:
    recorded, _ = size.read()
    grown, lower = size.differences(recorded, size.count())
    assert not grown, "remove as much elsewhere, or say why: python -m tests.size --raise SECTION.PACKAGE 'why'"
    assert not lower, "write it down: python -m tests.size"


def test_every_raised_number_has_a_reason_and_is_in_the_table() -> None:
    recorded, raised = size.read()
    for place, why in raised.items():
        section, _, name = place.partition(".")
        assert name in recorded[section], place
        assert len(why.split()) >= 3, place


def test_growth_and_shrinking_are_told_apart() -> None:
    was = {"python": {"mac": 10, "plan": 5, "gone": 3}}
    grown, lower = size.differences(was, {"python": {"mac": 11, "plan": 4, "new": 1}})
    assert grown == ["python.mac: 10 -> 11", "python.new: 0 -> 1"]
    assert lower == ["python.gone: 3 -> 0", "python.plan: 5 -> 4"]


def test_a_number_rises_only_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "TABLE", tmp_path / "size.toml")
    sections = ("native", "tests", "words")
    monkeypatch.setattr(size, "count", lambda: {"python": {"mac": 12, "plan": 4}, **{name: {} for name in sections}})
    size.write({"python": {"mac": 10, "plan": 5}, **{name: {} for name in sections}}, {})

    assert size.main([]) == "grew; remove as much elsewhere, or use --raise:\npython.mac: 10 -> 12"
    assert size.read()[0]["python"] == {"mac": 10, "plan": 4}
    assert size.main(["--raise", "python.mac", " "]) == 'usage: python -m tests.size --raise SECTION.PACKAGE "why"'
    assert size.main(["--raise", "python.cat", "a new wing"]) == "python.cat is not in the table"
    assert size.main(["--raise", "python.mac", 'says "27" too']) is None
    assert size.read() == (
        {"python": {"mac": 12, "plan": 4}, **{name: {} for name in sections}},
        {"python.mac": 'says "27" too'},
    )
