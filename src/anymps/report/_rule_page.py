"""The documentation of a rule as Markdown, made from the rule's own texts: for `anymps explain` and docs/rules."""

from __future__ import annotations

import re
from typing import Final

from anymps.findings import Rule
from anymps.rules.faults import Hazard, all_hazards, sources_of

_NAMED: Final = re.compile(
    r"(?:(?P<repository>[\w.-]+/[\w.-]+) )?(?:issue|PR|pull request|pull)s? #?\d+(?:(?:,| and) #?\d{4,})*"
)

_WHERE_NUMBERS_DIFFER: Final = (
    "Applies to runs that something other than this machine's CPU computes: on a Mac, with --kernels real or "
    "--substrate cuda."
)


def rule_page(rule: Rule) -> str:
    """Everything that a rule says of itself, as one page."""
    known = [hazard for hazard in all_hazards() if hazard.id == rule.id]
    parts = [
        f"# {rule.id}: {rule.title}",
        f"Severity: {rule.severity.word}{_of_a_price(known) if known else f'. {_releases(rule)}'}",
        "## What happens",
        rule.why,
        "## Fix",
        rule.fix,
        *(_fault_example(known[0]) if known else _example(rule)),
        *(["## Affected releases", _affected(known)] if known else []),
        "## Suppress it",
        f'Write `# anymps: ignore[{rule.id}] reason` at the end of the line, or `disable = ["{rule.id}"]` under '
        "`[tool.anymps]` in `pyproject.toml`.",
        "## Source",
        f"{linked('; '.join(sources_of(known)) if known else rule.source)}.",
    ]
    return "\n\n".join(parts) + "\n"


def linked(source: str) -> str:
    """A rule's source with links to the issues and pull requests that it names."""

    def to_github(found: re.Match[str]) -> str:
        issues = f"https://github.com/{found['repository'] or 'pytorch/pytorch'}/issues"
        return re.sub(r"(?<= )#?(\d+)", rf"[#\1]({issues}/\1)", found[0])

    return _NAMED.sub(to_github, source)


def _example(rule: Rule) -> list[str]:
    if rule.example is None:
        return []
    example = rule.example
    setting = ", ".join([example.mac, *(f"{name}={value}" for name, value in example.variables.items())])
    return [
        "## Example",
        f"This gives the finding ({setting}):",
        _code(example.bad),
        "This does not:",
        _code(example.good),
        "Setup for both:",
        _code(example.setup),
        *(["## Affected releases", f"{example.releases}."] if example.releases else []),
    ]


def _of_a_price(known: list[Hazard]) -> str:
    """What else decides how severe a known bug is, to end the sentence."""
    return "; a warning where it adds 5 % or more to the predicted step." if known[0].is_slow else "."


def _fault_example(hazard: Hazard) -> list[str]:
    functional = "import torch.nn.functional as F\n" if "F." in hazard.example else ""
    return ["## Example", _code(f'import torch\n{functional}\ndevice = "mps"\n{hazard.example}\n')]


def _affected(known: list[Hazard]) -> str:
    """The releases of torch and macOS and the GPUs with the bug, as a table."""
    rows = [
        f"| {hazard.releases}{f' (`{hazard.operators[0]}`)' if len(known) > 1 else ''} | {hazard.on_macos or 'all'} "
        f"| {hazard.gpus or 'all'} | {hazard.fixed_in or '-'} |"
        for hazard in known
    ]
    return "\n".join(["| torch | macOS | GPU | fixed in |", "| --- | --- | --- | --- |", *rows])


def _releases(rule: Rule) -> str:
    if rule.example is not None and rule.example.numbers:
        return _WHERE_NUMBERS_DIFFER
    first, last = (f"{release[0]}.{release[1]}" if release else "" for release in (rule.since, rule.until))
    if first and last:
        return f"Applies to torch {first} to {last}." if first != last else f"Applies to torch {first}."
    if first:
        return f"Applies to torch {first} and later."
    return f"Applies up to torch {last}." if last else "Applies to every supported torch."


def _code(text: str) -> str:
    return f"```python\n{text}```"
