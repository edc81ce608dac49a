"""The manifest: a text file with one line for each test that is expected to fail, and how it fails.

    # aten::linalg_eig has no MPS kernel
    tests/test_linalg.py::test_eig[float32, 2x2] NotImplementedError
    tests/test_models.py::test_load RuntimeError@setup

A line is a test id, a space, and the name of the exception's class. Failures outside of the test's own call carry their
phase, and several are joined: `AssertionError+RuntimeError@teardown`. Parts of a test (subtests) may fail in different
ways: `KeyError+ValueError`. A comment is a line of its own.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import pytest

_FAILURE = r"[^\W\d]\w*(?:@(?:setup|teardown))?"
_ENDING = re.compile(rf"{_FAILURE}(?:\+{_FAILURE})*")
_HEADER = """\
# Tests that fail on mps, each with the exception it ends with.
# `pytest --mps` with this manifest fails if one of them passes, is skipped, fails in another way or is gone, and if
# another test fails. `--mps-update-manifest` writes the endings of a run. A comment is a line of its own.

"""


@dataclass(frozen=True)
class Entry:
    """One expected failure: how it ends, and the line of the file."""

    ending: str
    line: int

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
    if test.isprintable():
        return test
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in test)


def ending_of(failures: Mapping[str, Set[str]]) -> str:
    """How a test ended, by phase and exceptions; the empty text if nothing failed."""
    return "+".join(
        name + ("" if phase == "call" else f"@{phase}")
        for phase in ("setup", "call", "teardown")
        for name in sorted(failures.get(phase, ()))
    )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises UsageError, in one line, for a file that is missing or a line that is no entry."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise pytest.UsageError(f"--mps-manifest {path} does not exist: write it with --mps-update-manifest") from None
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--mps-manifest {path} cannot be read: {error}") from None
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parsed = _parse(line)
        if parsed is None:
            continue
        test, ending = parsed
        if "::" not in test or not _ENDING.fullmatch(ending) or " #" in test.rpartition("]")[2]:
            raise pytest.UsageError(
                f"{path}:{number}: a line is a test id, a space and an exception's name; "
                f"comments have lines of their own: {line.strip()!r}"
            )
        if test in entries:
            raise pytest.UsageError(f"{path}:{number}: {test} is on line {entries[test].line} already")
        entries[test] = Entry(ending, number)
    return Manifest(path, entries)


def write_manifest(path: Path, endings: Mapping[str, str], gone: Set[str]) -> None:
    """Bring the file up to date in one step: set these entries, take those out, leave all else as it is.

    The file is read again, so that what another run has written since is kept. Raises OSError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = _HEADER
    replace_text(path, updated(text, endings, gone))


def replace_text(path: Path, text: str) -> None:
    """Write a file in one step, with the mode that it has. Raises OSError."""
    target = os.path.realpath(path)  # a link stays one
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(fresh, os.stat(target).st_mode & 0o7777 if os.path.exists(target) else 0o644)
        os.replace(fresh, target)
    except BaseException:
        os.unlink(fresh)
        raise


def updated(text: str, endings: Mapping[str, str], gone: Set[str]) -> str:
    """The text of a manifest with these entries set and those taken out; comments stay where they are."""
    lines: list[str] = []
    tests: list[str] = []  # beside each line, its test; the empty text for others
    left = dict(endings)
    for line in text.splitlines():
        parsed = _parse(line)
        test = parsed[0] if parsed is not None else ""
        if test in gone:
            continue
        lines.append(f"{test} {left.pop(test)}" if test in left else line)
        tests.append(test)
    for test in sorted(left):
        before = [index for index, other in enumerate(tests) if other and other < test]
        after = [index for index, other in enumerate(tests) if other > test]
        # Behind the last smaller one, so that a comment above the next one stays with it.
        at = before[-1] + 1 if before else after[0] if after else len(lines)
        lines.insert(at, f"{test} {left[test]}")
        tests.insert(at, test)
    return "".join(f"{line}\n" for line in lines)


def _parse(line: str) -> tuple[str, str] | None:
    """Test and ending; None for comments and empty lines."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    test, _, ending = line.rpartition(" ")
    return test.strip(), ending
