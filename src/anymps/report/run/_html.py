"""The report as one HTML page: no network, no other file, readable on a phone, in print, in the dark and by ear.

What comes from the script passes `clean` and jinja2's escaping; the page's policy allows the page's own style and
script by their hashes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from anymps._version import __version__
from anymps.findings import Finding, Severity
from anymps.record import Line, OperatorUse, Recording, Site
from anymps.report import _text as text
from anymps.report._drawings import memory_drawing, runs_drawing
from anymps.report._memory_rows import CATEGORY_COLUMNS, LINE_COLUMNS, memory_rows
from anymps.report._memory_rows import NUMBERS as MEMORY_NUMBERS
from anymps.report._page import assets, templates
from anymps.report._predicted import ON_MAC, mac_times, predicted_sentence
from anymps.report._step_rows import COLUMNS, NO_STEP, by_place, caption, cells, is_idle, remarks, title, total
from anymps.report._suite import subject
from anymps.report._timeline import timeline_drawing
from anymps.report._words import (
    cost,
    environment,
    fact,
    limits,
    needless_waits,
    not_modelled,
    seen_in,
    source_words,
    state,
    times,
    verdict,
)
from anymps.report.run._excerpt import excerpt
from anymps.report.run._wait_rows import BELONGING_COLUMNS, NUMBERS, wait_rows

# A page has an end: what lies beyond is summed up, and whole in the JSON report.
_MOST_FINDINGS: Final = 200
_MOST_OPERATORS: Final = 300
_MOST_LINES: Final = 300
_COUNTS: Final = {"on_mps": "on mps", "on_cpu": "on CPU", "waits": "waits", "refused": "refused"}
_LONGEST_SOURCE: Final = 160
_FIRST: Final = 3

_OPERATOR_COLUMNS = ("operator", "runs as", "calls", "time here", "per call", "moved")


@dataclass(frozen=True)
class Running:
    """How far a run is of which a page tells while it goes on: its `step`, the time so far, and when to look again."""

    step: int
    elapsed: str
    refresh_s: int

    @property
    def words(self) -> str:
        """What the page says at its top."""
        step = f"step {self.step:,}, " if self.step else ""
        return f"Still running: {step}{self.elapsed}. This page reloads while the run goes on."


@dataclass(frozen=True)
class HtmlRenderer:
    """The page; of a run that goes on it says so, and reloads."""

    running: Running | None = None

    @property
    def name(self) -> str:
        """`html`."""
        return "html"

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The page, in the pieces of the template."""
        yield from templates().get_template("report.html.j2").generate(self._page(recording, findings))

    def _page(self, recording: Recording, findings: Sequence[Finding]) -> dict[str, Any]:
        """Everything that the template shows, as plain texts and numbers."""
        directory = fact(recording, "directory")
        shown = [
            self._finding(number, finding, recording) for number, finding in enumerate(findings[:_MOST_FINDINGS], 1)
        ]
        timeline, runs = timeline_drawing(recording), runs_drawing(recording)
        memory = memory_drawing(recording.memory_story)
        operators = recording.operators()
        lines = recording.lines()
        sentences = verdict(recording, findings, running=self.running is not None)
        page = {
            "title": _title(recording),
            "kind": "report",
            "made_from": "from a recording",
            "version": __version__,
            "eyebrow": _eyebrow(recording),
            "state": _state(recording, findings),
            "running": self.running,
            "verdict": [*sentences, *filter(None, [predicted_sentence(recording)])],
            "figures": _figures(recording, findings),
            "first": _first(findings, shown),
            "step": _step(recording),
            "waits": _waits(recording, findings),
            "timeline": timeline,
            "runs": runs,
            "memory": memory,
            "memory_peak": _memory_peak(recording),
            "findings": shown,
            "findings_left_out": max(len(findings) - _MOST_FINDINGS, 0),
            "operators": _operators(operators),
            "files": _files(lines, directory),
            "subject": subject(recording),
            "lines_left_out": _lines_left_out(lines),
            "environment": environment(recording),
            "limits": [*limits(recording, running=self.running is not None), *not_modelled(recording)],
        }
        page["sections"] = _sections(page)
        return {**page, **assets()}

    def _finding(self, number: int, finding: Finding, recording: Recording) -> dict[str, Any]:
        directory = fact(recording, "directory")
        function = text.clean(finding.site.function)
        return {
            "number": number,
            "id": finding.id,
            "severity": finding.severity.label,
            "title": text.clean(finding.title),
            "where": text.place(finding.site, directory),
            "function": "" if function == "<module>" else function,
            "excerpt": excerpt(finding.site),
            "related_as": finding.related_as,
            "related": [self._related(site, directory) for site in finding.related_sites],
            "what": text.clean(finding.what),
            "times": times(finding),
            "seen_in": seen_in(recording, finding),
            "cost": cost(finding),
            "why": text.clean(finding.why),
            "fix": text.clean(finding.fix),
            "source": text.clean(finding.source),
        }

    def _related(self, site: Site, directory: str) -> dict[str, Any]:
        return {"where": text.place(site, directory), "excerpt": excerpt(site)}


