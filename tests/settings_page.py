"""The tables of docs/settings.md, made from the rows of `anymps._settings`; `python -m tests.pages` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from anymps._settings import FACES, Row, rows, rows_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
COMMANDS = [face for face in FACES if face != "pytest"]


def shared() -> Iterator[str]:
    """What several faces take: a row a setting, a column a face."""
    yield "| setting | option of | `pytest` | variable | key | `%%mps` | `enable` |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows():
        cells = (
            f"`{row.flag}`",
            ", ".join(f"`{command}`" for command in COMMANDS if command in row.commands),
            f"`{row.pytest_flag}`" if row.pytest else "",
            f"`{row.variable}`" if row.variable else "",
            f"`{row.key}`" if row.key else "",
            "yes" if row.notebook else "",
            f"`{row.name}`" if row.enable else "",
        )
        yield f"| {' | '.join(cells)} |"


def variables() -> Iterator[str]:
    """The variables of settings, and what each says."""
    yield "| variable | |"
    yield "| --- | --- |"
    for row in rows():
        if row.variable:
            yield f"| `{row.variable}{'=1' if row.kind in ('flag', 'switch') else ''}` | {row.page} |"


def options() -> Iterator[str]:
    """All options of each command, as its `--help` has them."""
    for command in COMMANDS:
        yield f"### `anymps {command}`"
        yield ""
        yield "| option | |"
        yield "| --- | --- |"
        for row in rows_of(command):
            if not row.hidden:
                default = f" Default: {row.default:g}." if row.shows_default else ""
                help_text = row.helps.get(command, row.help).replace("{", "\\{").replace("|", "\\|")
                yield f"| `{_option(row)}` | {help_text.partition('  [')[0]}{default} |"
        yield ""


def _option(row: Row) -> str:
    """`--mac MAC`, `--fallback`, `--no-fallback`, `--substrate host, cuda`."""
    value = row.metavar or {"word": ", ".join(row.words), "file": "FILE", "integer": "N", "number": "N"}.get(row.kind)
    start = f"{row.flag}, {row.short}" if row.short else row.flag
    start += f"`, `{row.flag.replace('--', '--no-', 1)}" if row.kind == "switch" else ""
    return f"{start} {value}" if value else start


def page(text: str) -> str:
    """The page with its tables made anew. Raises ValueError where one has no place."""
    for name, lines in (("shared", shared()), ("variables", variables()), ("options", options())):
        parts = re.split(rf"(?<=<!-- {name} -->\n)(?:.*\n)*?(?=<!-- /{name} -->)", text)
        if len(parts) != 2:
            raise ValueError(f"docs/settings.md has no comments <!-- {name} --> and <!-- /{name} -->")
        text = ("\n" + "\n".join(lines).rstrip("\n") + "\n\n").join(parts)
    return text


def write() -> None:
    """Write the tables into the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
