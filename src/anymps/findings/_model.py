"""What a finding is, and what a rule is: data that carries its own documentation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from anymps._errors import UnsupportedTorchError
from anymps.findings._example import Example
from anymps.record import Site
from anymps.rules import parse_torch_version


class Severity(IntEnum):
    """How much a finding matters; the most severe sorts first."""

    ERROR = 0
    """A Mac raises here, or computes something else, or dies."""
    WARNING = 1
    """A Mac runs this, slower than it need be, or not reliably."""
    INFO = 2
    """Worth knowing."""

    @property
    def label(self) -> str:
        """`error`, `warning` or `info`."""
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """One thing worth changing, at one place.

    `count` is over the recorded run, `per_step` the count in a typical step, and the mean where half of the steps have
    none. `cost_ns` is the lowest and highest estimate, in ns, of what `count` costs on a Mac, (0, 0) if it stops the
    run instead. `what` happened, `why` it matters on MPS, `fix` is the smallest one, `source` backs the rule.
    `related_sites` are other lines, such as the one that made the tensor; `related_as` says what they are, before a
    place: `made at`. An unknown `site` has no file. `processes` are those in which it was seen, by name, where the
    recording is joined of several and these are not all in which anything ran.
    """

    id: str
    severity: Severity
    title: str
    site: Site
    count: int
    per_step: float
    cost_ns: tuple[int, int]
    what: str
    why: str
    fix: str
    source: str
    related_sites: tuple[Site, ...] = ()
    related_as: str = "made at"
    processes: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts findings: the most severe first, of these the ones with a known place, the costliest, then by place."""
        place = (self.site.file, self.site.line)
        return (self.severity, not self.site.known, -self.cost_ns[1], self.id, *place, self.what)

    @property
    def cost_per_step_ns(self) -> tuple[int, int]:
        """The part of `cost_ns` that falls on one complete step."""
        low, high = self.cost_ns
        share = self.per_step / self.count if self.count else 0.0
        return round(low * share), round(high * share)


@dataclass(frozen=True)
class Rule:
    """One rule, with its documentation. It holds from torch release `since` to `until`, both included.

    `fix` is the general advice; a finding says it in terms of its own line where it can. `example` is run by the
    tests; a known fault of the backend has none, as it takes a certain torch, macOS and chip, but a test of its own.
    `where` names those, and the device knows whether they are at hand.
    `refusal`: its errors are calls that raised. `stops`: it stops a script on a Mac, though nothing raises here.
    `needs_steps`: it is applied only where a recording holds enough complete training steps.
    """

    id: str
    title: str
    severity: Severity
    why: str
    fix: str
    source: str
    example: Example | None
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None
    where: str = ""
    related_as: str = "made at"
    refusal: bool = False
    stops: bool = False
    needs_steps: bool = False

    def applies(self, torch_version: str | None) -> bool:
        """Whether the rule holds for a torch version; every rule does for an unknown one."""
        try:
            release = parse_torch_version(torch_version or "").release
        except UnsupportedTorchError:
            return True
        return (self.since or release) <= release <= (self.until or release)

    def finding(
        self,
        site: Site,
        *,
        what: str,
        count: int,
        per_step: float = 0.0,
        cost_ns: tuple[float, float] = (0, 0),
        fix: str = "",
        source: str = "",
        related_sites: Iterable[Site] = (),
        related_as: str = "",
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule; what is given replaces the rule's own where the place allows a better word."""
        return Finding(
            id=self.id,
            severity=self.severity if severity is None else severity,
            title=self.title,
            site=site,
            count=count,
            per_step=per_step,
            cost_ns=(round(cost_ns[0]), round(cost_ns[1])),
            what=what,
            why=self.why,
            fix=fix or self.fix,
            source=source or self.source,
            related_sites=tuple(related for related in related_sites if related.known),
            related_as=related_as or self.related_as,
        )
