"""The documentation of a rule as Markdown, made from the rule's own texts: for `anymps explain` and docs/rules."""

from __future__ import annotations

from anymps.findings import Rule


def rule_page(rule: Rule) -> str:
    """Everything that a rule says of itself, as one page."""
    parts = [
        f"# {rule.id}: {rule.title}",
        f"Severity: {rule.severity.word}. {_releases(rule)}",
        "## Why on MPS",
        rule.why,
        "## Fix",
        rule.fix,
        *_example(rule),
        "## Suppress it",
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
    setting = ", ".join([example.mac, *(f"{name}={value}" for name, value in example.variables.items())])
    return [
        "## Example",
        f"This gives the finding ({setting}):",
        _code(example.bad),
        "This does not:",
        _code(example.good),
        "Setup for both:",
        _code(example.setup),
    ]


def _releases(rule: Rule) -> str:
    if rule.where:
        return f"Applies to {rule.where}."
    first, last = (f"{release[0]}.{release[1]}" if release else "" for release in (rule.since, rule.until))
    if first and last:
        return f"Applies to torch {first} to {last}." if first != last else f"Applies to torch {first}."
    if first:
        return f"Applies to torch {first} and later."
    return f"Applies up to torch {last}." if last else "Applies to every supported torch."


def _code(text: str) -> str:
    return f"```python\n{text}```"
