"""Annotations for GitHub: why the gate failed, at the line of code that a pull request shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from anymps._text import plural, workflow_command
from anymps.pytest_plugin._baseline import New
from anymps.pytest_plugin._groups import Group, Groups
from anymps.pytest_plugin._words import times
from anymps.record import Site


def workflow_commands(
    groups: Groups,
    judged: Iterable[tuple[str, str]],
    manifest: str,
    lines: Mapping[str, int],
    new: Iterable[New] = (),
) -> Iterator[str]:
    """Workflow commands, one a line: errors for what failed unexpectedly, for the manifest and for the baseline.

    Warnings are fallbacks, and waits of tests that failed unexpectedly. `new` are lines that the baseline does not
    have. `lines` has the manifest's line of each test that it lists.
    """
    for group in (*groups.missing, *groups.refused, *groups.raised):
        if group.unexpected and group.site.known and (group.refusal is not None or group.fix):
            title = f"{group.what} on MPS" if group.message else "No MPS kernel"
            text = _with_fix(group.message or group.what, group)
            yield _command("error", group.site, title, f"{text}{_tests(group.tests)}")
    for group in groups.waits:
        if group.unexpected and group.site.known:
            # The test may have failed for another reason; one over its limit of waits names them in its own error.
            yield _command(
                "warning", group.site, "Waits for the GPU", f"{group.what}, {times(group.count)}{_tests(group.tests)}"
            )
    for group in groups.fallbacks:
        if group.site.known:
            yield _command(
                "warning", group.site, "Runs on the CPU", _with_fix(f"{group.what}, {times(group.count)}", group)
            )
    for line in new:
        title = "Runs on the CPU" if line.fallback else "Waits for the GPU"
        message = f"{line.what}, {times(line.count)}, not in the baseline{_tests(line.tests)}"
        yield _command("error", line.site, title, f"{message}\nIf that is intended, pass --mps-update-baseline.")
    for test, why in judged:
        if test in lines:
            yield _command("error", Site(manifest, lines[test]), "mps manifest", f"{test}: {why}")


def _command(level: str, site: Site, title: str, message: str) -> str:
    return workflow_command(level, {"file": _path(site.file), "line": str(site.line), "title": title}, message)


def _with_fix(message: str, group: Group) -> str:
    return f"{message}\n{group.fix}" if group.fix else message


def _tests(tests: set[str]) -> str:
    """A line that says where it happened; nothing for what lies outside of all tests."""
    names = sorted(tests - {""})
    return f"\nIn {plural(len(names), 'test')}, such as {names[0]}" if names else ""


def _path(file: str) -> str:
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    return os.path.relpath(file, root) if os.path.isabs(file) and file.startswith(root) else file
