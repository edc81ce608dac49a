"""The baseline: the lines of code that are known to wait for the GPU or to run on the CPU, in a text file.

    item  src/loop.py train  | total += loss.item()
    aten::take  src/ops.py pick  | return torch.take(x, i)

An entry is what happens, two blanks, file and function, and the text of the line. How often it happens does not matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps.pytest_plugin._facts import Facts, files_of_tests, is_own_reading
from anymps.record import Site, Wait

if TYPE_CHECKING:
    from anymps.record import Known

_LINE = re.compile(r"(?P<what>\S.*?)  (?P<file>\S.*?) (?P<function>\S+)  \| (?P<source>.*)")
_HEADER = """\
# Known lines that wait for the GPU or run on the CPU when the tests run on mps.
# `pytest --mps` with this baseline fails if another line does. `--mps-update-baseline` adds those of a run, and
# removes those whose text is no longer in the file. Comments have lines of their own.

"""


@dataclass
class New:
    """A line that is not in the baseline: where it is, how often it happened, in which tests."""

    what: str
    site: Site
    fallback: bool
    count: int = 0
    tests: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Baseline:
    """A file's lines; `number` says which line of the file each is on."""

    path: Path
    known: Mapping[Known, int]

    def new(self, all_facts: Iterable[Facts], root: str) -> list[New]:
        """The lines that the tests met and the file does not have; without what test modules read for themselves."""
        found: dict[tuple[Known, int], New] = {}
        facts = list(all_facts)
        files = files_of_tests(facts, root)
        for test in facts:
            for what, site, count, fallback in _happened(test):
                if not site.known or (not fallback and is_own_reading(site, files)):
                    continue
                name = _named(what, site, root)
                if name not in self.known:
                    new = found.setdefault((name, site.line), New(what, site, fallback))
                    new.count += count
                    new.tests.add(test.test)
        return [found[key] for key in sorted(found, key=lambda key: (key[0].file, key[1], key[0].what))]

    def update(self, new: Iterable[New], root: str) -> tuple[int, int]:
        """Write the file with these lines, and without those that are gone; how many of each. Raises OSError."""
        added = {_named(line.what, line.site, root) for line in new}
        gone = {name for name in self.known if _is_gone(name, root)}
        if not added and not gone and self.path.exists():
            return 0, 0
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else _HEADER
        kept = [line for line in text.splitlines() if _parse(line) not in gone]
        order = sorted(added, key=lambda known: (known.file, known.what, known.source, known.function))
        replace_text(self.path, "".join(f"{line}\n" for line in [*kept, *map(_line, order)]))
        return len(added), len(gone)


def read_baseline(path: Path) -> Baseline:
    """Read a baseline. Raises UsageError, in one line, for a line that is no entry; OSError and UnicodeDecodeError."""
    known: dict[Known, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name = _parse(line)
        if name is not None:
            known[name] = number
        elif line.strip() and not line.startswith("#"):
            raise UsageError(
                f"{path}:{number}: a line is what happens, file and function, and the line's text "
                f"(`item  src/loop.py train  | x.item()`): {line.strip()!r}"
            )
    return Baseline(path, known)


def _named(what: str, site: Site, root: str) -> Known:
    """A line as the file names it: each of the four parts has a text there."""
    from anymps.record import known_as

    known = known_as(what, site, (root,))
    return known._replace(function=known.function or "<module>")


def _happened(facts: Facts) -> Iterator[tuple[str, Site, int, bool]]:
    for (operator, _, site), count in facts.fallbacks.items():
        yield operator, site, count, True
    for (_, wait, site), count in facts.waits.items():
        if wait is not Wait.FALLBACK:
            yield wait.label, site, count, False


def _is_gone(name: Known, root: str) -> bool:
    """Whether the suite's own file has no such line any more; what lies in other packages cannot be told."""
    path = Path(root) / name.file
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return os.path.isdir(os.path.join(root, name.file.partition("/")[0]))
    except (OSError, UnicodeDecodeError):
        return False
    return bool(name.source) and name.source not in (" ".join(line.split()) for line in lines)


def _line(known: Known) -> str:
    return f"{known.what}  {known.file} {known.function}  | {known.source}"


def _parse(line: str) -> Known | None:
    match = _LINE.fullmatch(line.strip()) if not line.startswith("#") else None
    if match is None:
        return None
    from anymps.record import known_from

    return known_from(*match.group("what", "file", "function", "source"))
