"""`python -m tests.pages` writes docs/rules, docs/commands, docs/known-bugs.md, and tables of settings."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

import click

import settings_page
from anymps.commands import _commands
from anymps.commands._help import Command, examples, exit_codes
from anymps.findings import RULES
from anymps.report import rule_page
from anymps.report._rule_page import linked
from anymps.rules import NEWEST
from anymps.rules.faults import FIRST_ASKED, Hazard, all_hazards

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "rules"
COMMANDS = ROOT / "docs" / "commands"
BUGS = ROOT / "docs" / "known-bugs.md"
_WIDTH = 150  # of a line of prose, as in other pages

_HEAD = """\
# Rules

What `anymps run` and `anymps report` look for. `anymps explain MPS201` shows the same page in a terminal.
`python -m tests.pages` writes these pages from the rules in `src/anymps/findings/rules`; the tests run the examples.
[Known bugs by release](../known-bugs.md) lists the bugs of the backend by release of torch.

To suppress a rule, write `# anymps: ignore[MPS201] reason` at the end of the line, or list the rule under
`[tool.anymps]` in `pyproject.toml`: `disable = ["MPS201"]`.
"""

_BUGS = """\
# Known bugs by release

Calls that the MPS backend computes wrong, aborts on, never returns from or rejects, in at least one release of torch
since 2.7. anymps recognises each of them, on Linux and on a Mac, and reports a finding with the fix. It runs with torch
2.11 or newer; bugs of older releases tell what an upgrade changes.

The virtual device computes the correct result on this machine's CPU. With `--kernels real`, PyTorch's own kernels may
compute the wrong values here, too. Where a Mac would abort or hang, the device raises an exception that says so.

● has the bug, ○ does not, ? was not tested or reported. The page of each bug has its fix, an example and its sources.
`python -m tests.pages` writes this page from `src/anymps/rules/faults/faults.toml`.

"""

_SLOW = """
## Slow paths

Calls that the backend computes right, and slower than it could: than the way around, or than a later release. A finding
about one names what it adds to a step on the Mac of the run, and is a warning from 5 % of the step on.

"""

_UNKNOWN = """
## What is not known

- **Reduced precision on M5.** Whether products of float32 matrices are less precise there in torch is unknown: nobody
  has reported it, and the libraries in the macOS wheels of torch 2.13 to 2.15 name no switch for it. MLX computes them
  in about the precision of TF32 on an M5, unless `MLX_ENABLE_TF32=0` is set (ml-explore/mlx issues
  [3534](https://github.com/ml-explore/mlx/issues/3534) and [4411](https://github.com/ml-explore/mlx/issues/4411)).
- **SAM 2 on GitHub's macos-26 runners** gives wrong masks with torch 2.8 to 2.13, and right ones on macos-15
  ([actions/runner-images 14380](https://github.com/actions/runner-images/issues/14380)). The operator is not known.
- **Stable Diffusion XL on a beta of macOS 27** gives broken images with releases before 2.13.0
  ([#187280](https://github.com/pytorch/pytorch/issues/187280)). The operator is not known.
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
    (860, "Slow paths of the backend"),
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


def bugs() -> str:
    """The page of known bugs: a row a bug, a column a release of torch; slow paths in a table of their own."""
    wrong, slow = (_bug_rows([one for one in all_hazards() if one.is_slow == late]) for late in (False, True))
    return f"{_BUGS}{wrong}{_SLOW}{slow}{_UNKNOWN}"


def _bug_rows(known: list[Hazard]) -> str:
    releases = [(FIRST_ASKED[0], minor) for minor in range(FIRST_ASKED[1], NEWEST[1] + 1)]
    names = " | ".join(".".join(map(str, release)) for release in releases)
    slow = " times as long |" if known[0].is_slow else ""
    lines = " :-: |" * len(releases) + (" --- |" if slow else "")
    rows = [f"| {'call' if slow else 'bug'} | {names} |{slow} only on | issue |\n| --- |{lines} --- | --- |\n"]
    for identity in dict.fromkeys(hazard.id for hazard in known):
        found = [hazard for hazard in known if hazard.id == identity]
        first = found[0]
        marks = [_mark({hazard.has(release) for hazard in found}) for release in releases]
        macos = f"macOS {first.on_macos}" if first.macos else ""
        only = ", ".join(part for part in (macos, first.gpus) if part)
        issues = linked(", ".join(f"issue {number}" for number in first.issues)).replace("issue ", "")
        times = f" {first.times.removesuffix(' times')} |" if slow else ""
        rows.append(f"| [{first.title}](rules/{identity}.md) | {' | '.join(marks)} |{times} {only} | {issues} |\n")
    return "".join(rows)


def _mark(has: set[bool | None]) -> str:
    """Of a bug with several rows, one that has it decides, and then one that does not."""
    return "●" if True in has else "○" if False in has else "?"


def _with_paths(page: str) -> str:
    """The page with links to the files of pytorch that its source names."""
    text, head, source = page.rpartition("## Source\n")
    path = r"\b(?:aten|torch|c10)/[\w/.]+\.(?:mm|cpp|h|py)\b"
    return f"{text}{head}" + re.sub(path, r"[\g<0>](https://github.com/pytorch/pytorch/blob/v2.13.0/\g<0>)", source)


def pages() -> dict[str, str]:
    """The text of every page of docs/rules by its file's name."""
    return {"README.md": _index()} | {f"{rule.id}.md": _with_paths(rule_page(rule)) for rule in RULES.values()}


def command_pages() -> dict[str, str]:
    """The text of every page of docs/commands by its file's name, made from the command's help."""
    top = click.Context(_commands, info_name="anymps")
    commands = {name: _commands.get_command(top, name) for name in _commands.list_commands(top)}
    return {f"{name}.md": "\n".join(_page(command, name, top, "#")) for name, command in commands.items() if command}


def _page(command: click.Command, name: str, above: click.Context, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=above)
    yield f"{level} anymps {context.command_path.partition(' ')[2]}\n"
    for part in (command.help or "").split("\n\n"):
        prose = settings_page.markdown(" ".join(part.split()))
        yield textwrap.fill(prose, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield "```console\n{}\n```\n".format("\n".join(examples(context)))
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _page(inner, part, context, f"{level}#")
    if isinstance(command, Command):
        for title, records in command.grouped(context).items():
            rows = [_option(record) for record in records if not record[0].endswith("--help")]
            yield from (f"{level}# {title}\n", "| option | |", "| --- | --- |", *rows, "") if rows else ()
    if level == "#":
        yield "## Exit codes\n"
        codes = (f"| {code} | {settings_page.markdown(meaning)} |" for code, meaning in exit_codes(context))
        yield from ("| code | |", "| --- | --- |", *codes, "")


def _option(record: tuple[str, str]) -> str:
    names, _, rest = record[1].partition("  [")
    default = re.match(r"default: ([^;\]]+)", rest)
    more = f" Default: {default[1]}." if default else " Required." if "required" in rest else ""
    return f"| `{record[0].replace('|', chr(92) + '|')}` | {settings_page.markdown(names)}{more} |"


def main() -> int:
    """Write all pages, and take away those of rules and commands that are gone."""
    settings_page.write()
    BUGS.write_text(bugs(), encoding="utf-8")
    for folder, texts in ((FOLDER, pages()), (COMMANDS, command_pages())):
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.md"):
            if path.name not in texts:
                path.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
