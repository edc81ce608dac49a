"""The report as Markdown: tables that are tables, and nothing of a script that becomes a link, HTML or a mention."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from anymps.findings import Story, find
from anymps.record import Recording, RefusalKind
from anymps.report import compare, diff_document, plan_document, report_pieces
from anymps.report import rendered as as_form
from anymps.report.document._markdown import escaped
from plans import evil
from recordings import hostile, refusing, small, training


def marked_up() -> Recording:
    """A script whose lines and names look like Markdown and HTML."""
    builder = training(clean=True, mac="[M3](https://example.org)", script="<img src=x>.py")
    line = builder.site("a|b*c*@someone.py", 3, "__f__", "x = `y` | ```z``` # </details><script>1</script>")
    builder.refusal(
        RefusalKind.DEVICE, "RuntimeError", "no ![p](https://example.org/p.png) @someone <b>x</b> `a|b` #12 | \n# h",
        operator="aten::`mm|*", start_ns=0, site=line, detail={"name": "</details>"},
    )  # fmt: skip
    return builder.close()


RECORDINGS = {
    "loop": small,
    "refused": refusing,
    "hostile": hostile,
    "marked up": marked_up,
    "training": lambda: training().close(),
}
FOLDS = re.compile(r"</?details>(<summary>[^<]*</summary>)?\n?")


def tokens(markdown: str) -> list[Token]:
    """All tokens, those inside of lines behind the line's."""
    found = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    return [token for outer in found for token in (outer, *(outer.children or ()))]


def rendered(recording: Recording) -> str:
    """The whole report."""
    return "".join(report_pieces("markdown", Story.of(recording), find(recording)))


def compared() -> str:
    """The comparison of a harmless recording with one that looks like Markdown and HTML."""
    before, after = small(), marked_up()
    return "".join(
        as_form(diff_document(compare(Story.of(before), Story.of(after), find(before), find(after))), "markdown")
    )


REPORTS = {
    **{name: lambda make=make: rendered(make()) for name, make in RECORDINGS.items()},
    "plan": lambda: "".join(as_form(plan_document(evil()), "markdown")),
    "comparison": compared,
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_script_makes_no_link_and_no_html(name: str) -> None:
    """The only HTML is what folds sections; there is no link, picture or mention."""
    report = REPORTS[name]()
    found = tokens(report)
    assert {token.type for token in found} & {"link_open", "image", "html_inline"} == set()
    assert [token.content for token in found if token.type == "html_block" and not FOLDS.fullmatch(token.content)] == []
    assert "@" not in re.sub(r"```.*?```|`[^`]*`", "", report, flags=re.DOTALL)
    folds = [token.content[:9] for token in found if token.type == "html_block"]
    assert folds == ["<details>", "</details"] * (len(folds) // 2)


@pytest.mark.parametrize("name", REPORTS)
def test_tables_are_whole(name: str) -> None:
    """Each row of a table has as many cells as its head, and none is cut off at a bar."""
    report = REPORTS[name]()
    rows = [line for line in report.splitlines() if line.startswith("| ")]
    tables = [token for token in tokens(report) if token.type == "table_open"]
    assert len([token for token in tokens(report) if token.type == "tr_open"]) + len(tables) == len(rows)
    for token in tables:
        assert token.map is not None
        lines = report.splitlines()[slice(*token.map)]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, lines


@given(st.text(st.characters(exclude_characters="`", codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_prose_is_shown_as_it_is(sentence: str) -> None:
    """Escaped text reads as before, whatever Markdown means by it."""
    (paragraph,) = MarkdownIt("gfm-like", {"linkify": False}).parse(f"x{escaped(sentence)}")[1:-1]
    assert all(child.type in ("text", "text_special") for child in paragraph.children or ())
    assert "".join(child.content for child in paragraph.children or ()) == f"x{sentence}"


def test_code_in_a_sentence_stays_code() -> None:
    """Pairs of backticks are code; one without its other is a letter."""
    assert escaped("Write `a_b[0]` for *b*.") == "Write `a_b[0]` for \\*b\\*."
    assert escaped("a ` b_c") == "a \\` b\\_c"
