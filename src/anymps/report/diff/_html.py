"""A comparison as one HTML page, in the style and under the policy of the report's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anymps._version import __version__
from anymps.findings import Finding
from anymps.report import _text as text
from anymps.report._page import assets, templates
from anymps.report._words import times
from anymps.report.diff import _words as words
from anymps.report.diff._compare import Diff

_MOST_FINDINGS: Final = 200  # of one kind; the JSON form has all


def render_diff_html(diff: Diff) -> str:
    """The page. What comes from the scripts is escaped; nothing is fetched."""
    return templates().get_template("diff.html.j2").render(_page(diff))


def _page(diff: Diff) -> dict[str, Any]:
    groups = [
        _group("new", "New findings", diff.new, [times(it) for it in diff.new], diff.after.directory),
        _group(
            "changed",
            "Findings in other numbers",
            [it.after for it in diff.changed],
            [words.numbers(it) for it in diff.changed],
            diff.after.directory,
        ),
        _group("gone", "Findings that are gone", diff.gone, [times(it) for it in diff.gone], diff.before.directory),
    ]
    groups = [group for group in groups if group["findings"]]
    operators = words.operator_rows(diff)
    sections = [("sides", "Recordings"), *((group["anchor"], group["title"]) for group in groups), ("step", "Step")]
    memory = words.memory(diff)
    worst = min((finding.severity for finding in diff.new), default=None)
    scripts = [text.path(it.script, it.directory) for it in (diff.before, diff.after)]
    return {
        "title": "anymps diff" + (f": {scripts[1]}" if scripts[1] else ""),
        "version": __version__,
        "kind": "comparison",
        "made_from": "from two recordings",
        "eyebrow": ["anymps diff", *dict.fromkeys(script for script in scripts if script)],
        "state": "clean" if worst is None else worst.label,
        "verdict": (words.verdict(diff), ""),
        "figures": _figures(diff),
        "sections": [*sections, ("operators", "Operators")] if operators else sections,
        "sides": [
            ("before", words.side(diff.before)),
            ("after", words.side(diff.after)),
            *([("memory at its peak", memory)] if memory else []),
        ],
        "groups": groups,
        "step_title": diff.step_title,
        "step_columns": words.step_columns(diff),
        "step": [words.step_row(row) for row in diff.phases],
        "operators": operators,
        **assets(),
    }


def _group(
    anchor: str, title: str, findings: Sequence[Finding], often: Sequence[str], directory: str
) -> dict[str, Any]:
    left = len(findings) - _MOST_FINDINGS
    return {
        "anchor": anchor,
        "title": title,
        "findings": [
            {
                "id": it.id,
                "severity": it.severity.label,
                "title": text.clean(it.title),
                "where": text.place(it.site, directory),
                "source": text.clean(it.site.source.strip()),
                "facts": [
                    ("What", text.clean(it.what)),
                    ("Times", number),
                    *([] if anchor == "gone" else [("Fix", text.clean(it.fix))]),
                ],
            }
            for it, number in zip(findings[:_MOST_FINDINGS], often, strict=False)
        ],
        "left_out": f"{text.plural(left, 'more finding')} in the JSON form." if left > 0 else "",
    }


def _figures(diff: Diff) -> list[dict[str, str]]:
    figures = [
        {"name": "findings new", "value": f"{len(diff.new):,}"},
        {"name": "findings gone", "value": f"{len(diff.gone):,}"},
    ]
    if diff.phases:
        whole = words.step_row(diff.phases[-1])
        columns = dict(zip(words.step_columns(diff), whole[1:], strict=True))
        figures += [
            {"name": "operators on CPU, a step", "value": columns["on CPU"] or "0"},
            {"name": "waits, a step", "value": columns["waits"] or "0"},
        ]
    return figures
