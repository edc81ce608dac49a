"""The report as Markdown, for a job's summary (`$GITHUB_STEP_SUMMARY`), a pull request or a notebook.

The dialect is GitHub's (github.github.com/gfm): tables, and `<details>` around what is read second. What comes from
the script is escaped, so that it makes no link, no HTML and no mention of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anymps.findings import Finding, Severity
from anymps.record import Recording
from anymps.report import _text as text
from anymps.report._memory_rows import CATEGORY_COLUMNS, LINE_COLUMNS, memory_rows
from anymps.report._memory_rows import NUMBERS as MEMORY_NUMBERS
from anymps.report._predicted import mac_times, predicted_sentence
from anymps.report._step_rows import COLUMNS, by_place, caption, cells, is_idle, remarks, title, total
from anymps.report._words import cost, environment, fact, limits, seen_in, times, verdict
from anymps.report.run._wait_rows import BELONGING_COLUMNS, NUMBERS, wait_rows

_MOST_FINDINGS = 20  # in full; a job's summary may have 1 MiB, and nobody reads more
_MARKS = {Severity.ERROR: "\u274c", Severity.WARNING: "\u26a0\ufe0f", Severity.INFO: "\u2139\ufe0f"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~!$])")


@dataclass(frozen=True)
class MarkdownRenderer:
    """The report as Markdown, findings first."""

    @property
    def name(self) -> str:
        """`markdown`."""
        return "markdown"

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """Verdict, findings, the step, waits, memory, environment and limits."""
        first, *others = verdict(recording, findings)
        yield f"### {escaped(first)}\n\n"
        sentences = [*others, predicted_sentence(recording)]
        yield "\n\n".join(escaped(sentence) for sentence in sentences if sentence) + "\n"
        yield from _findings(recording, findings)
        yield from _step(recording)
        yield from _waits(recording, findings)
        yield from _memory(recording)
        yield from _folded("Environment", [_table(("", ""), environment(recording))])
        told = limits(recording) or ["None that this report knows of."]
        yield from _folded("Limits", ["".join(f"- {escaped(sentence)}\n" for sentence in told)])


def escaped(sentence: str) -> str:
    """One line of prose; what stands in backticks is code, anything else makes no Markdown, HTML or mention."""
    parts = text.clean(sentence).replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without its other one is none
        parts = ["`".join(parts)]
    return "".join(_code(part) if number % 2 and part.strip() else _plain(part) for number, part in enumerate(parts))


def _plain(part: str) -> str:
    part = part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", part).replace("@", "&#64;")


def _code(part: str) -> str:
    """A code span without a backtick in it; a bar would end the cell of a table, so it is escaped there, not here."""
    return f"`{part}`"


def _cell(part: str) -> str:
    """A cell of a table, in which a bar in code needs its backslash, too."""
    return re.sub(r"(?<!\\)\|", r"\\|", escaped(part))


def _block(source: str) -> str:
    """A line of the program as a block of code, within a fence that is longer than any in it."""
    line = text.clean(source.strip())
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", line)), default=0))
    return f"{fence}python\n{line}\n{fence}\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    ruler = ["---:" if column in numbers else "---" for column in columns]
    lines = [[_cell(column) for column in columns], ruler, *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _folded(heading: str, blocks: Sequence[str]) -> Iterator[str]:
    """What is read second: GitHub shows the heading, and the rest after a click."""
    yield f"\n<details><summary>{_plain(heading)}</summary>\n"
    for block in blocks:
        yield f"\n{block}"
    yield "\n</details>\n"


def _findings(recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
    directory = fact(recording, "directory")
    for finding in findings[:_MOST_FINDINGS]:
        price = f", {cost(finding)}" if cost(finding) else ""
        place = text.place(finding.site, directory)
        yield f"\n#### {_MARKS[finding.severity]} {escaped(place)}: {escaped(finding.title)}\n\n"
        if finding.site.source:
            yield _block(finding.site.source) + "\n"
        yield f"{escaped(finding.what)}\n\n**Fix:** {escaped(finding.fix)}\n\n"
        seen = f" in {seen_in(recording, finding)}" if seen_in(recording, finding) else ""
        yield f"*{finding.id} {finding.severity.label}, {escaped(times(finding))}{escaped(seen)}{escaped(price)}.*\n"
        for site in finding.related_sites:
            yield f"\n{escaped(finding.related_as)}: {escaped(text.place(site, directory))}\n"
            if site.source:
                yield f"\n{_block(site.source)}"
    left = findings[_MOST_FINDINGS:]
    if left:
        rows = [(it.id, it.severity.label, text.place(it.site, directory), it.title) for it in left]
        heading = text.plural(len(left), "more finding")
        yield from _folded(heading, [_table(("rule", "severity", "where", "what"), rows)])


def _step(recording: Recording) -> Iterator[str]:
    table = recording.step_table()
    if is_idle(table) or not table.first:
        return
    shares, on_mac = table.typical, mac_times(recording)
    whole = total(shares)
    rows = [
        [share.phase.label, *cells(share, whole.time_ns, on_mac(share.phase))] for share in sorted(shares, key=by_place)
    ]
    rows.append(["whole step", *cells(whole, 0.0, on_mac(None))])
    kept = [0, *(number for number in range(1, len(COLUMNS) + 1) if any(row[number] for row in rows))]
    columns = [("phase", *COLUMNS)[number] for number in kept]
    shown = _table(columns, [[row[number] for number in kept] for row in rows], COLUMNS)
    told = " ".join(remarks(recording, table))
    yield from _folded(f"{title(recording)}: {caption(table)}", [shown, *([f"{escaped(told)}\n"] if told else [])])


def _waits(recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
    rows = wait_rows(recording, findings)
    if rows is None:
        return
    blocks = [_table(rows.columns, rows.hurting, NUMBERS)] if rows.hurting else []
    blocks += [f"{escaped(' '.join(rows.remarks))}\n"] if rows.remarks else []
    if rows.belonging:
        blocks += ["Fine as they are:\n", _table(BELONGING_COLUMNS, rows.belonging, ("times",))]
    blocks += [f"{escaped(rows.left_out)}\n"] if rows.left_out else []
    yield from _folded("Waits", blocks)


def _memory(recording: Recording) -> Iterator[str]:
    rows = memory_rows(recording)
    if rows is None:
        return
    blocks = [f"{escaped(' '.join(rows.sentences))}\n"]
    if rows.categories:
        blocks.append(_table(CATEGORY_COLUMNS, [*rows.categories, *rows.beyond], MEMORY_NUMBERS))
    if rows.lines:
        blocks.append(_table(LINE_COLUMNS, rows.lines, MEMORY_NUMBERS))
    yield from _folded("Memory", blocks)
