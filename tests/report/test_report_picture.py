"""README's picture is of the run that its text tells of; `python -m tests.report_picture` makes both."""

from __future__ import annotations

from pathlib import Path

import pytest

import report_picture


@pytest.mark.parametrize("page", report_picture.PAGES, ids=lambda page: page.name)
def test_the_picture_shows_the_run_of_the_text(page: Path) -> None:
    """README and the quick start show the short report of the run in the picture."""
    assert report_picture.REPORT.read_text(encoding="utf-8") == report_picture.shown(page)
