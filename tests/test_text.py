"""Words that several packages share: an exception, and how severe something is."""

from __future__ import annotations

from typing import get_args

import pytest

from anymps._text import error_words, severity_word
from anymps.commands.isolated import error_of
from anymps.findings import Severity
from anymps.findings._endings import Ending
from anymps.report.document._tree import WORDS, State

SAID = "source code string cannot contain null bytes"


@pytest.mark.parametrize(
    ("message", "words"),
    [(SAID, f"SyntaxError: {SAID}"), (f"\n{SAID} \nmore\n", f"SyntaxError: {SAID}"), (" \n", "SyntaxError")],
)
def test_an_exception_in_words(message: str, words: str) -> None:
    """As Python prints it, with the first line of its message, in findings and in what fix and compare say."""
    assert error_words("SyntaxError", message) == words == Ending("SyntaxError", message).words
    assert error_of({"status": 1, "exception": "SyntaxError", "message": message}) == words
    assert error_of({"status": 3}) == "exit status 3"


def test_a_severity_has_one_word() -> None:
    """`info` is a note in what people read, for a finding and in every report."""
    assert [severity.word for severity in Severity] == ["error", "warning", "note"]
    assert {state: severity_word(state) for state in get_args(State)} == WORDS
    assert WORDS["info"] == "note"
