"""In which order a Mac is asked: a run that its time cuts off has a bit of everything."""

from __future__ import annotations

from collections import Counter

import pytest

from anymps.verify.cases import Case
from anymps.verify.cases._case import in_turn
from anymps.verify.cases._operators import OPERATORS
from anymps.verify.cases._pairs import pair_cases
from anymps.verify.cases._reductions import ROWS
from anymps.verify.cases._samples import database_cases
from anymps.verify.cases._values import DTYPES


def named(*names: str) -> list[Case]:
    return [Case(name, dict) for name in names]


def test_each_round_asks_every_row_at_another_place() -> None:
    rows = [named("a1", "a2", "a3"), named("b1", "b2", "b3"), named("c1"), []]
    assert [case.id for case in in_turn(rows)] == ["a1", "b2", "c1", "a2", "b3", "a3", "b1"]
    assert in_turn([]) == []


def test_the_first_pairs_have_every_operator_and_every_dtype() -> None:
    ids = [case.id for case in pair_cases()]
    operators = len(OPERATORS) + len(ROWS)
    assert len(ids) == len(set(ids)) == operators * len(DTYPES)
    first = [identity.rpartition(" ") for identity in ids[:operators]]
    assert len({operator for operator, _, _ in first}) == operators
    counts = Counter(dtype for _, _, dtype in first)
    assert set(counts) == {str(dtype).removeprefix("torch.") for dtype in DTYPES}
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.slow
def test_the_first_questions_of_the_database_are_of_all_sorts() -> None:
    pytest.importorskip("numpy")
    ids = [case.id for case in database_cases()]
    assert len(ids) == len(set(ids))
    first = [identity.split(" ") for identity in ids[:300]]
    assert {words[0] for words in first} == {"forward", "gradient", "errors"}
    assert len({words[-1] for words in first if words[0] == "forward"}) == 10