def _title(recording: Recording) -> str:
    script = text.path(fact(recording, "script"), fact(recording, "directory"))
    mac = fact(recording, "mac")
    return "anymps report" + (f": {script}" if script else "") + (f" on {mac}" if mac else "")


def _state(recording: Recording, findings: Sequence[Finding]) -> str:
    worst = state(recording, findings)
    return "clean" if worst is None else worst.label


def _eyebrow(recording: Recording) -> list[str]:
    torch_version = fact(recording, "torch_version")
    words = [
        text.path(fact(recording, "script"), fact(recording, "directory")),
        fact(recording, "mac"),
        f"torch {torch_version}" if torch_version else "",
        {True: "virtual device", False: "real device"}.get(recording.meta.get("virtual"), ""),  # type: ignore[call-overload]
    ]
    return [word for word in words if word] or ["anymps"]


def _figures(recording: Recording, findings: Sequence[Finding]) -> list[dict[str, str]]:
    table = recording.step_table()
    figures = []
    if table.first and not is_idle(table):
        share = total(table.typical)
        here = "" if recording.meta.get("virtual") is False else " here"
        needless = needless_waits(recording, findings)
        of_these = f" ({text.count(needless)} needless)" if needless else ""
        on_mac = mac_times(recording)(None)
        figures = [{"name": "a step on the Mac", "value": on_mac}] if on_mac else []
        figures += [
            {"name": f"a step{here}", "value": text.duration(share.time_ns) or "0"},
            {"name": "its operators on mps", "value": text.count(share.on_mps) or "0"},
            {"name": "its operators on CPU", "value": text.count(share.on_cpu) or "0"},
            {"name": f"its waits{of_these}", "value": text.count(share.waits) or "0"},
        ]
    return figures


