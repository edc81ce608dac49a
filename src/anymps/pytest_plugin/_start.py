"""Switches the device on for a pytest run, and registers the gate."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anymps._atomic import check_writable
from anymps._command_settings import PytestSettings
from anymps._errors import AnympsError, RecordingError, UsageError
from anymps._manifest import Manifest, read_manifest
from anymps._settings import set_variable
from anymps.capture import DETAIL_LIMIT
from anymps.children import stand_aside
from anymps.device import State, enable, give_to_children
from anymps.pytest_plugin._baseline import Baseline, read_baseline
from anymps.pytest_plugin._gate import Gate
from anymps.pytest_plugin._options import read_settings, runs_tests
from anymps.pytest_plugin._reports import Reports
from anymps.pytest_plugin._summary import Expected, Summary

_File = TypeVar("_File")


def switch_on(config: pytest.Config, options: argparse.Namespace) -> tuple[PytestSettings, State]:
    """Read the settings and make the device. Doing it twice is harmless.

    Raises UsageError, in one line, for wrong values and where no device can be had.
    """
    settings = read_settings(config, options)
    stand_aside()  # a recorded script may have started this pytest
    try:
        # Quiet, as the header says it: pytest captures, and with pytest-xdist would print the line below its last one.
        # How the tests' processes start is their own business. None of those is judged, but those that start afresh
        # have the device, as on a Mac.
        state = enable(**{**settings.device(), "start_method": "system"}, quiet=True)
    except AnympsError as error:
        text = error.reason.replace("--require", "--mps-require")
        raise pytest.UsageError(f"--mps: {text}") from None
    if settings.mac is not None:
        set_variable("mac", settings.mac)  # a child process that enables the device gets the same Mac
    settings.hand_on()
    if state.mac is not None:
        give_to_children(state.mac)
    return settings, state


def install(config: pytest.Config) -> None:
    """Register the two plugins: one watches the tests where they run, the other reports where pytest was started."""
    # Again, for a worker of pytest-xdist that loads the plugin (`-p anymps.pytest_plugin`) after its conftests.
    settings, state = switch_on(config, config.option)
    if not runs_tests(config.option):
        settings = replace(
            settings, manifest=None, update_manifest=False, baseline=None, update_baseline=False,
            recording=None, reports=(),
        )  # fmt: skip
    worker = getattr(config, "workerinput", None)
    if settings.recording is not None and worker is None:
        _check_recording(settings.recording)
    manifest = _read("manifest", settings.manifest, settings.update_manifest, read_manifest, Manifest)
    detail_limit = DETAIL_LIMIT
    reports = None
    if worker is not None:
        from anymps.pytest_plugin._parts import of_worker

        path, detail_limit = of_worker(worker)
        settings = replace(settings, recording=path)
    elif settings.reports:
        reports = Reports(config, settings)
        settings = replace(settings, recording=reports.path)
    gate = Gate(config, settings, manifest, detail_limit)
    config.pluginmanager.register(gate, "anymps-gate")
    if worker is None:
        baseline = _read("baseline", settings.baseline, settings.update_baseline, read_baseline, Baseline)
        summary = Summary(config, settings, state, Expected(manifest, baseline), gate, reports)
        config.pluginmanager.register(summary, "anymps-summary")


def _check_recording(path: Path) -> None:
    """Raise pytest.UsageError, in one line, for a place that no recording can take: workers make theirs elsewhere."""
    from anymps.record import check_recordable

    try:
        check_recordable(path)
    except RecordingError as error:
        raise pytest.UsageError(f"--mps-recording: {error}") from None


def _read(
    name: str, path: Path | None, update: bool, read: Callable[[Path], _File], empty: Callable[[Path, Any], _File]
) -> _File | None:
    """What the file of `--mps-NAME` holds; an `empty` one where an update is about to make it.

    Raises pytest.UsageError, in one line, if it is missing, cannot be read or updated, or makes no sense.
    """
    if path is None:
        return None
    if update:
        try:
            check_writable(path)
        except OSError as error:
            raise pytest.UsageError(f"--mps-{name} {path} cannot be written: {error.strerror or error}") from None
    try:
        return read(path)
    except FileNotFoundError:
        if not update:
            raise pytest.UsageError(f"--mps-{name} {path} does not exist: write it with --mps-update-{name}") from None
        return empty(path, {})
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--mps-{name} {path} cannot be read: {error}") from None
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
