"""The printed text about answers: what was asked, and where two devices differ."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from anymps._errors import MacError
from anymps._text import clean, plural
from anymps.mac import parse_mac
from anymps.verify._answers import Answers
from anymps.verify._compare import Comparison, Difference
from anymps.verify._form import ITEM_SIZES
from anymps.verify._kinds import KINDS

_WIDTH: Final = 100
_LONGEST: Final = 300
_SHOWN: Final = 30
"""Groups of differences of a kind that are shown unless all are asked for."""


def device_words(answers: Answers) -> str:
    """`Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4, torch 2.13.0`."""
    about = answers.machine
    cores = f" ({about['gpu_cores']}-core GPU)" if about.get("gpu_cores") else ""
    memory = f", {about['memory_gib']} GB" if about.get("memory_gib") else ""
    return clean(f"{about['chip']}{cores}{memory}, macOS {about['macos']}, torch {about['torch']}")


def asked_lines(answers: Answers) -> Iterator[str]:
    """What was asked of each kind."""
    yield f"{'':12}{'cases':>8}{'answers':>9}"
    for kind, about in answers.kinds.items():
        note, count = clean(str(about["note"])), len(answers.answers.get(kind, {}))
        yield f"{kind:12}{about['cases']:>8,}{count:>9,}{'  ' + note if note else ''}"


def comparison_lines(comparison: Comparison, *, everything: bool) -> Iterator[str]:
    """The counts by kind, then the differences; those of one operator and cause are listed as one."""
    yield f"{'':12}{'compared':>10}{'agree':>8}{'bit for bit':>13}{'differ':>8}{'not asked':>11}"
    for kind, count in comparison.counts.items():
        differ = count.both - count.agree
        yield f"{kind:12}{count.both:>10,}{count.agree:>8,}{count.exactly:>13,}{differ:>8,}{count.missing:>11,}"
    others = sum(count.inputs for count in comparison.counts.values())
    if others:
        yield f"Inputs differ in {plural(others, 'sample')}: only the form of the results was compared."
    groups = _grouped(comparison.differences)
    if not groups:
        yield "They agree everywhere."
        return
    yield f"{plural(len(groups), 'difference')}:"
    for kind in KINDS:
        of_kind = [group for group in groups if group[0].kind == kind]
        shown = of_kind if everything else of_kind[:_SHOWN]
        for group in shown:
            yield ""
            yield from _group_lines(group)
        if len(of_kind) > len(shown):
            yield ""
            yield f"{kind}: {len(of_kind) - len(shown):,} more (--verbose shows all)"


def _grouped(differences: list[Difference]) -> list[list[Difference]]:
    groups: dict[tuple[str, ...], list[Difference]] = {}
    for one in differences:
        what = one.what.partition(", sample")[0]
        same = (what, "" if what in ("values", "value") else one.mac)
        groups.setdefault((one.kind, _without_dtype(one.case)[0], *same), []).append(one)
    return list(groups.values())


def _without_dtype(case: str) -> tuple[str, str]:
    head, _, last = case.rpartition(" ")
    return (head, last) if last in ITEM_SIZES else (case, "")


def _group_lines(group: list[Difference]) -> Iterator[str]:
    first = group[0]
    name = _without_dtype(first.case)[0]
    dtypes = ", ".join(dict.fromkeys(dtype for one in group if (dtype := _without_dtype(one.case)[1])))
    times = f", {len(group)} times" if len(group) > 1 else ""
    yield clean(f"{first.kind}: {name}{f' ({dtypes})' if dtypes else ''}: {first.what.partition(', sample')[0]}{times}")
    yield from _wrapped("the Mac", first.mac)
    yield from _wrapped("anymps", first.ours)


def _wrapped(who: str, words: str) -> list[str]:
    text = clean(words.replace("\n", " "))
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    return textwrap.wrap(text or "nothing", _WIDTH, initial_indent=f"  {who:<9}", subsequent_indent=" " * 11)


def mac_of(answers: Answers) -> str | None:
    """The text that makes the virtual device act as the Mac of these answers; None for a Mac that is not known."""
    about = answers.machine
    macos = ".".join(str(about["macos"]).split(".")[:2])
    cores = f" {about['gpu_cores']}-core" if about.get("gpu_cores") else ""
    for words in (cores, ""):
        text = f"{str(about['chip']).removeprefix('Apple ')}{words} {about.get('memory_gib')}GB, macOS {macos}"
        with suppress(MacError):
            parse_mac(text)
            return text
    return None
