"""The sentences of an upgrade: what to use, what changes from one release or system to the next, what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from anymps._text import listed
from anymps.record import Site
from anymps.report import _text as text
from anymps.rules import OLDEST
from anymps.upgrade import ALIKE, FINE, Answer, Cell, Grid, Outcome, Release, Subject, System, base, named

_MOST_PLACES: Final = 3
_LONGEST: Final = 120  # characters of a message of torch
_IS: Final = {
    Outcome.UNKNOWN: ("is not known", "are not known"),
    Outcome.SLOWER: ("is slower", "are slower"),
    Outcome.ON_CPU: ("falls back to the CPU", "fall back to the CPU"),
    Outcome.DOUBTFUL: ("may fail", "may fail"),
    Outcome.WRONG: ("is wrong", "are wrong"),
    Outcome.REFUSED: ("is refused", "are refused"),
}
_STILL: Final = {
    Outcome.SLOWER: "is still slower",
    Outcome.ON_CPU: "still falls back to the CPU",
    Outcome.DOUBTFUL: "may still fail",
    Outcome.WRONG: "is still wrong",
    Outcome.REFUSED: "is still refused",
}
_AGAIN: Final = {
    Outcome.SLOWER: "is fast again",
    Outcome.DOUBTFUL: "is safe again",
    Outcome.WRONG: "is right again",
    Outcome.REFUSED: "runs again",
}


class Change(NamedTuple):
    """What is said of calls that another release or system treats differently, the worst first, and their lines."""

    after: Outcome
    sentence: str
    fault: str
    sites: tuple[Site, ...]


_Sentences = dict[tuple[Outcome, str, str], list[Site]]
"""Outcome, sentence and known bug, with the lines that it is true of."""


class Step(NamedTuple):
    """From one release to the next on the Mac's system, or from one system to the next with one release."""

    title: str
    changes: tuple[Change, ...]


def steps(grid: Grid) -> Iterator[Step]:
    """All that changes something: releases on the Mac's system, then systems with the release to use."""
    for before, after in pairwise(grid.releases):
        title = f"{named(before)} -> {named(after)}"
        yield Step(title, (*_changes(grid.at(before), grid.at(after)), *_pace(grid, before, after)))
    best = grid.choice.release
    for first, second in pairwise(grid.systems):
        title = f"{first.name} -> {second.name.removeprefix('macOS ')}, torch {named(best)}"
        yield Step(title, tuple(_changes(grid.at(best, first), grid.at(best, second))))


def _pace(grid: Grid, before: Release, after: Release) -> Iterator[Change]:
    """How much longer or shorter the predicted step is, where the times can tell."""
    if before in grid.times and after in grid.times:
        was, now = grid.times[before].seconds, grid.times[after].seconds
        if abs(now / was - 1) > ALIKE:
            more = f"{text.share(abs(now / was - 1))} {'more' if now > was else 'less'}"
            words = f"a predicted step takes {more}: {text.duration(1e9 * now)}"
            yield Change(Outcome.SLOWER if now > was else Outcome.FINE, words, "", ())


def standing(grid: Grid) -> tuple[Change, ...]:
    """What is the same in every shown release on the Mac's system, and not all right."""
    cells = [grid.at(release) for release in grid.releases if not grid.at(release).no_device]
    sentences: _Sentences = {}
    for subject, answer in cells[-1].answers.items() if cells else ():
        if all(cell.answers.get(subject, FINE).outcome is answer.outcome for cell in cells):
            sentences.setdefault((answer.outcome, _worse(subject, answer), subject.fault), []).append(subject.site)
    return _sorted(sentences)


def _changes(before: Cell, after: Cell) -> Iterator[Change]:
    if before.no_device or after.no_device:
        if before.no_device != after.no_device:
            yield Change(after.outcome, after.no_device or before.no_device, "", ())
        return
    sentences: _Sentences = {}
    for subject in dict.fromkeys((*after.answers, *before.answers)):
        was, now = before.answers.get(subject, FINE), after.answers.get(subject, FINE)
        sentence = _changed(subject, was, now) if was.outcome is not now.outcome else ""
        if sentence:
            sentences.setdefault((now.outcome, sentence, subject.fault), []).append(subject.site)
    yield from _sorted(sentences)


