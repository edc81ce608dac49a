"""The documentation of a rule as Markdown, made from the rule's own texts: for `anymps explain` and docs/rules."""

from __future__ import annotations

from anymps.findings import Rule


def rule_page(rule: Rule) -> str:
    """Everything that a rule says of itself, as one page."""
    parts = [
        f"# {rule.id}: {rule.title}",
        f"Severity: {rule.severity.label}. {_releases(rule)}",
        "## Why on MPS",
        rule.why,
        "## Fix",
        rule.fix,
        *_example(rule),
        "## Leave it out",
        f"For one line: `# anymps: ignore[{rule.id}] reason` at its end. For a project, in `pyproject.toml`: "
        f'`disable = ["{rule.id}"]` under `[tool.anymps]`.',
        "## Source",
        f"{rule.source}.",
    ]
    return "\n\n".join(parts) + "\n"


def _example(rule: Rule) -> list[str]:
    if rule.example is None:
        return []
    example = rule.example
    setting = f"{example.mac}, PYTORCH_ENABLE_MPS_FALLBACK=1" if example.fallback else example.mac
    return [
        "## Example",
        f"This gives the finding ({setting}):",
        _code(example.bad),
        "This does not:",
        _code(example.good),
        "Before both:",
        _code(example.setup),
    ]


def _releases(rule: Rule) -> str:
    first = "" if rule.since is None else f"from torch {rule.since[0]}.{rule.since[1]}"
    last = "" if rule.until is None else f"to torch {rule.until[0]}.{rule.until[1]}"
    span = " ".join(part for part in (first, last) if part)
    return f"It holds {span}." if span else "It holds for every supported torch."


def _code(text: str) -> str:
    return f"```python\n{text}```"
