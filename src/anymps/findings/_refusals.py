"""Refusals grouped by line: the basis of all findings about errors, most of which quote torch's message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from anymps.findings._model import Finding, Rule
from anymps.record import Recording, Refusal, RefusalKind


@dataclass(frozen=True)
class Refused(Refusal):
    """The same refusal at one line, `count` times in the run. `origin` is the line that made the culprit, if known."""

    count: int

    @property
    def name(self) -> str:
        """The culprit's name in the script, in backquotes; `a tensor` if it has none."""
        name = self.detail.get("name")
        return f"`{name}`" if isinstance(name, str) and name else "a tensor"

    @property
    def expression(self) -> str:
        """The expression that made the culprit, or the empty text."""
        expression = self.detail.get("expression")
        return expression.strip() if isinstance(expression, str) else ""

    @property
    def caller(self) -> str:
        """`train.py:12`, where the line is an installed package's and the user's call is known; else empty."""
        return str(self.detail.get("caller") or "")

    @property
    def called(self) -> str:
        """` (called from train.py:12)`, or the empty text."""
        return f" (called from {self.caller})" if self.caller else ""

    @property
    def raised(self) -> str:
        """What torch said, word for word, and from where an installed package was called."""
        return f"`{self.operator}` raised {self.error}: {self.message}{self.called}"

    def finding(self, rule: Rule, **said: Any) -> Finding:
        """One of a rule at this line: what torch said, and the line that made the culprit, unless told otherwise."""
        given = {"what": self.raised, "related_sites": [self.origin], **said}
        return replace(rule.finding(self.site, count=self.count, **given), caller=self.caller)


def refused_as(recording: Recording, *kinds: RefusalKind) -> list[Refused]:
    """The refusals of these kinds, in the order of the run, one for each operator, line and origin."""
    groups: dict[tuple[object, ...], list[Refusal]] = {}
    for refusal in recording.refusals():
        if refusal.kind in kinds:
            place = (*refusal.site.file_line, *refusal.origin.file_line)
            groups.setdefault((refusal.kind, refusal.operator, place), []).append(refusal)
    return [Refused(**vars(group[0]), count=len(group)) for group in groups.values()]


def told_as_raised(recording: Recording, kind: RefusalKind, rule: Rule, fix: str = "") -> Iterator[Finding]:
    """The findings of a rule that has nothing to add to torch's own error."""
    for refused in refused_as(recording, kind):
        yield refused.finding(rule, fix=fix)
