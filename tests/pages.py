"""`python -m tests.pages` writes what is generated: docs/rules, a drawing, tables of docs/settings.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

import packages_drawing
import settings_page
from anymps.findings import RULES
from anymps.report import rule_page

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "rules"

_HEAD = """\
# Rules

What `anymps run` and `anymps report` look for. `anymps explain MPS201` shows the same page in a terminal.
`python -m tests.pages` writes these pages from the rules in `src/anymps/findings/rules`; the tests run every example.
"""

_GROUPS = (
    (0, "Whether the run says anything about a Mac"),
    (100, "Operators"),
    (200, "Waits for the GPU"),
    (300, "Dtypes and precision"),
    (400, "Devices and copies"),
    (500, "Memory"),
    (600, "Known bugs of the backend"),
    (700, "Races with non_blocking copies"),
    (800, "Data loading and processes"),
    (810, "Optimizers and autocast"),
    (830, "torch.compile"),
    (850, "Metal kernels"),
    (900, "Timing"),
)
"""By the first number of each group."""


def _index() -> str:
    """The list of all rules, a table a group."""
    parts = [_HEAD]
    ends = [first for first, _ in _GROUPS[1:]] + [1000]
    for (first, title), end in zip(_GROUPS, ends, strict=True):
        rules = [rule for rule in RULES.values() if first <= int(rule.id.removeprefix("MPS")) < end]
        parts.append(f"\n## {title}\n\n| rule | severity | title |\n| --- | --- | --- |\n")
        parts += [f"| [{rule.id}]({rule.id}.md) | {rule.severity.word} | {rule.title} |\n" for rule in rules]
    return "".join(parts)


def pages() -> dict[str, str]:
    """The text of every page by its file's name."""
    return {"README.md": _index()} | {f"{rule.id}.md": rule_page(rule) for rule in RULES.values()}


def main() -> int:
    """Write all pages, and take away those of rules that are gone."""
    packages_drawing.write()
    settings_page.write()
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
