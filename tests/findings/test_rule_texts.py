"""Every rule has its texts and versions, and what it says to write instead computes the same."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from anymps.findings import RULES
from anymps.findings.advice._remedies import EQUIVALENTS


def test_rules_hold_for_their_versions() -> None:
    """A rule with a first release is silent for older ones, and every rule holds for an unknown version."""
    assert [RULES["MPS104"].applies(version) for version in ("2.10.1", "2.11.0+cpu", "2.15.0", None, "git")] == [
        False, True, True, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_rules_are_documented(rule: object) -> None:
    """Every rule has a number of its family and says its title, why, fix and source in full."""
    assert RULES["MPS101"].id == "MPS101"
    for field in ("id", "title", "why", "fix", "source"):
        assert getattr(rule, field).strip() == getattr(rule, field) != ""
    assert rule.why.endswith(".") and rule.fix.endswith(".")  # type: ignore[attr-defined]
    assert RULES[rule.id] is rule  # type: ignore[attr-defined]


def test_issues_of_other_projects_name_the_repository() -> None:
    """`owner/name issue 7`: a number with another project's plain name would link to pytorch's issue of that number."""
    told = (rule.source for rule in RULES.values())
    before = {word for source in told for word in re.findall(r"([\w./-]+) (?:issue|PR|pull request)s? #?\d", source)}
    assert {word for word in before if "/" not in word} <= {"pytorch", "by", "in", "of", "and", "pull"}


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_equivalents_compute_the_same(name: str) -> None:
    """What a finding says to write instead gives what the operator gives."""
    values = torch.tensor([-1.5, 0.0, 2.0, 0.0, 3.0, -4.0])
    given: dict[str, tuple[object, ...]] = {
        "channel_shuffle": (torch.arange(24.0).reshape(1, 6, 2, 2), {"g": 3}),
        "heaviside": (values, {"v": torch.tensor(0.5)}),
        "logspace": (values, {"a": -1.0, "b": 2.0, "n": 5}),
        "put": (values, {"i": torch.tensor([1, 4]), "v": torch.tensor([7.0, 8.0])}),
        "take": (values.reshape(2, 3), {"i": torch.tensor([[5, 0], [1, 1]])}),
    }
    x, others = given[name]
    results = []
    for expression in (EQUIVALENTS[name].call, EQUIVALENTS[name].instead):
        names: dict[str, object] = {"torch": torch, "F": F, **others}  # type: ignore[dict-item]
        names["x"] = x.clone()  # type: ignore[attr-defined]
        exec(f"{expression}" if name == "put" else f"x = {expression}", names)
        results.append(names["x"])
    torch.testing.assert_close(results[0], results[1])
