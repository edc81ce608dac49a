"""The recipes: each program runs, its report changes as the page says, and the page shows what was printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from recipes import FOLDER, PROGRAMS, RECIPES, SIZES, Report, filled, run_programs, sizes, with_sizes

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The report of every program."""
    return run_programs()


def rule_of(recipe: str) -> str:
    """The rule that a page says finds its first program."""
    (rule,) = re.findall(r"^\[(MPS\d+)\]\(\.\./rules/\1\.md\) finds it:$", (FOLDER / f"{recipe}.md").read_text(), re.M)
    return str(rule)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe(recipe: str, reports: dict[str, Report]) -> None:
    """The finding that the page names is there before, and is gone after. What the page shows was printed."""
    assert rule_of(recipe) in reports[f"{recipe}_before"].findings
    # What one layer computes takes no longer than the copy of its part: MPS412 says so of the small example.
    assert set(reports[f"{recipe}_after"].findings) <= ({"MPS412"} if recipe == "accumulation" else set())
    page = (FOLDER / f"{recipe}.md").read_text()
    if torch.__version__.startswith("2.13."):  # other releases have other words and counts
        assert page == filled(page, recipe, reports), "python -m tests.recipes writes it anew"


def test_the_table_of_models_and_macs() -> None:
    """Plans still say what the recipe of fine-tuning does; the times hang on this machine."""
    page = (FOLDER / "fine_tuning.md").read_text()
    again = with_sizes(page, sizes())
    untimed, untimed_again = (re.sub(r", [\d.]+ s\b", "", text) for text in (page, again))
    assert untimed == untimed_again, "python -m tests.recipes writes it anew"


def test_the_index_names_every_recipe() -> None:
    """With its title and its rule; and each program belongs to a page."""
    index = (FOLDER / "README.md").read_text()
    for recipe in RECIPES:
        title = (FOLDER / f"{recipe}.md").read_text().splitlines()[0].removeprefix("# ")
        rule = rule_of(recipe)
        assert f"| [{title}]({recipe}.md) | [{rule}](../rules/{rule}.md) |\n" in index
    programs = {path.name for path in Path(PROGRAMS).glob("*.py")}
    assert programs == {f"{recipe}_{half}.py" for recipe in RECIPES for half in ("before", "after")} | {SIZES.name}
