"""Switches the device on for a pytest run, and registers the gate."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from anymps._command_settings import PytestSettings
from anymps._errors import AnympsError, UsageError
from anymps._manifest import Manifest, read_manifest
from anymps._settings import set_variable
from anymps.capture import DETAIL_LIMIT
from anymps.children import stand_aside
from anymps.device import State, enable
from anymps.pytest_plugin._baseline import read_baseline
from anymps.pytest_plugin._gate import Gate
from anymps.pytest_plugin._options import read_settings, runs_tests
from anymps.pytest_plugin._original_python import remember
from anymps.pytest_plugin._summary import Expected, Summary


def switch_on(config: pytest.Config, options: argparse.Namespace) -> tuple[PytestSettings, State]:
    """Read the settings and make the device. Doing it twice is harmless.

    Raises UsageError, in one line, for wrong values and where no device can be had.
    """
    settings = read_settings(config, options)
    remember(config, settings)
    stand_aside()  # a recorded script may have started this pytest
    try:
        # Quiet, as the header says it: pytest captures, and with pytest-xdist would print the line below its last one.
        # How the tests' processes start is their own business, and none of those is judged.
        state = enable(**{**settings.device(), "start_method": "system"}, quiet=True)
    except AnympsError as error:
        text = str(error).removeprefix("anymps: ").replace("--require", "--mps-require")
        raise pytest.UsageError(f"--mps: {text}") from None
    if settings.mac is not None:
        set_variable("mac", settings.mac)  # a child process that enables the device gets the same Mac
    settings.hand_on()
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
    manifest = _manifest(settings)
    worker = getattr(config, "workerinput", None)
    detail_limit = DETAIL_LIMIT
    reports = None
    if worker is not None:
        from anymps.pytest_plugin._parts import of_worker

        path, detail_limit = of_worker(worker)
        settings = replace(settings, recording=path)
    elif settings.reports:
        from anymps.pytest_plugin._reports import Reports  # renderers take their time to load

        reports = Reports(config, settings)
        settings = replace(settings, recording=reports.path)
    gate = Gate(config, settings, manifest, detail_limit)
    config.pluginmanager.register(gate, "anymps-gate")
    if worker is None:
        baseline = None
        if settings.baseline is not None:
            baseline = read_baseline(settings.baseline, update=settings.update_baseline)
        summary = Summary(config, settings, state, Expected(manifest, baseline), gate, reports)
        config.pluginmanager.register(summary, "anymps-summary")


def _manifest(settings: PytestSettings) -> Manifest | None:
    path = settings.manifest
    if path is None:
        return None
    if settings.update_manifest and not path.exists():
        if not path.parent.is_dir():
            raise pytest.UsageError(f"--mps-manifest {path}: there is no directory {path.parent}")
        return Manifest(path, {})
    try:
        return read_manifest(path)
    except FileNotFoundError:
        raise pytest.UsageError(f"--mps-manifest {path} does not exist: write it with --mps-update-manifest") from None
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--mps-manifest {path} cannot be read: {error}") from None
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
