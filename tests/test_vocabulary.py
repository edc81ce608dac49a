"""One vocabulary in three places: the rules' numbers, the recording's words, the native core's enums."""

from __future__ import annotations

import re

import pytest

from anymps.device._build import SOURCE_DIRECTORY
from anymps.record import Direction, Fate, Phase, Wait
from anymps.rules import WAIT_WORDS, Flag
from anymps.rules import Fate as RuleFate
from anymps.rules import Wait as RuleWait

RULE_H = (SOURCE_DIRECTORY / "law" / "rule.h").read_text(encoding="utf-8")


def enum_class(name: str) -> dict[str, int]:
    """The members of a C++ enum class in rule.h, in lower case without underscores."""
    match = re.search(rf"enum class {name} : \w+ {{([^}}]*)}}", RULE_H)
    assert match is not None
    values: dict[str, int] = {}
    for part in match[1].split(","):
        member, _, value = part.strip().partition("=")
        values[member.strip().lower()] = int(value) if value else len(values)
    return values


def plain(members: dict[str, int]) -> dict[str, int]:
    return {name.replace("_", "").lower(): value for name, value in members.items()}


def test_waits_have_one_numbering() -> None:
    """A wait has the same number and word in the rules, in a recording and in the native core."""
    assert {wait.name: int(wait) for wait in Wait} == {wait.name: int(wait) for wait in RuleWait}
    assert tuple(wait.label for wait in Wait) == WAIT_WORDS
    assert plain({wait.name: int(wait) for wait in Wait}) == enum_class("Wait")


def test_fates_have_one_numbering() -> None:
    """The fates that rules can give are the first ones of a recording, which adds what becomes of single calls."""
    assert {fate.name: int(fate) for fate in RuleFate}.items() <= {fate.name: int(fate) for fate in Fate}.items()
    assert plain({fate.name: int(fate) for fate in Fate}) == enum_class("Fate")


@pytest.mark.parametrize("vocabulary", [Phase, Direction])
def test_phases_and_directions_have_one_numbering(vocabulary: type[Phase] | type[Direction]) -> None:
    """The native core writes phases and directions with the recording's numbers."""
    assert plain({member.name: int(member) for member in vocabulary}) == enum_class(vocabulary.__name__)


def test_flags_have_one_numbering() -> None:
    """The bits of a rule mean the same in Python and in the native core."""
    native = {name.lower(): int(value) for name, value in re.findall(r"k(\w+) = (\d+),", RULE_H)}
    own = {"refusesdtypes": 2048}  # set by the native core itself
    assert plain({flag.name or "": int(flag) for flag in Flag}) | own == native
