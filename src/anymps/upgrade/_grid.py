"""The table of an upgrade: a cell for each release of torch and version of macOS, and the predicted step of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from anymps._errors import CostError, MacError, UsageError
from anymps.mac import Mac, parse_mac
from anymps.record import Meta, Recording
from anymps.rules import FIRST_RELEASE, LAST_RELEASE, OLDEST, parse_torch_version
from anymps.rules.faults import all_hazards
from anymps.upgrade._calls import calls
from anymps.upgrade._faults import faults
from anymps.upgrade._subjects import Answer, Outcome, Release, Subject, named
from anymps.upgrade._times import Steps, StepTime

_SYSTEMS: Final = (14, 15, 26, 27)
_OLDEST_MACOS: Final[Mapping[Release, int]] = {(2, 7): 13, (2, 8): 13, LAST_RELEASE: 15}
"""The oldest macOS on which a release has an mps device, where that is not 14 (the C string `The MPS backend is
supported on macOS` of the macOS wheels of torch 2.7 to 2.15)."""
ALIKE: Final = 0.02
"""Predicted times of two releases that are no closer than this share are said to differ."""


@dataclass(frozen=True)
class System:
    """Versions of macOS on which the script does the same: from `first` to before `after`, and what they are called."""

    first: Release
    after: Release
    name: str

    def __contains__(self, macos: Release) -> bool:
        return self.first <= macos < self.after


@dataclass(frozen=True)
class Cell:
    """A release of torch on a macOS: what becomes of the script's calls there, the calls that are all right left out.

    `no_device` says why there is no mps device.
    """

    release: Release
    macos: Release
    answers: Mapping[Subject, Answer]
    no_device: str = ""

    @cached_property
    def outcome(self) -> Outcome:
        """The worst of all."""
        if self.no_device:
            return Outcome.NO_DEVICE
        return max((answer.outcome for answer in self.answers.values()), default=Outcome.FINE)

    @cached_property
    def lines(self) -> Mapping[Outcome, int]:
        """The number of the script's lines with each outcome."""
        places = {(answer.outcome, subject.site.file_line) for subject, answer in self.answers.items()}
        return Counter(outcome for outcome, _ in places)


@dataclass(frozen=True, eq=False)
class Grid:
    """What becomes of a recorded script in each release and on each macOS, on one Mac.

    `home` is the system of the Mac, `made_by` the release of the recording. `times` are the predicted steps on the Mac
    by release; where there are none, `no_times` says why.
    """

    run: Meta
    mac: Mac
    made_by: Release
    releases: tuple[Release, ...]
    systems: tuple[System, ...]
    home: System
    cells: Mapping[tuple[Release, System], Cell]
    times: Mapping[Release, StepTime]
    no_times: str
    subjects: tuple[Subject, ...]

    def at(self, release: Release, system: System | None = None) -> Cell:
        """The cell of a release, on the Mac's own system if none is named."""
        return self.cells[release, system or self.home]

    def system_of(self, cell: Cell) -> System:
        """The system of a cell."""
        return next(system for system in self.systems if cell.macos in system)

    @property
    def unread(self) -> tuple[Release, ...]:
        """The shown releases of which dtypes, arguments and bugs are known only as far as somebody reported them."""
        return tuple(release for release in self.releases if release < OLDEST)

    @cached_property
    def choice(self) -> Cell:
        """Where the script runs best: the least bad outcome, the Mac's own system, the faster and the newer release."""
        return max(self.cells.values(), key=self._merit)

    def _merit(self, cell: Cell) -> tuple[object, ...]:
        lines = [-cell.lines.get(outcome, 0) for outcome in sorted(Outcome, reverse=True)]
        read = cell.release >= OLDEST
        outcome = cell.outcome if read else max(cell.outcome, Outcome.UNKNOWN)
        home = cell.macos in self.home
        worst = cell.lines.get(cell.outcome, 0)
        return -outcome, read, home, -worst, lines, self._is_fast(cell), cell.release, cell.macos

    def _is_fast(self, cell: Cell) -> bool:
        """Whether no release that is as good on this system is faster by more than times can tell apart."""
        known = [
            self.times[other.release].seconds
            for other in self.cells.values()
            if other.macos == cell.macos
            and other.outcome == cell.outcome
            and other.release in self.times
            and other.release >= OLDEST
        ]
        own = self.times.get(cell.release)
        return own is None or not known or own.seconds <= min(known) * (1 + ALIKE)


