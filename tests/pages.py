"""`python -m tests.pages` writes docs/rules: one page a rule and an index, from the rules' own texts."""

from __future__ import annotations

import sys
from pathlib import Path

from anymps.findings import RULES
from anymps.report import rule_page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "rules"

_HEAD = """\
# Rules

What `anymps run` and `anymps report` look for. `anymps explain MPS201` shows the same page in a terminal.
These pages are written by `python -m tests.pages` from the rules in `src/anymps/findings`; the tests run every example.

| rule | severity | title |
| --- | --- | --- |
"""


def pages() -> dict[str, str]:
    """The text of every page by its file's name."""
    rows = [f"| [{rule.id}]({rule.id}.md) | {rule.severity.label} | {rule.title} |\n" for rule in RULES.values()]
    return {"README.md": _HEAD + "".join(rows)} | {f"{rule.id}.md": rule_page(rule) for rule in RULES.values()}


def main() -> int:
    """Write all pages, and take away those of rules that are gone."""
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
