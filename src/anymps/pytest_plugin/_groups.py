"""The facts of all tests put together: one group for each operator and line, with the tests that met it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from anymps._text import first_line
from anymps.pytest_plugin._facts import Facts, files_of_tests, is_own_reading
from anymps.record import Fate, Refusal, RefusalKind, Site, Wait

MANY_WAITS = 10
"""Waits at one line of one test that are worth a line: fewer are a test that looks at its results."""


@dataclass
class Group:
    """Calls of one kind at one line. `unexpected` if one of them was in a test that failed unexpectedly or was
    interrupted."""

    what: str
    site: Site
    count: int = 0
    tests: set[str] = field(default_factory=set)
    unexpected: bool = False
    refusal: Refusal | None = None
    exception: dict[str, Any] = field(default_factory=dict)
    """What a recording keeps of an exception that no refusal of MPS has raised."""

    def add(self, facts: Facts, count: int) -> None:
        """One more test."""
        self.count += count
        self.tests.add(facts.test)
        self.unexpected |= not facts.ended_well and not facts.expected

    def join(self, other: Group) -> None:
        """The same in other tests."""
        self.count += other.count
        self.tests |= other.tests
        self.unexpected |= other.unexpected

    @property
    def expected(self) -> bool:
        """Whether all of it was in tests that fail as they should."""
        fails = self.refusal is not None or bool(self.exception)
        return fails and not self.unexpected and "" not in self.tests

    @property
    def message(self) -> str:
        """What the error says; empty where nothing raised, and for an operator without a kernel: its name is enough."""
        if self.refusal is None:
            return str(self.exception.get("message", ""))
        return "" if self.refusal.kind is RefusalKind.MISSING else self.refusal.message

    def head(self) -> str:
        """The operator, the wait, or the error with its first line."""
        return f"{self.what}: {first_line(self.message)}" if self.message else self.what

    @cached_property
    def fix(self) -> str:
        """The smallest fix that `anymps.findings` knows, the empty text for none."""
        from anymps.findings import RULES, find  # only where there is something to say: it takes its time to load
        from anymps.record import RecordingBuilder

        builder = RecordingBuilder(meta={"ending": self.exception})
        site = builder.site(self.site.file, self.site.line, source=self.site.source)
        refusal = self.refusal
        if self.exception:
            builder.note("cuda", start_ns=0, site=site)  # the line that a script's recording knows as asking for CUDA
        elif refusal is None:
            builder.entry(self.what, start_ns=0, fate=Fate.FALLBACK, wait=Wait.FALLBACK, site=site)
        else:
            origin = refusal.origin
            made = builder.site(origin.file, origin.line, origin.function, source=origin.source)
            builder.refusal(
                refusal.kind, refusal.error, refusal.message,
                operator=refusal.operator, start_ns=0, site=site, origin=made, detail=refusal.detail,
            )  # fmt: skip
        recording = builder.close()
        if self.exception and not any(rule.explains(recording) for rule in RULES.values() if rule.explains):
            return ""  # most exceptions are no business of MPS
        findings = find(recording)
        return findings[0].fix if findings else ""


@dataclass
class Groups:
    """Everything that is worth showing, the most important first."""

    missing: list[Group]
    refused: list[Group]
    raised: list[Group]
    """Exceptions that no refusal has raised: some have a fix."""
    fallbacks: list[Group]
    waits: list[Group]
    caught: int
    """Refusals in tests that did not fail: they were asked for, or caught."""


def group(all_facts: Iterable[Facts], root: str) -> Groups:
    """Put together what the tests, and what lies outside of them, did; without what test modules read themselves."""
    all_facts = list(all_facts)
    files = files_of_tests(all_facts, root)
    missing: dict[object, Group] = {}
    refused: dict[object, Group] = {}
    raised: dict[object, Group] = {}
    fallbacks: dict[object, Group] = {}
    waits: dict[object, Group] = {}
    caught = 0
    for facts in all_facts:
        for refusal in facts.refusals:
            if facts.test and facts.ended_well:
                caught += 1
                continue
            is_missing = refusal.kind is RefusalKind.MISSING
            what = refusal.operator if is_missing else refusal.error
            call = (refusal.site.file, refusal.site.line, refusal.operator, refusal.kind)
            found = (missing if is_missing else refused).setdefault(call, Group(what, refusal.site, refusal=refusal))
            found.add(facts, 1)
        name = facts.exception.get("exception", "")
        if "place" in facts.exception and name not in {refusal.error for refusal in facts.refusals}:
            entry = Group(name, Site(**facts.exception["place"]), exception=facts.exception)
            raised.setdefault((entry.head(), entry.site.file, entry.site.line), entry).add(facts, 1)
        for (operator, _, site), count in facts.fallbacks.items():
            fallbacks.setdefault((operator, site.file, site.line), Group(operator, site)).add(facts, count)
        for (_, wait, site), count in facts.waits.items():
            if wait is not Wait.FALLBACK and facts.test and not is_own_reading(site, files):
                waits.setdefault((facts.test, wait, site.file, site.line), Group(wait.label, site)).add(facts, count)
    many: dict[object, Group] = {}
    for entry in waits.values():
        if entry.count >= MANY_WAITS:
            place = (entry.what, entry.site.file, entry.site.line)
            many.setdefault(place, Group(entry.what, entry.site)).join(entry)
    return Groups(
        _sorted(missing.values()),
        _sorted(refused.values()),
        _sorted(raised.values()),
        _sorted(fallbacks.values()),
        _sorted(many.values()),
        caught,
    )


def _sorted(groups: Iterable[Group]) -> list[Group]:
    return sorted(
        groups, key=lambda entry: (not entry.unexpected, -entry.count, entry.what, entry.site.file, entry.site.line)
    )