def make_grid(
    recording: Recording, mac: Mac | None = None, *, first: Release | None = None, last: Release | None = None
) -> Grid:
    """The grid of a recording; with `first` or `last`, these two alone, by default its own and the newest release.

    Raises UsageError for a recording whose torch or Mac is not known, and for a release that is not.
    """
    run = recording.run
    mac = mac or run.known_mac
    if mac is None:
        raise UsageError("the recording names no known Mac: name one with --mac")
    if not run.torch_version:
        raise UsageError("the recording does not say which torch made it")
    made_by = parse_torch_version(run.torch_version).release
    if not OLDEST <= made_by <= LAST_RELEASE:
        raise UsageError(f"the recording was made with torch {run.torch_version}, whose rules are not known")
    releases = _releases(first, last, made_by)
    subjects = (*calls(recording, made_by), *faults(recording, mac.metal_family))
    steps, no_times = None, ""
    try:
        steps = Steps(recording, mac)
    except CostError as error:
        no_times = f"{error.reason[:1].upper()}{error.reason[1:]}."
    columns = [
        {release: _cell(release, start, subjects, steps) for release in releases} for start in _starts(subjects, mac)
    ]
    systems, cells = _joined(columns)
    home = next(system for system in systems if mac.macos in system)
    predicted = {release: steps.time(release, cells[release, home].answers) for release in releases if steps}
    times = {release: time for release, time in predicted.items() if time is not None}
    return Grid(run, mac, made_by, releases, systems, home, cells, times, no_times, subjects)


def _releases(first: Release | None, last: Release | None, made_by: Release) -> tuple[Release, ...]:
    every = [(FIRST_RELEASE[0], minor) for minor in range(FIRST_RELEASE[1], LAST_RELEASE[1] + 1)]
    for release in (first, last):
        if release is not None and release not in every:
            known = f"{named(every[0])} to {named(every[-1])}"
            raise UsageError(f"torch {named(release)} is not known: name a release from {known}")
    if first is None and last is None:
        return tuple(every)
    return tuple(dict.fromkeys(sorted((first or made_by, last or every[-1]))))


def _starts(subjects: Iterable[Subject], mac: Mac) -> Iterator[Release]:
    """The versions of macOS that the Mac runs: the first of each, and those in which a bug comes or goes."""
    met = {subject.fault for subject in subjects}
    edges = {edge for row in all_hazards() if row.id in met for span in row.macos for edge in span}
    for major in sorted({*_SYSTEMS, mac.macos[0]}):
        if _runs_on(mac, major):
            yield from ((major, 0), *sorted(edge for edge in edges if edge[0] == major and edge[1]))


def _joined(
    columns: Sequence[Mapping[Release, Cell]],
) -> tuple[tuple[System, ...], dict[tuple[Release, System], Cell]]:
    """The systems with their cells; versions of one macOS that do the same are one system."""
    kept: list[Mapping[Release, Cell]] = []
    for column in columns:
        before = kept[-1] if kept else {}
        same = all(
            release in before and before[release].answers == cell.answers and before[release].macos[0] == cell.macos[0]
            for release, cell in column.items()
        )
        if not same:
            kept.append(column)
    starts = [next(iter(column.values())).macos for column in kept]
    majors = Counter(major for major, _ in starts)
    systems = []
    for place, start in enumerate(starts):
        following = starts[place + 1] if starts[place + 1 : place + 2] else (start[0] + 1, 0)
        after = min(following, (start[0] + 1, 0))
        systems.append(System(start, after, _named(start, after, whole=majors[start[0]] == 1)))
    by_system = zip(systems, kept, strict=True)
    return tuple(systems), {(release, one): cell for one, column in by_system for release, cell in column.items()}


def _named(start: Release, after: Release, *, whole: bool) -> str:
    """`macOS 26`, `macOS 26.2`, `macOS 26.0 to 26.3`, `macOS 26.4+`."""
    first = f"macOS {named(start)}"
    if whole:
        return f"macOS {start[0]}"
    if after[1] == 0:
        return f"{first}+"
    return first if after[1] == start[1] + 1 else f"{first} to {after[0]}.{after[1] - 1}"


def _runs_on(mac: Mac, major: int) -> bool:
    if major == mac.macos[0]:
        return True
    with suppress(MacError):
        parse_mac(f"{mac.name}, macOS {major}")
        return True
    return False


def _cell(release: Release, macos: Release, subjects: Sequence[Subject], steps: Steps | None) -> Cell:
    if macos[0] < (oldest := _OLDEST_MACOS.get(release, 14)):
        return Cell(release, macos, {}, f"torch {named(release)} needs macOS {oldest}")
    answers = {subject: subject.answers(release, macos) for subject in subjects}
    return Cell(
        release,
        macos,
        {
            one: answer
            for one, answer in answers.items()
            if answer.outcome and not (steps and steps.negligible(one, answer, release))
        },
    )
