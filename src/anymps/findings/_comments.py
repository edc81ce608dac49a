"""Findings that a comment suppresses: `# anymps: ignore[MPS201] reason` in the finding's line or statement.

The line's text and such comments in the other lines of its statement are part of the recording: no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from anymps.findings._catalogue import RULES, nearest_rule
from anymps.findings._model import Finding
from anymps.source import comments_in

_COMMENT = re.compile(r"#\s*anymps:\s*ignore\b\s*(?:\[(?P<ids>[^\]]*)\])?(?P<reason>[^#]*)")


@dataclass(frozen=True)
class Comment:
    """What one comment asks for: the ids in its brackets, and the reason, empty if there is none."""

    ids: tuple[str, ...]
    reason: str


def suppress(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings that stay, and those that a valid comment leaves out."""
    kept: list[Finding] = []
    left_out: list[Finding] = []
    for finding in findings:
        answered = any(
            finding.id in comment.ids and not problem_of(comment)
            for line in (finding.site.source, *finding.site.comments.split("\n"))
            for comment in comments(line)
        )
        (left_out if answered else kept).append(finding)
    return kept, left_out


def comments(source: str) -> list[Comment]:
    """The comments for anymps in a source line; one of several lines may be half a statement."""
    if "anymps:" not in source:
        return []
    return [
        Comment(
            tuple(name for name in re.split(r"[\s,]+", (match["ids"] or "").strip()) if name), match["reason"].strip()
        )
        for text in comments_in(source.strip())
        for match in _COMMENT.finditer(text)
    ]


def problem_of(comment: Comment) -> str:
    """What is wrong with a comment, the empty text if nothing is."""
    if not comment.ids:
        return "names no rule"
    for name in comment.ids:
        if name not in RULES:
            nearest = nearest_rule(name)
            return f"names {name}, which is not a rule{f'; the nearest is {nearest}' if nearest else ''}"
    return "" if comment.reason else f"gives no reason for leaving out {', '.join(comment.ids)}"
