"""What one test did on the device, as a worker sends it to the controller in a report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import _pytest

from anymps.capture import Section
from anymps.record import Fate, Refusal, Site, Wait

_ASSERTIONS = ("torch/testing/", "unittest/")
INTERRUPTED = "interrupted"
"""The ending of a test that was running when the session was interrupted."""
_SHOWS = os.path.dirname(str(_pytest.__file__)) + os.sep


@dataclass
class Facts:
    """One test, or with an empty `test` what happened outside of all tests.

    `ending` is as in the manifest, or `passed`, `skipped`, `xfailed`, `interrupted`; `expected` whether it failed as it
    should; `marked` whether `mps_fails` says how; `judgement` what the manifest has against it; `said` its first
    exception's text, `exception` what a recording keeps of it; `doctest` whether its text lies in the library's own
    file; `calls` how many operators reached the device, `real` how many of them PyTorch's own kernels computed.
    Waits leave out the copies to the device, which belong. What `torch.testing`, unittest and pytest read to compare or
    to show a tensor is left out everywhere.
    """

    test: str
    ending: str = ""
    expected: bool = False
    marked: bool = False
    judgement: str = ""
    said: str = ""
    exception: dict[str, Any] = field(default_factory=dict)
    doctest: bool = False
    calls: int = 0
    real: int = 0
    waits: Counter[tuple[str, Wait, Site]] = field(default_factory=Counter)
    fallbacks: Counter[tuple[str, Fate, Site]] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the test failed, expectedly or not."""
        return not self.ended_well and self.ending != INTERRUPTED

    @property
    def ended_well(self) -> bool:
        """Whether the test ended without failing, so that it asked for what MPS refused in it, or caught it."""
        return self.ending in ("", "passed", "skipped", "xfailed")

    def add(self, section: Section) -> None:
        """Take over what the tape holds of the test."""
        self.calls += section.calls
        self.real += section.real
        self.waits.update(counted_waits(section))
        self.fallbacks.update({key: count for key, count in section.fallbacks.items() if not _looking(key[2])})
        self.refusals += [refusal for refusal in section.refusals if not _looking(refusal.site)]


def counted_waits(section: Section) -> Counter[tuple[str, Wait, Site]]:
    """The waits that a limit counts."""
    return Counter(
        {
            (operator, wait, site): count
            for (operator, wait, site), count in section.waits.items()
            if wait is not Wait.COPY_TO_MPS and not _looking(site)
        }
    )


def unmarked_fallbacks(section: Section, marked: Sequence[str]) -> Counter[tuple[str, Fate, Site]]:
    """Fallbacks of operators that are not named, neither as such nor without their overload."""
    return Counter(
        {
            (operator, fate, site): count
            for (operator, fate, site), count in section.fallbacks.items()
            if operator not in marked and operator.partition(".")[0] not in marked and not _looking(site)
        }
    )


def files_of_tests(all_facts: Iterable[Facts], root: str) -> frozenset[str]:
    """The test modules among which `is_own_reading` looks. A doctest lies in the library's own file."""
    return frozenset(
        os.path.join(root, facts.test.partition("::")[0]) for facts in all_facts if facts.test and not facts.doctest
    )


def is_own_reading(site: Site, files: frozenset[str]) -> bool:
    """Whether a wait is a test module's or a conftest's own, or has no file, as the lines of a doctest."""
    return site.file in files or site.file.endswith("/conftest.py") or site.file.startswith("<")


def _looking(site: Site) -> bool:
    """Whether an assertion of torch or unittest compared tensors, or pytest showed some: that is not what is tested."""
    return site.via.startswith(_ASSERTIONS) or site.file.startswith(_SHOWS)
