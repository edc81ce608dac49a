"""The tables of docs/settings.md, docs/pytest.md and docs/exit-codes.md; `python -m tests.pages` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from anymps._command_settings import FACES
from anymps._settings import rows
from anymps.commands import _commands
from anymps.commands._help import exit_codes
from anymps.pytest_plugin._options import OPTIONS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "settings.md"
GATE = DOCS / "pytest.md"
CODES = DOCS / "exit-codes.md"
MORE = {
    "check_numbers": "[Numbers](numbers.md)",
    "check_shaders": "[Checking kernels](metal.md#checking-kernels)",
    "cuda_as_mps": "[CUDA](cuda.md)",
    "default_device": "[what it reaches](ci.md#a-test-suite)",
    "kernels": "[Running programs on them](kernels.md#running-programs-on-them)",
    "reports": "[Formats](settings.md#report-formats)",
}
"""What the table of docs/pytest.md links to, by setting."""
COMMANDS = [face for face in FACES if face != "pytest"]


def markdown(text: str) -> str:
    """Options as code, and signs that Markdown reads as its own escaped, outside of code."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", re.sub(r"[*<>|{]", r"\\\g<0>", part)) for part in parts[::2]
    ]
    return "`".join(parts)


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
            "yes" if row.key else "",
            "yes" if row.notebook else "",
            "yes" if row.enable else "",
        )
        yield f"| {' | '.join(cells)} |"


def variables() -> Iterator[str]:
    """The variables of settings, and what each says."""
    yield "| variable | |"
    yield "| --- | --- |"
    for row in rows():
        if row.variable:
            yield f"| `{row.variable}{'=1' if row.kind in ('flag', 'switch') else ''}` | {row.page} |"


def gate() -> Iterator[str]:
    """The options of `pytest --mps`, with their twins in the configuration file."""
    yield "| command line | configuration file | |"
    yield "| --- | --- | --- |"
    for option in OPTIONS:
        row = option.row
        no = option.flag.replace("--", "--no-", 1)
        words = f"`, `{no}" if row is not None and row.kind == "switch" else ""
        value = "" if option.metavar is None else " " + option.metavar.replace("|", "`, `")
        more = f" ({MORE[row.name]})" if row is not None and row.name in MORE else ""
        lines = ", one per line" if option.kind == "reports" else " = true" if row is None else ""
        off = (
            f"; on unless `{option.flag.replace('--', '--no-', 1)}`" if row is not None and row.default is True else ""
        )
        yield f"| `{option.flag}{words}{value}` | `{option.name}`{lines} | {option.help}{off}{more} |"


def codes() -> Iterator[str]:
    """The exit codes of all commands."""
    yield "| code | meaning |"
    yield "| --- | --- |"
    for code, meaning in exit_codes(click.Context(_commands, info_name="anymps")):
        yield f"| {code} | {markdown(meaning)} |"


def filled(text: str, tables: Mapping[str, Iterable[str]]) -> str:
    """A page with its tables made anew, each between two comments. Raises ValueError where one has no place."""
    for name, lines in tables.items():
        parts = re.split(rf"(?<=<!-- {name} -->\n)(?:.*\n)*?(?=<!-- /{name} -->)", text)
        if len(parts) != 2:
            raise ValueError(f"the page has no comments <!-- {name} --> and <!-- /{name} -->")
        text = ("\n" + "\n".join(lines).rstrip("\n") + "\n\n").join(parts)
    return text


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    return {
        PAGE: filled(PAGE.read_text(encoding="utf-8"), {"shared": shared(), "variables": variables()}),
        GATE: filled(GATE.read_text(encoding="utf-8"), {"options": gate()}),
        CODES: filled(CODES.read_text(encoding="utf-8"), {"codes": codes()}),
    }


def write() -> None:
    """Write the tables into the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
