"""The manifest: a text file with one line for each test that is expected to fail, and how it fails.

    # why: aten::linalg_eig has no MPS kernel (src/linalg.py)
    tests/test_linalg.py::test_eig[float32, 2x2] NotImplementedError
    tests/test_models.py::test_load RuntimeError@setup

A line is a test id, a space, and the name of the exception's class. Failures outside of the test's own call carry their
phase, and several are joined: `AssertionError+RuntimeError@teardown`. Parts of a test (subtests) may fail in different
ways: `KeyError+ValueError`. `Crashed` is a test that takes its worker with it. A comment is a line of its own; one that
begins with `# why:` belongs to the entry below it, and is written by an update.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps._paths import portable_text
from anymps._text import printable

_FAILURE = r"[^\W\d]\w*(?:@(?:setup|teardown))?"
_ENDING = re.compile(rf"{_FAILURE}(?:\+{_FAILURE})*")
CRASHED = "Crashed"
"""The ending of a test whose process died."""
_WHY = "# why: "
NOT_JUDGED = "not judged: "
"""Begins the reason of a test that was not run without mps: the next update judges it."""
_HEADER = """\
# Tests that are expected to fail on mps, each with its exception.
# `pytest --mps` with this manifest fails if one of them passes, is skipped, fails differently or is gone, or if
# another test fails. `--mps-update-manifest` updates entries and reasons. Comments have lines of their own.

"""


@dataclass(frozen=True)
class Entry:
    """One expected failure: how it ends, the line of the file, and the reason above it if there is one."""

    ending: str
    line: int
    why: str = ""

    @property
    def failures(self) -> dict[str, set[str]]:
        """The exceptions by phase."""
        found: dict[str, set[str]] = {}
        for failure in self.ending.split("+"):
            name, _, phase = failure.partition("@")
            found.setdefault(phase or "call", set()).add(name)
        return found


@dataclass(frozen=True)
class Manifest:
    """The entries of a file, by test id as `key` writes it."""

    path: Path
    entries: Mapping[str, Entry]


def key(test: str) -> str:
    """A test id on one line: what cannot be printed is escaped."""
    return printable(test)


def ending_of(failures: Mapping[str, Set[str]]) -> str:
    """How a test ended, by phase and exceptions; the empty text if nothing failed."""
    return "+".join(
        name + ("" if phase == "call" else f"@{phase}")
        for phase in ("setup", "call", "teardown")
        for name in sorted(failures.get(phase, ()))
    )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises UsageError, in one line, for a line that is no entry; OSError and UnicodeDecodeError."""
    entries: dict[str, Entry] = {}
    why = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        parsed = _parse(line)
        if parsed is None:
            why = portable_text(line.removeprefix(_WHY)) if line.startswith(_WHY) else ""
            continue
        test, ending = parsed
        if "::" not in test or not _ENDING.fullmatch(ending) or " #" in test.rpartition("]")[2]:
            raise UsageError(
                f"{path}:{number}: a line is a test id, a space and an exception's name; "
                f"comments have lines of their own: {line.strip()!r}"
            )
        if test in entries:
            raise UsageError(f"{path}:{number}: {test} is already on line {entries[test].line}")
        entries[test] = Entry(ending, number, why)
        why = ""
    return Manifest(path, entries)


@dataclass(frozen=True)
class Changes:
    """Entries to set, tests to take out, and of those that are set the reasons that are known."""

    endings: Mapping[str, str]
    gone: Set[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)


def write_manifest(path: Path, changes: Changes) -> None:
    """Bring the file up to date in one step, and leave all else in it as it is.

    The file is read again, so that what another run has written since is kept. Raises OSError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = _HEADER
    replace_text(path, updated(text, changes))


def updated(text: str, changes: Changes) -> str:
    """The text of a manifest with these changes; comments stay where they are, but a reason goes with its entry."""
    left = dict(changes.endings)
    blocks = list(_kept_blocks(text, changes, left))
    for test in sorted(left):
        before = [index for index, (other, _) in enumerate(blocks) if other and other < test]
        after = [index for index, (other, _) in enumerate(blocks) if other > test]
        # Behind the last smaller one, so that a comment above the next one stays with it.
        at = before[-1] + 1 if before else after[0] if after else len(blocks)
        blocks.insert(at, (test, [*_reason(test, changes), f"{test} {left[test]}"]))
    return "".join(f"{line}\n" for _, lines in blocks for line in lines)


def _kept_blocks(text: str, changes: Changes, left: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The tests that stay, each with its lines, and other lines with an empty text; takes new endings out of `left`."""
    why: list[str] = []
    for line in text.splitlines():
        if line.startswith(_WHY):
            why.append(portable_text(line))  # an older version named whole paths of the machine that it ran on
            continue
        parsed = _parse(line)
        if parsed is None:
            yield "", [*why, line]
        elif parsed[0] in left:
            test, ending = parsed[0], left.pop(parsed[0])
            judged = not any(line.startswith(_WHY + NOT_JUDGED) for line in why)
            as_it_was = why if parsed[1] == ending and judged else []
            yield test, [*(as_it_was or _reason(test, changes)), f"{test} {ending}"]
        elif parsed[0] not in changes.gone:
            yield parsed[0], [*why, line]
        why = []
    if why:
        yield "", why


def _reason(test: str, changes: Changes) -> list[str]:
    reason = changes.reasons.get(test)
    return [f"{_WHY}{reason.removesuffix(':')}"] if reason else []


def _parse(line: str) -> tuple[str, str] | None:
    """Test and ending; None for comments and empty lines."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    test, _, ending = line.rpartition(" ")
    return test.strip(), ending
