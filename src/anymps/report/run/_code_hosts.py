"""The findings for code hosts: as SARIF 2.1.0 (docs.oasis-open.org/sarif), and as annotations of a GitHub workflow."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from anymps._text import workflow_command
from anymps._version import __version__
from anymps.findings import RULES, Finding, Rule, Severity, Story
from anymps.record import Site
from anymps.report._objects import fingerprints
from anymps.report._text import clean, duration_range, place
from anymps.report._words import expected, limits, news, seen_in, verdict

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT: Final = "%SRCROOT%"
_FINGERPRINT: Final = "anymps/v1"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif_pieces(story: Story, findings: Sequence[Finding], told_from: str | None) -> Iterator[str]:
    """One run: its findings, and their rules. Paths are `told_from` a directory, by default that of the run."""
    # Plain ASCII, because a source line may hold any character at all.
    log = _log(story, findings, told_from or story.run.directory)
    yield from json.JSONEncoder(indent=2, allow_nan=False).iterencode(log)
    yield "\n"


def _log(story: Story, findings: Sequence[Finding], root: str) -> dict[str, Any]:
    rules = [RULES[identity] for identity in sorted({finding.id for finding in findings})]
    places = {rule.id: number for number, rule in enumerate(rules)}
    marks = fingerprints(findings, story.run.directory)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "anymps",
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "invocations": [_invocation(story, findings)],
        "results": [
            _result(finding, mark, places[finding.id], root, expected(finding, story.run.suite))
            for finding, mark in zip(findings, marks, strict=True)
        ],
        "columnKind": "unicodeCodePoints",
    }
    if root:
        run["originalUriBaseIds"] = {_ROOT: {"uri": f"{file_uri(root).rstrip('/')}/"}}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    sources = f"Source: {rule.source}"
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {
            "text": f"{rule.why}\n\nFix: {rule.fix}\n\n{sources}",
            "markdown": f"{rule.why}\n\n**Fix:** {rule.fix}\n\n{sources}",
        },
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["pytorch", "mps"]},
    }


def _invocation(story: Story, findings: Sequence[Finding]) -> dict[str, Any]:
    sentences = [*verdict(story, findings), *limits(story)]
    return {
        "executionSuccessful": story.complete,
        "toolExecutionNotifications": [{"level": "note", "message": {"text": text}} for text in sentences],
    }


def _result(finding: Finding, fingerprint: str, rule: int, root: str, expected: str) -> dict[str, Any]:
    """One result. What is expected is suppressed, and a note: GitHub shows what is suppressed, too."""
    cost = ""
    if finding.cost_per_step_ns[1]:
        cost = f" It costs about {duration_range(*finding.cost_per_step_ns)} a step on a Mac."
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": _LEVELS[Severity.INFO if expected else finding.severity],
        "message": {"text": _plain(f"{finding.what}{cost} Fix: {finding.fix}")},
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        "occurrenceCount": max(finding.count, 1),
    }
    if finding.processes:
        result["properties"] = {"processes": [clean(name) for name in finding.processes]}
    if expected:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": _plain(expected)}]
    if finding.site.known:
        result["locations"] = [_location(finding.site, root)]
    related = [site for site in finding.related_sites if site.known]
    if related:
        what = finding.related_as.removesuffix(" at")
        result["relatedLocations"] = [
            {
                "id": number,
                "message": {"text": f"{what} here"},
                **_location(site, root),
            }
            for number, site in enumerate(related, start=1)
        ]
    return result


def _plain(message: str) -> str:
    """A message in which nothing reads as a link (SARIF 2.1.0, 3.11.6: `[text](target)`)."""
    return clean(message).replace("](", "] (")


def _artifact(site: Site, root: str) -> dict[str, Any]:
    file = below(site.file, root)
    return {"uri": file_uri(site.file)} if file is None else {"uri": uri(file), "uriBaseId": _ROOT}


def _location(site: Site, root: str) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(site.line, 1)}
    if site.source:
        region["snippet"] = {"text": clean(site.source.strip())}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(site, root), "region": region}}
    if site.function and site.function != "<module>":
        location["logicalLocations"] = [{"name": clean(site.function), "kind": "function"}]
    return location


def below(file: str, root: str) -> str | None:
    """The file's path below `root`; None if it lies elsewhere.

    Paths are compared as they are written, with `..` taken out; no file is asked for.
    """
    whole = _pure(file)
    if not root or not whole.is_absolute():
        # A path that is not absolute is one from the directory of the run.
        return None if whole.is_absolute() or ".." in whole.parts else str(whole)
    above = _pure(root)
    return str(whole.relative_to(above)) if whole.is_relative_to(above) else None


def uri(path: str) -> str:
    """A path below a root as a relative URI."""
    return quote(path.encode("utf-8", "surrogateescape"), safe="/~")


def file_uri(path: str) -> str:
    """An absolute path as a `file:` URI; of a relative one, which leads to no certain place, the name alone."""
    whole = _pure(path)
    if not whole.is_absolute():
        return uri(whole.name if ".." in whole.parts else str(whole))
    return whole.as_uri()


def _pure(path: str) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(path))


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github_pieces(story: Story, findings: Sequence[Finding], checkout: str | None) -> Iterator[str]:
    """The verdict, then one command a finding, the most severe first; none for what tests expect.

    GitHub shows ten of a kind for a step. `checkout` is by default the directory of the run.
    """
    yield workflow_command("notice", {"title": "anymps"}, " ".join(verdict(story, findings))) + "\n"
    root = checkout or story.run.directory
    for finding in news(findings, story.run.suite):
        properties = {}
        file = below(finding.site.file, root) if finding.site.known else None
        if file is not None:
            properties = {"file": file, "line": str(finding.site.line)}
        properties["title"] = f"{finding.id} {finding.title}"
        where = "" if file is not None else f"{place(finding.site, story.run.directory)}: "
        message = f"{where}{_message(finding, seen_in(finding, story.processes))}"
        yield workflow_command(_COMMANDS[finding.severity], properties, message) + "\n"


def _message(finding: Finding, seen: str) -> str:
    low, high = finding.cost_per_step_ns
    cost = f"Cost: about {duration_range(low, high)} a step on a Mac.\n" if high else ""
    cost += f"Seen in {seen}.\n" if seen else ""
    return f"{clean(finding.what)}\n{cost}Why: {clean(finding.why)}\nFix: {clean(finding.fix)}"
