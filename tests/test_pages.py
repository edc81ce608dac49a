"""Pages made from the texts of the program: those of rules, which `anymps explain` shows too, and of commands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pages
from anymps.commands import main
from anymps.findings import RULES, Rule, Severity
from anymps.report import rule_page
from anymps.rules.faults import all_hazards

ROOT = Path(__file__).parents[1]


def test_a_rule_needs_an_example() -> None:
    """A rule without an example is none: it cannot be made."""
    with pytest.raises(TypeError, match="example"):
        Rule(id="MPS999", title="", severity=Severity.INFO, why="", fix="", source="")  # type: ignore[call-arg]


def test_the_pages_are_up_to_date() -> None:
    """docs/rules and docs/commands hold what `python -m tests.pages` writes, and nothing else."""
    for folder, texts in ((pages.FOLDER, pages.pages()), (pages.COMMANDS, pages.command_pages())):
        written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
        assert written == texts, "run `make pages`"
    assert pages.BUGS.read_text(encoding="utf-8") == pages.bugs(), "run `make pages`"


def test_a_known_bugs_page() -> None:
    """It says what goes wrong in which call, in words of its own, shows the call, and lists where the bug is."""
    page = rule_page(RULES["MPS608"])
    assert page.splitlines()[0] == "# MPS608: F.linear with bias: wrong values for single rows"
    assert page.split("\n\n")[3] == (
        "A linear layer can leave its bias out where the second last dimension of its input is 1. A known bug in the "
        "backend. The values may be wrong, without an error."
    )
    assert '\ndevice = "mps"\nx, bias = torch.rand(80, 1, 2, device=device)' in page
    assert "\n| 2.11 to 2.13 | from 26.0 before 27.0 | M1 | 2.14 |\n" in page
    assert "pytorch issue [#188438](https://github.com/pytorch/pytorch/issues/188438); " in page


def test_the_page_of_a_check_of_numbers() -> None:
    """Its example meets a known bug: the page links the bug and its issue, and says which releases have it."""
    page = rule_page(RULES["MPS695"])
    assert "This gives the finding (M3 Pro 18GB, ANYMPS_KERNELS=real, ANYMPS_CHECK_NUMBERS=all):" in page
    assert "\n## Affected releases\n\nThe example is the known bug [MPS639](MPS639.md): torch 2.13.\n" in page
    assert page.endswith("; example: pytorch issue [#190491](https://github.com/pytorch/pytorch/issues/190491).\n")


def test_the_table_of_known_bugs_tells_what_is_not_known() -> None:
    """A release beyond the last report has a question mark if no fix is known."""
    rows = {re.findall(r"MPS\d{3}", row)[0]: row for row in pages.bugs().splitlines() if "](rules/" in row}
    assert "| ● | ● | ● | ○ | ○ | macOS from 26.0 before 27.0, M1 | [#188438](" in rows["MPS608"]
    assert "| ● | ● | ● | ? | ? |  | [#187988](" in rows["MPS610"]
    assert list(rows) == sorted({hazard.id for hazard in all_hazards()})


def test_the_pages_are_written_and_cleared_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Writing takes away the pages of rules and commands that are gone."""
    monkeypatch.setattr(pages, "COMMANDS", tmp_path / "commands")
    folder = tmp_path / "rules"
    monkeypatch.setattr(pages, "BUGS", tmp_path / "known-bugs.md")
    monkeypatch.setattr(pages, "FOLDER", folder)
    pages.main()
    (folder / "MPS000.md").write_text("gone")
    (pages.COMMANDS / "fly.md").write_text("gone")
    pages.main()
    assert sorted(path.name for path in folder.iterdir()) == sorted(pages.pages())
    assert sorted(path.name for path in pages.COMMANDS.iterdir()) == sorted(pages.command_pages())


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.example is not None], ids=lambda rule: rule.id
)
def test_examples_are_short_python(rule: Rule) -> None:
    """The halves of an example differ, can be read by Python, and are a few lines."""
    assert rule.example is not None
    assert rule.example.bad != rule.example.good
    for half in (rule.example.bad, rule.example.good):
        compile(f"{rule.example.setup}{half}", rule.id, "exec")
        assert len(half.splitlines()) <= 8


def test_explain_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """`anymps explain` shows the page without the marks of Markdown; upper and lower case do not matter."""
    assert main(["explain", "mps608"]) == 0
    assert capsys.readouterr().out.partition("Suppress it")[0].splitlines() == [
        "MPS608: F.linear with bias: wrong values for single rows",
        "Severity: warning.",
        "",
        "What happens",
        "",
        "A linear layer can leave its bias out where the second last dimension of its input is 1. A known bug",
        "in the backend. The values may be wrong, without an error.",
        "",
        "Fix",
        "",
        "Flatten the input: F.linear(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1]).",
        "",
        "Example",
        "",
        "",
        " import torch",
        " import torch.nn.functional as F",
        "",
        ' device = "mps"',
        " x, bias = torch.rand(80, 1, 2, device=device), torch.rand(192, device=device)",
        " print(F.linear(x, torch.rand(192, 2, device=device), bias))",
        "",
        "",
        "Affected releases",
        "",
        "",
        " torch         macOS                  GPU  fixed in",
        " ──────────────────────────────────────────────────",
        " 2.11 to 2.13  from 26.0 before 27.0  M1   2.14",
        "",
        "",
    ]


def test_explain_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """There it has bold headings and links."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["explain", "MPS608"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[1mMPS608: F.linear with bias: wrong values for single rows\x1b[0m\n")
    assert ";https://github.com/pytorch/pytorch/issues/188438\x1b\\" in shown
    assert not re.search(r"^#|```|\]\(", shown, re.MULTILINE)


def test_explain_lists_all_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a rule there is one line for each, in the order of the families."""
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    assert "MPS104  error    Distributed operator has no MPS kernel" in lines


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("MPS21", "there is no rule MPS21; the nearest is MPS201 (anymps explain lists them)"),
        ("everything", "there is no rule everything (anymps explain lists them)"),
    ],
)
def test_explain_an_unknown_rule(capsys: pytest.CaptureFixture[str], word: str, text: str) -> None:
    """An unknown rule is one line and 2."""
    assert main(["explain", word]) == 2
    assert capsys.readouterr() == ("", f"anymps: {text}\n")


def test_ids_in_the_documentation_are_rules() -> None:
    """README and the other pages name no rule that does not exist."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert set(re.findall(r"\bMPS\d{3}\b", page.read_text(encoding="utf-8"))) <= set(RULES), page
