"""Pages made from the texts of the program: those of rules, which `anymps explain` shows too, and of commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import command_pages
import pages
from anymps.commands import main
from anymps.findings import RULES, Example, Rule, Severity
from anymps.report import rule_page
from anymps.rules.faults import all_hazards

ROOT = Path(__file__).parents[1]

RULE = Rule(
    id="MPS999",
    title="Something",
    severity=Severity.WARNING,
    why="Because.",
    fix="Do this.",
    source="aten/src/ATen/mps/X.mm, torch 2.13; pytorch issues #82707, #82708; kornia/kornia issue 42",
    example=Example(
        bad="""
            for x in batches:
                train(x)
        """,
        good="x = torch.ones(3)",
        fallback=True,
    ),
    since=(2, 12),
    until=(2, 14),
)
PAGE = """\
# MPS999: Something

Severity: warning. Applies to torch 2.12 to 2.14.

## What happens

Because.

## Fix

Do this.

## Example

This gives the finding (M3 Pro 18GB, PYTORCH_ENABLE_MPS_FALLBACK=1):

```python
for x in batches:
    train(x)
```

This does not:

```python
x = torch.ones(3)
```

Setup for both:

```python
import torch

device = "mps"
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.rand(8, 4) for _ in range(5)]


def train(x):
    loss = model(x.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
```

## Suppress it

Write `# anymps: ignore[MPS999] reason` at the end of the line, or `disable = ["MPS999"]` under \
`[tool.anymps]` in `pyproject.toml`.

## Source

aten/src/ATen/mps/X.mm, torch 2.13; pytorch issues [#82707](https://github.com/pytorch/pytorch/issues/82707), \
[#82708](https://github.com/pytorch/pytorch/issues/82708); kornia/kornia issue [#42](https://github.com/kornia/kornia/issues/42).
"""


def test_a_rules_page() -> None:
    """A page holds all that the rule says, and the lines that its example needs before it."""
    assert rule_page(RULE) == PAGE
    assert Example(bad="x = torch.ones(3)", good="").setup == 'import torch\n\ndevice = "mps"\n'


def test_a_rule_needs_an_example() -> None:
    """A rule without an example is none: it cannot be made."""
    with pytest.raises(TypeError, match="example"):
        Rule(id="MPS999", title="", severity=Severity.INFO, why="", fix="", source="")  # type: ignore[call-arg]


def test_the_pages_are_up_to_date() -> None:
    """docs/rules and docs/commands hold what `python -m tests.pages` writes, and nothing else."""
    for folder, texts in ((pages.FOLDER, pages.pages()), (pages.COMMANDS, command_pages.pages())):
        written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
        assert written == texts, "run `make pages`"
    assert pages.BUGS.read_text(encoding="utf-8") == pages.bugs(), "run `make pages`"


def test_a_commands_page() -> None:
    """It has the help's sentences, usage, examples, options in their groups, and the command's own exit codes."""
    texts = command_pages.pages()
    parts = texts["join.md"].split("\n\n")
    assert parts[1] == "Combine recordings into one: shards of a suite, ranks of a training, or several runs."
    assert parts[3:5] == [
        "```text\nanymps join [OPTIONS] FILES...\n```",
        "```console\nanymps join -o all.anymps rank0.anymps rank1.anymps  # two ranks of a training\n```",
    ]
    assert parts[6].endswith("\n| `-o, --output FILE` | The combined recording to write. Required. |")
    assert re.findall(r"^\| (\d+) \|", parts[-1], re.MULTILINE) == ["0", "2", "70", "130"]
    assert "| `--batch N` | The batch size, also for \\{batch} in the script's arguments. |" in texts["plan.md"]
    assert "| `--seconds SECONDS` | Time limit of one measurement, in seconds. Default: 300. |" in texts["plan.md"]
    headings = re.findall("^## (.*)", texts["plan.md"], re.MULTILINE)
    assert headings == ["Options", "Mac", "Report", "Advanced", "Exit codes"]
    assert "\n## anymps kernels add\n" in texts["kernels.md"]


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
    assert sorted(path.name for path in pages.COMMANDS.iterdir()) == sorted(command_pages.pages())


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
    """`anymps explain` shows the page; upper and lower case do not matter."""
    assert main(["explain", "mps201"]) == 0
    assert capsys.readouterr() == (rule_page(RULES["MPS201"]), "")


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