def _sorted(sentences: _Sentences) -> tuple[Change, ...]:
    changes = (
        Change(outcome, words, fault, tuple(sorted(set(sites), key=lambda site: site.file_line)))
        for (outcome, words, fault), sites in sentences.items()
    )
    return tuple(sorted(changes, key=lambda change: (-change.after, change.sites[0].file_line, change.sentence)))


def _changed(subject: Subject, was: Answer, now: Answer) -> str:
    """In one sentence what becomes of the calls; empty where nothing can be said."""
    if now.outcome:
        if now.outcome is Outcome.UNKNOWN and was.outcome:
            return f"whether {_name(subject, was)} {_STILL[was.outcome]} is not known"
        before = "; before, that is not known" if was.outcome is Outcome.UNKNOWN else ""
        return _worse(subject, now) + before
    if was.outcome is Outcome.UNKNOWN:
        return ""
    if not subject.fault and was.outcome in (Outcome.ON_CPU, Outcome.REFUSED):
        return f"{_name(subject, was)} becomes native" if not subject.title else f"{_name(subject, was)} runs"
    return f"{_name(subject, was)} {_AGAIN[was.outcome]}"


def _worse(subject: Subject, now: Answer) -> str:
    if not subject.operator:
        return f"{now.why[0].upper()}{now.why[1:]}"
    name = _name(subject, now)
    if now.outcome is Outcome.UNKNOWN:
        return f"{name}: {now.why}"
    first_sentence = text.shorten(now.why.partition(". ")[0].removesuffix("."), _LONGEST)
    why = f": {first_sentence}" if first_sentence and now.outcome is not Outcome.ON_CPU else ""
    return f"{name} {_IS[now.outcome][0]}{why}"


def _name(subject: Subject, answer: Answer) -> str:
    """`histc` of int64, where the dtype matters."""
    of = f" of {subject.dtype}" if subject.dtype and not subject.fault and answer.outcome is Outcome.REFUSED else ""
    return f"`{base(subject.operator)}`{of}"


def told(change: Change, directory: str) -> str:
    """The sentence, then in brackets its rule and its lines."""
    places = list(dict.fromkeys(text.place(site, directory) for site in change.sites if site.known))
    more = len(places) - _MOST_PLACES
    shown = ", ".join(places[:_MOST_PLACES]) + (f" and {text.plural(more, 'more line')}" if more > 0 else "")
    behind = ", ".join(filter(None, (change.fault, shown)))
    return text.clean(change.sentence) + (f" ({behind})" if behind else "")


def cell_words(cell: Cell) -> str:
    """`wrong (2)`: the worst that becomes of the script there, and of how many lines."""
    number = cell.lines.get(cell.outcome, 0)
    return f"{cell.outcome.word} ({number})" if number else cell.outcome.word


def advice(grid: Grid) -> str:
    """`Use torch 2.14 on macOS 26; 2.15 is 4 % faster, but line 88 is wrong there.`"""
    if not grid.subjects:
        return "Nothing in the recording ran on mps, so no release can be told from another."
    best = grid.choice
    place = f"torch {named(best.release)} on {grid.system_of(best).name}"
    if best.no_device:
        return f"No release shown has an mps device on this Mac: {best.no_device}."
    if best.outcome in (Outcome.FINE, Outcome.UNKNOWN):
        unsure = f", where {_lines(grid, best)}" if best.outcome else ""
        return f"Use {place}{unsure}{_alternative(grid, best)}."
    where = f"{place} comes closest, where {_lines(grid, best)}"
    return f"No release shown is free of trouble: {where}{_alternative(grid, best)}."


