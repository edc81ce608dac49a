"""README's picture is of the run that its text tells of; `python -m tests.report_picture` makes both."""

from __future__ import annotations

from pathlib import Path

import pytest

import report_picture


@pytest.mark.parametrize("page", report_picture.PAGES, ids=lambda page: page.name)
def test_the_picture_shows_the_run_of_the_text(page: Path) -> None:
    """README and the quick start show the short report of the run in the picture."""
    assert report_picture.described(report_picture.PICTURE.read_bytes()) == report_picture.shown(page)


def test_a_description_is_kept() -> None:
    """It is a chunk of the file, and the rest of the picture stays."""
    picture = report_picture.PICTURE.read_bytes()
    described = report_picture.with_description(picture, "")
    assert len(described) - len(picture) == 12 + len("Description\0")
    plain = b"\x89PNG\r\n\x1a\n\0\0\0\0IEND\xaeB`\x82"
    assert report_picture.described(plain) == ""
    assert report_picture.described(report_picture.with_description(plain, "A step: 2")) == "A step: 2"
