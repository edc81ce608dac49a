"""`--mps-update-manifest`: what is written, with a reason for each test, and without those that fail everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from anymps._manifest import CRASHED, Changes, Manifest, key, write_manifest
from anymps.pytest_plugin._facts import Facts
from anymps.pytest_plugin._limits import plural, relative
from anymps.pytest_plugin._rerun import FAILED, FOLDER, TESTS
from anymps.record import RefusalKind

_LONGEST = 140  # of a reason
_NAMES = 3


def update(
    config: pytest.Config, manifest: Manifest, facts: Mapping[str, Facts], gone: Collection[str], *, rerun: bool
) -> list[str]:
    """Write how the tests of this session ended; what to say about it. `rerun`: also ask a process without mps.

    Raises OSError if the file cannot be written.
    """
    root, entries = str(config.rootpath), manifest.entries
    endings = {test: it.ending for test, it in facts.items() if it.failed and not it.marked}
    asked = [test for test, ending in endings.items() if ending != CRASHED]
    everywhere = _fail_without_mps(config, asked) if rerun and asked else set()
    for test in everywhere:
        del endings[test]
    out = {test for test in facts if test in entries and test not in endings} | set(gone)
    added = len(endings.keys() - entries.keys())
    changed = sum(test in entries and entries[test].ending != ending for test, ending in endings.items())
    if added or changed or out or not manifest.path.exists():
        reasons = {test: reason(facts[test], root) for test in endings}
        write_manifest(manifest.path, Changes(endings, out, reasons))
    name = relative(str(manifest.path), root)
    said = [f"manifest {name}: {added} added, {changed} changed, {len(out)} removed"]
    if everywhere:
        names = sorted(everywhere)
        more = f" and {plural(len(names) - _NAMES, 'more test')}" if len(names) > _NAMES else ""
        verb = "fails" if len(names) == 1 else "fail"
        said.append(f"Not written, since they {verb} without mps, too: {', '.join(names[:_NAMES])}{more}")
        if len(names) == 1:
            said[-1] = said[-1].replace("since they", "since it")
    return said


def reason(facts: Facts, root: str) -> str:
    """Why a test fails, on one line: what MPS refused it and where, or the first line of its exception."""
    if facts.ending == CRASHED:
        return "the worker process died while the test ran"
    refusal = next((it for it in reversed(facts.refusals) if it.error in facts.ending), None)
    if refusal is None:
        return _line(facts.said)
    text = refusal.message.partition("\n")[0]
    if refusal.kind is RefusalKind.MISSING:
        text = f"{refusal.operator} has no MPS kernel"
    where = f" ({relative(refusal.site.file, root)})" if refusal.site.known else ""
    return _line(text, len(where)) + where


def _line(text: str, less: int = 0) -> str:
    first = key(" ".join(text.strip().partition("\n")[0].split()))
    room = max(_LONGEST - less, 40)
    return first if len(first) <= room else f"{first[: room - 3]}..."


def _fail_without_mps(config: pytest.Config, tests: Collection[str]) -> set[str]:
    """Those of the tests that fail as well in a process that has no mps device."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\nmps: running {plural(len(tests), 'failing test')} again without the device")
    with tempfile.TemporaryDirectory(prefix="anymps-rerun-") as name:
        folder = Path(name)
        (folder / TESTS).write_text(json.dumps(sorted(tests)), encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "pytest", *_arguments(config, folder)],
            check=False,
            cwd=config.invocation_params.dir,
            env={**os.environ, FOLDER: name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        file = folder / FAILED
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    return {row["test"] for row in rows} - {row["test"] for row in rows if row["about_mps"]}


def _arguments(config: pytest.Config, folder: Path) -> list[str]:
    """Those of this session, and behind them what takes back: the device, workers, an early end, files it writes."""
    plugins = config.pluginmanager
    back = ["--no-mps", "--maxfail=0", "-p", "anymps.pytest_plugin._rerun", "-o", f"cache_dir={folder / 'cache'}"]
    if plugins.hasplugin("xdist"):
        back.append("-n0")
    if plugins.hasplugin("_cov") or plugins.hasplugin("pytest_cov"):
        back.append("--no-cov")
    if hasattr(config.option, "xmlpath"):
        back.append("--junitxml=")
    return [*map(str, config.invocation_params.args), *back]
