"""Words that several packages share: an exception, how severe something is, and shares."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from anymps._text import error_words, first_line, percent, severity_word
from anymps.findings import Severity
from anymps.findings._endings import Ending
from anymps.plan._measure import _remark
from anymps.record import EndingFacts
from anymps.report.comparison import _words as words_of_comparisons
from anymps.report.document._tree import WORDS, State
from anymps.runs.inside import error_of

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


@pytest.mark.parametrize(
    ("message", "first"), [("", ""), (" \n\n", ""), ("no", "no"), ("\n  a b \r\nc", "a b"), ("a\n", "a")]
)
def test_the_first_line_of_a_message(message: str, first: str) -> None:
    """Also of one that begins with an empty line, and of one that says nothing."""
    assert first_line(message) == first


def test_what_stopped_a_plan_is_known_as_a_refusal() -> None:
    """By the first line of its message, which may stand below an empty one; an exception without words is none."""

    def remark(message: str, *refusals: str) -> str:
        recording = SimpleNamespace(
            refusals=lambda: [SimpleNamespace(message=refusal) for refusal in refusals],
            marks=lambda _: (),
            occurrences=lambda _: (),
        )
        return _remark(EndingFacts(1, exception="TypeError", message=message), cast(Any, recording))

    assert remark("\nno float64\nmore", "no float64\nmore") == " (a Mac raises this too)"
    assert remark("no float64", "no complex") == ""
    assert remark("", "") == ""


def test_a_severity_has_one_word() -> None:
    """`info` is a note in what people read, for a finding and in every report."""
    assert [severity.word for severity in Severity] == ["error", "warning", "note"]
    assert {state: severity_word(state) for state in get_args(State)} == WORDS
    assert WORDS["info"] == "note"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.006, "1 %"), (0.01, "1 %"), (0.126, "13 %"), (1.0, "100 %"), (12.34, "1,234 %")],
)
def test_whole_numbers(share: float, text: str) -> None:
    """Most shares have no digits after the point."""
    assert percent(share) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1e-07, "<0.001 %"),
        (4.9e-06, "<0.001 %"),
        (9.99e-06, "0.001 %"),
        (1e-05, "0.001 %"),
        (0.0084, "0.84 %"),
        (0.09, "9 %"),
        (0.3141, "31.4 %"),
        (1.0, "100 %"),
        (9.996, "1,000 %"),
        (12345.6, "1,234,560 %"),
        (math.inf, "infinity"),
        (math.nan, "infinity"),
    ],
)
def test_small_shares_of_a_comparison(share: float, text: str) -> None:
    """A comparison tells a thousandth of a per cent, and says of what is below only that."""
    assert words_of_comparisons.percent(share) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.001 %"), (1e-07, "0.001 %"), (0.0084, "0.84 %")])
def test_a_bound(share: float, text: str) -> None:
    """A sentence that says `at most` needs a number."""
    assert words_of_comparisons.at_most(share) == text


def test_no_exponents() -> None:
    """No size of a share is written as `1e-05`."""
    for power in range(-12, 9):
        for digit in (1.0, 9.96, 9.9999):
            for least in (1.0, 0.001):
                assert re.fullmatch(r"<?[0-9,]+(\.[0-9]+)? %", percent(digit * 10.0**power, least))