def _first(findings: Sequence[Finding], shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings to begin with, in the order of the verdict's own choice."""
    order = sorted(
        (number for number, finding in enumerate(findings[: len(shown)]) if finding.severity is not Severity.INFO),
        key=lambda number: (findings[number].severity, -findings[number].cost_per_step_ns[1]),
    )
    return [shown[number] for number in order[:_FIRST]]


def _step(recording: Recording) -> dict[str, Any] | None:
    table = recording.step_table()
    if is_idle(table):
        return None
    if not table.first:
        return {"title": title(recording), "none": NO_STEP, "rows": []}
    shares = table.typical
    whole, first = total(shares), total(table.first)
    of = caption(table)
    on_mac = mac_times(recording)
    rows = [
        [share.phase.label, *cells(share, whole.time_ns, on_mac(share.phase))] for share in sorted(shares, key=by_place)
    ]
    sums = [["whole step", *cells(whole, 0, on_mac(None))]]
    sums += [["first step", *cells(first, 0)]] if table.median else []
    columns = ["phase", *COLUMNS]
    for header in ("by fallback", ON_MAC):
        place = columns.index(header)
        if not any(row[place] for row in (*rows, *sums)):
            for row in (columns, *rows, *sums):
                del row[place]
    return {
        "title": title(recording),
        "caption": f"{of[0].upper()}{of[1:]}: operators, waits, bytes and wall clock by phase",
        "columns": columns,
        "rows": rows,
        "sums": sums,
        "remarks": remarks(recording, table),
    }


def _waits(recording: Recording, findings: Sequence[Finding]) -> dict[str, Any] | None:
    rows = wait_rows(recording, findings)
    if rows is None:
        return None
    return {
        "tables": [
            ("waits-hurting", "In the steps, and what had been queued before each", rows.columns, rows.hurting),
            ("waits-belonging", "Waits that are fine as they are", BELONGING_COLUMNS, rows.belonging),
        ],
        "numbers": (*NUMBERS, "times"),
        "remarks": rows.remarks,
        "left_out": rows.left_out,
    }


def _memory_peak(recording: Recording) -> dict[str, Any] | None:
    rows = memory_rows(recording)
    if rows is None:
        return None
    return {
        "sentences": rows.sentences,
        "tables": [
            ("memory-categories", "What held the memory at its peak", CATEGORY_COLUMNS, rows.categories, rows.beyond),
            ("memory-lines", "The lines that held most at the peak", LINE_COLUMNS, rows.lines, ()),
        ],
        "numbers": MEMORY_NUMBERS,
    }


def _operators(uses: Sequence[OperatorUse]) -> dict[str, Any]:
    rows = [
        {
            "name": text.clean(use.name),
            "fate": use.fate.label,
            "count": use.count,
            "calls": f"{use.count:,}",
            "duration_ns": use.duration_ns,
            "time": text.duration(use.duration_ns),
            "mean_ns": use.duration_ns / max(use.count, 1),
            "mean": text.duration(use.duration_ns / max(use.count, 1)),
            "moved_bytes": use.moved_bytes,
            "moved": text.size(use.moved_bytes),
        }
        for use in uses[:_MOST_OPERATORS]
    ]
    left = uses[_MOST_OPERATORS:]
    calls = sum(use.count for use in left)
    return {
        "columns": [
            {"name": name, "number": place >= 2, "sorted": name == "calls"}
            for place, name in enumerate(_OPERATOR_COLUMNS)
        ],
        "rows": rows,
        "left_out": f"{text.plural(len(left), 'more operator')} with {calls:,} calls." if left else "",
    }


def _kept(lines: Sequence[Line]) -> list[Line]:
    known = [line for line in lines if line.file]
    return sorted(known, key=lambda it: (it.refused, it.on_cpu, it.waits, it.on_mps), reverse=True)[:_MOST_LINES]


def _files(lines: Sequence[Line], directory: str) -> list[dict[str, Any]]:
    kept = sorted(_kept(lines), key=lambda it: (it.file, it.line))
    return [_file(list(group), directory) for file, group in groupby(kept, key=lambda it: it.file)]


def _file(lines: Sequence[Line], directory: str) -> dict[str, Any]:
    """A file's lines, with the counts that any of them has: an empty column pushes the source off a phone."""
    counts = {key: title for key, title in _COUNTS.items() if any(getattr(line, key) for line in lines)}
    return {
        "name": text.module(lines[0].file, directory),
        "counts": list(counts.values()),
        "lines": [_line(line, list(counts), directory) for line in lines],
    }


def _line(line: Line, counts: Sequence[str], directory: str) -> dict[str, Any]:
    return {
        "number": line.line,
        "counts": [text.count(getattr(line, key)) for key in counts],
        "source": source_words(line, directory, _LONGEST_SOURCE),
    }


def _lines_left_out(lines: Sequence[Line]) -> str:
    sentences = []
    left = sum(bool(line.file) for line in lines) - len(_kept(lines))
    if left:
        sentences.append(f"{text.plural(left, 'more line')}, each with less to tell.")
    unknown = sum(line.on_mps + line.on_cpu for line in lines if not line.file)
    if unknown:
        sentences.append(f"{text.plural(unknown, 'call')} without a line of yours.")
    return " ".join(sentences)


def _sections(page: dict[str, Any]) -> list[tuple[str, str]]:
    names = {
        "first": "Fix first",
        "step": "Step",
        "waits": "Waits",
        "timeline": "Timeline",
        "memory": "Memory",
        "findings": "Findings",
        "operators": "Operators",
        "lines": "Lines",
        "environment": "Environment",
        "limits": "Not modelled",
    }
    there = {
        **page,
        "memory": page["memory_peak"],
        "lines": page["files"],
        "operators": page["operators"]["rows"],
        "findings": True,
    }
    return [(anchor, name) for anchor, name in names.items() if there[anchor]]
