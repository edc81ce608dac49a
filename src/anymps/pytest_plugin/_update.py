"""`--mps-update-manifest`: what is written, with a reason for each test, and without those that fail everywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from anymps._manifest import CRASHED, NOT_JUDGED, Changes, Manifest, key, write_manifest
from anymps._paths import portable_path, portable_text, project_path
from anymps._text import first_line, plural
from anymps.children import CHILDREN_VARIABLE
from anymps.cleanup import PrivateFolder
from anymps.pytest_plugin._facts import Facts
from anymps.pytest_plugin._rerun import ENDED, FOLDER, TESTS
from anymps.pytest_plugin._words import names
from anymps.record import RefusalKind

_LONGEST = 140  # of a reason, without its place: one reason is cut in one way, wherever it was met


@dataclass(frozen=True)
class Without:
    """The second run: the tests that failed there, that met mps there, and that it did not run to their end.

    `stopped`: it was interrupted, or never began because the session was.
    """

    failed: Collection[str] = ()
    met_mps: Collection[str] = ()
    not_run: Collection[str] = ()
    stopped: bool = False


def update(
    config: pytest.Config,
    manifest: Manifest,
    facts: Mapping[str, Facts],
    gone: Collection[str],
    *,
    rerun: bool,
    status: int,
) -> list[str]:
    """Write how the tests of this session ended; what to say about it. `rerun`: also ask a process without mps.

    `status` is the session's exit code.

    After an interrupt, of the session or of that process, it writes what is known, and marks what is not judged.
    Raises OSError if the file cannot be written.
    """
    root, entries = str(config.rootpath), manifest.entries
    endings = {test: own.ending for test, own in facts.items() if own.failed and not own.marked}
    asked = [test for test, ending in endings.items() if ending != CRASHED]
    without = Without()
    if rerun and asked:
        interrupted = status == pytest.ExitCode.INTERRUPTED
        without = Without(not_run=asked, stopped=True) if interrupted else _run_without_mps(config, asked)
    unjudged = set(without.not_run) if without.stopped else set()
    for test in without.failed:
        del endings[test]
    out = {test for test in facts if test in entries and test not in endings} | set(gone)
    added = len(endings.keys() - entries.keys())
    changed = sum(test in entries and entries[test].ending != ending for test, ending in endings.items())
    left_open = [test for test, entry in entries.items() if entry.why.startswith(NOT_JUDGED) and test in endings]
    if added or changed or out or left_open or not manifest.path.exists():
        reasons = {test: NOT_JUDGED * (test in unjudged) + reason(facts[test], root) for test in endings}
        write_manifest(manifest.path, Changes(endings, out, reasons))
    name = project_path(str(manifest.path), (root,))
    said = [f"manifest {name}: {added} added, {changed} changed, {len(out)} removed"]
    said += _left_out(without)
    if status == pytest.ExitCode.OK and endings and not without.failed and not without.stopped:
        said.append("Every failing test is listed: the gate passes with this manifest.")
    return said


def reason(facts: Facts, root: str) -> str:
    """Why a test fails, on one line: what MPS refused it and where, or the first line of its exception."""
    if facts.ending == CRASHED:
        return "the worker process died while the test ran"
    refusal = next(
        (it for it in reversed(facts.refusals) if it.error in facts.ending or first_line(it.message) in facts.said),
        None,
    )
    if refusal is None:
        return _line(portable_text(facts.said, root))
    text = first_line(refusal.message)
    if refusal.kind is RefusalKind.MISSING:
        text = f"{refusal.operator} has no MPS kernel"
    where = f" ({portable_path(refusal.site.file, root)})" if refusal.site.known else ""
    return _line(portable_text(text, root)) + where


def _line(text: str) -> str:
    first = key(" ".join(first_line(text).split()))
    return first if len(first) <= _LONGEST else f"{first[: _LONGEST - 3]}..."


def _left_out(without: Without) -> list[str]:
    """What the second run has changed, and what it could not judge."""
    said = []
    if without.failed:
        alone = len(without.failed) == 1
        verb, are = ("it fails", "it is") if alone else ("they fail", "they are")
        then = f"the gate fails until {are} fixed or deselected"
        said.append(f"Not written, since {verb} without mps, too ({then}): {names(without.failed)}")
    not_run = "did not run without mps"
    if without.stopped:
        not_run += " before the interrupt (run the update again)"
    for tests, why in ((without.met_mps, "asked for mps again"), (without.not_run, not_run)):
        if tests:
            subject = "it" if len(tests) == 1 else "they"
            said.append(f"Written, but not compared with the CPU, since {subject} {why}: {names(tests)}")
    return said


def _run_without_mps(config: pytest.Config, tests: Collection[str]) -> Without:
    """How the tests end in a process that has no mps device."""
    from anymps.runs import Order, run  # which need a system like Unix

    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\nmps: running {plural(len(tests), 'failing test')} again without the device")
    with PrivateFolder("anymps-rerun-") as folder:
        (folder / TESTS).write_text(json.dumps(sorted(tests)), encoding="utf-8")
        order = Order(
            ("-m", "pytest", *_arguments(config, folder)),
            on="",
            seeded=False,
            recorded=False,
            seconds=math.inf,
            may_write=True,
            # Without the first, a process of a recorded script does not get the device.
            environment={CHILDREN_VARIABLE: None, FOLDER: str(folder)},
            directory=str(config.invocation_params.dir),
        )
        stopped = False
        try:
            with run(order):
                pass
        except KeyboardInterrupt:  # the process has been killed, and what it noted before lies in the folder
            stopped = True
        file = folder / ENDED
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    ended = {test for row in rows if row["phase"] == "teardown" for test in row["tests"]}
    met_mps = {test for row in rows if row["met_mps"] for test in row["tests"]} & ended
    failed = {test for row in rows if row["failed"] for test in row["tests"]} & ended
    return Without(failed - met_mps, met_mps, set(tests) - ended, stopped)


def _arguments(config: pytest.Config, folder: Path) -> list[str]:
    """Those of this session, and behind them what takes back: the device, workers, an early end, files it writes."""
    plugins = config.pluginmanager
    back = ["--no-mps", "--maxfail=0", "-p", "anymps.pytest_plugin._rerun", "-o", f"cache_dir={folder / 'cache'}"]
    if plugins.hasplugin("xdist"):
        back.append("-n0")
    if plugins.hasplugin("_cov") or plugins.hasplugin("pytest_cov"):
        back.append("--no-cov")
    if plugins.hasplugin("capturemanager"):
        back.append("--capture=fd")  # what a test's processes print tells whether they met mps
    if hasattr(config.option, "xmlpath"):
        back.append("--junitxml=")
    return [*map(str, config.invocation_params.args), *back]