def _alternative(grid: Grid, best: Cell) -> str:
    """Why not another release: a faster one, the newest one, or that of the recording."""
    system = grid.system_of(best)
    others = [grid.at(release, system) for release in grid.releases if release != best.release]
    worse = [cell for cell in others if cell.outcome > max(best.outcome, Outcome.UNKNOWN) and not cell.no_device]
    own = grid.times.get(best.release)
    if own is not None:
        timed = [(grid.times[cell.release].seconds, cell) for cell in worse if cell.release in grid.times]
        seconds, fastest = min(timed, key=lambda pair: pair[0], default=(own.seconds, best))
        if seconds * (1 + ALIKE) < own.seconds:
            faster = text.share(own.seconds / seconds - 1)
            return f"; {named(fastest.release)} is {faster} faster, but {_lines(grid, fastest)} there"
    newer = [cell for cell in worse if cell.release > best.release]
    other = newer[-1:] or [cell for cell in worse if cell.release == grid.made_by]
    return f"; with {named(other[0].release)} {_lines(grid, other[0])}" if other else ""


def _lines(grid: Grid, cell: Cell) -> str:
    """`line 88 is wrong`, `lines 3 and 7 are refused`, `12 lines are wrong`."""
    sites = {subject.site for subject, answer in cell.answers.items() if answer.outcome is cell.outcome}
    places = sorted({site.file_line for site in sites if site.known})
    one, several = _IS[cell.outcome]
    if not places:
        return f"the script {one}"
    if len(places) > _MOST_PLACES:
        return f"{len(places):,} lines {several}"
    if len({file for file, _ in places}) > 1 or not places[0][0].endswith(grid.run.script):
        shown = [text.place(Site(*place), grid.run.directory) for place in places]
        return f"{listed(shown)} {one if len(places) == 1 else several}"
    numbers = [str(line) for _, line in places]
    return f"line {numbers[0]} {one}" if len(numbers) == 1 else f"lines {listed(numbers)} {several}"


def remarks(grid: Grid) -> Iterator[str]:
    """What the table does not know."""
    if grid.unread:
        first, last = named(grid.unread[0]), named(grid.unread[-1])
        which = f"torch {first} to {last}" if first != last else f"torch {first}"
        yield (
            f"Of {which}, the operators and the reported bugs are known. Which dtypes and arguments they refuse was "
            f"not read: a call that torch {named(OLDEST)} takes counts as OK."
        )
    yield (
        f"The calls are those that torch {grid.run.torch_version.partition('+')[0]} makes. Another release may make "
        "others for the same line of Python, where torch's own Python code differs."
    )
    if grid.run.fallback:
        yield (
            "Operators without an MPS kernel fall back to the CPU, as PYTORCH_ENABLE_MPS_FALLBACK=1 has it. Without it "
            "they raise."
        )
    if grid.run.ending.exception:
        yield (
            f"The recorded run ended with {text.clean(grid.run.ending.exception)}: what comes after that line was not "
            "recorded."
        )
    if grid.mac.assumed:
        yield f"{grid.mac.assumed[0].upper()}{grid.mac.assumed[1:]}."
    if grid.no_times:
        yield grid.no_times


def sources(grid: Grid) -> Iterable[tuple[str, str]]:
    """What backs the known bugs that are shown, by id; then the tables."""
    shown = {subject for cell in grid.cells.values() for subject in cell.answers}
    faults = {one.fault: f"{one.title}. {one.source}" for one in grid.subjects if one.fault and one in shown}
    yield from sorted(faults.items())
    yield "operators", "initialisers of TORCH_LIBRARY_IMPL in libtorch_cpu.dylib of the macOS wheels, torch 2.7 to 2.15"
    yield (
        "dtypes and arguments",
        "OpInfo.dtypesIfMPS, C strings and names of Metal kernels in the macOS wheels, torch 2.11 to 2.15",
    )
    yield "systems", "the C string `The MPS backend is supported on macOS` in the macOS wheels, torch 2.7 to 2.15"


def head(grid: Grid, system: System) -> str:
    """The versions of a system, and whether it is that of the Mac: `26.4+ *`."""
    versions = system.name.removeprefix("macOS ")
    return f"{versions} *" if system == grid.home else versions
