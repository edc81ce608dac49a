"""What the native core is told of MPS: every table is asked for, and no other shape is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from anymps.device import native
from anymps.device._rule_tables import rule_tables
from anymps.rules import installed_torch


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """That of the running device."""
    return rule_tables(installed_torch().version)


def refused(told: Mapping[str, object]) -> str:
    """What the core says of told that it does not take. Nothing has changed by then: the device goes on."""
    with pytest.raises((RuntimeError, TypeError)) as error:
        native().configure(told)
    assert torch.ones(3, device="mps").sum().item() == 3
    return str(error.value)


@pytest.mark.parametrize("name", sorted(rule_tables(installed_torch().version)))
def test_every_field_is_asked_for(told: dict[str, Any], name: str) -> None:
    """Without one of them, the core names it."""
    assert refused({key: value for key, value in told.items() if key != name}) == (
        f"anymps: the native core was told no {name}"
    )


def test_every_text_is_asked_for(told: dict[str, Any]) -> None:
    """A text that is missing is named, too."""
    texts = dict(told["texts"])
    del texts["missing"]
    assert refused({**told, "texts": texts}) == "anymps: the native core was told no missing"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("operators", [("aten::add.Tensor", 1)], "function takes exactly 6 arguments (2 given)"),
        ("operators", ["aten::add.Tensor"], "anymps: expected a tuple"),
        ("operators", 3, "anymps: expected a list or a tuple"),
        ("dtypes", [("aten::add", ((1, 2),), 0, 0)], "function takes exactly 3 arguments (2 given)"),
        ("device_checks", [], "anymps: expected a dictionary"),
        ("alerts", {"add": ("", False, "", 3)}, "anymps: expected a list or a tuple"),
        ("same_gpu", {"add": {"self": 3}}, "bad argument type for built-in operation"),
        ("limits", {3: (1, "")}, "bad argument type for built-in operation"),
        ("casts", (1, 2), "function takes exactly 3 arguments (2 given)"),
        ("casts", ("1", 2, ""), "argument 1 must be int, not str"),
    ],
)
def test_another_shape_is_refused(told: dict[str, Any], name: str, value: object, said: str) -> None:
    """A table that is no table, or whose rows are others."""
    assert said in refused({**told, name: value})
