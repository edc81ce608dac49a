"""MPS851 to MPS859: what the checker of Metal kernels found (`--check-shaders`); the rules are in `shaders.toml`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from anymps._tables import read_table
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Recording

_INDUCTOR: Final = "generated_kernel"
"""How the names of the kernels begin that `torch.compile` writes (torch/_inductor/codegen/mps.py)."""
_OF_INDUCTOR: Final = {
    "race": Severity.WARNING,  # running statistics of a batch norm, which all threads update in place
    "lane": Severity.INFO,  # sums of c10/metal over groups that are no multiple of 32
}
_NOT_YOURS: Final = "`torch.compile` generated this kernel: there is nothing to fix in your code."


def _example(bad: str, good: str, arguments: str = "", dtype: str = "") -> Example:
    """A kernel `f` that is launched once; the two halves differ in its source."""
    made = f"torch.ones(64, {f'dtype=torch.{dtype}, ' if dtype else ''}device=device)"
    halves = [
        f'library = torch.mps.compile_shader("""\n{source}\n""")\n'
        f"library.f({made}{arguments}, threads=64, group_size=64)"
        for source in (bad, good)
    ]
    return Example(bad=halves[0], good=halves[1], check_shaders=True)


def _rule(row: dict[str, Any]) -> Rule:
    example = _example(**{name: row[name] for name in ("bad", "good", "arguments", "dtype") if name in row})
    return Rule(**{name: row[name] for name in ("id", "title", "why", "fix", "source")}, example=example)


_ROWS: Final = read_table(__file__, "shaders.toml")["rule"]
RULES: Final = tuple(map(_rule, _ROWS))
_KINDS: Final = {
    kind: (rule, Severity[severity.upper()])
    for rule, row in zip(RULES, _ROWS, strict=True)
    for kind, severity in row["kinds"].items()
}


def find(recording: Recording) -> Iterator[Finding]:
    """One for each kernel, line of it, kind, and line that launched it.

    Kernels of Inductor store results of a reduction from every thread: that they all write the same is left out there.
    """
    for noted in recording.noted("shader"):
        kind = str(noted.facts.get("kind"))
        by_inductor = str(noted.facts.get("kernel")).startswith(_INDUCTOR)
        if kind not in _KINDS or (by_inductor and kind == "same_value"):
            continue
        rule, severity = _KINDS[kind]
        yield rule.finding(
            noted.occurrence.site,
            what=str(noted.facts.get("what")),
            count=noted.occurrence.count,
            severity=_OF_INDUCTOR.get(kind, severity) if by_inductor else severity,
            fix=_NOT_YOURS if by_inductor else "",
        )
