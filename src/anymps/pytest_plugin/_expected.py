"""What a recording keeps about the session's tests: lines whose errors every test expected, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from anymps._manifest import Manifest, key
from anymps._text import plural
from anymps.pytest_plugin._facts import Facts


def own_packages(root: Path) -> list[str]:
    """The packages of a project, which its tests may take from where they are installed."""
    places = sorted({*root.glob("*/__init__.py"), *root.glob("src/*/__init__.py")})
    return sorted({place.parent.name for place in places})


def suite_facts(
    all_facts: Iterable[Facts], manifest: Manifest | None, name: str, own: Sequence[str] = ()
) -> dict[str, object]:
    """The recording's `suite`; `name` is the manifest's file as it is shown, `own` the packages of the project.

    A line stands in it if each test that met a refusal there failed as it should, or did not fail.
    """
    facts = list(all_facts)
    tests: dict[tuple[str, int], dict[str, Facts]] = {}
    news: set[tuple[str, int]] = set()
    for test in facts:
        for refusal in test.refusals:
            place = (refusal.site.file, refusal.site.line)
            if test.test and (test.expected or test.ended_well):
                tests.setdefault(place, {})[test.test] = test
            else:
                news.add(place)
    rows = [
        {"file": place[0], "line": place[1], "why": _why(list(met.values()), manifest, name)}
        for place, met in sorted(tests.items())
        if place not in news
    ]
    return {
        "tests": sum(test.ending not in ("", "skipped") for test in facts),
        "failed": sum(test.failed and not test.expected for test in facts),
        "excused": sum(test.expected for test in facts),
        "manifest": name,
        "expected": rows,
        **({"own": list(own)} if own else {}),
    }


def _why(tests: list[Facts], manifest: Manifest | None, name: str) -> str:
    """`expected by m.txt:3 (test_it.py::test_eig and 2 more tests)`: what fails comes before what was caught."""
    first = min(tests, key=lambda test: (not test.expected, test.marked, test.ending != "xfailed", test.test))
    names = first.test + (f" and {plural(len(tests) - 1, 'more test')}" if len(tests) > 1 else "")
    if first.expected and first.marked:
        return f"expected by the mark mps_fails ({names})"
    if first.expected and manifest is not None:
        entry = manifest.entries.get(key(first.test))
        return f"expected by {name}{f':{entry.line}' if entry is not None else ''} ({names})"
    if first.ending == "xfailed":
        return f"expected by the mark xfail ({names})"
    return f"caught by a test that passed ({names})"
