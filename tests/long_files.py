"""The test files that take longest run first: with one of them left at the end, other processes would wait for it."""

from __future__ import annotations

from typing import Final

import pytest

LONG: Final = (
    # Of the slow tests.
    "tests/capture/test_sources_agree.py",
    "tests/integration/test_fix_command.py",
    "tests/integration/test_plan_command.py",
    "tests/integration/test_plan_what_ifs.py",
    "tests/integration/test_example_reports.py",
    "tests/integration/test_shape_models.py",
    "tests/cost/test_cost_fit.py",
    "tests/fuzz/test_slice.py",
    "tests/verify/test_verify_command.py",
    "tests/integration/test_site.py",
    "tests/integration/test_plan_endings.py",
    "tests/integration/test_recipes.py",
    "tests/integration/test_compare_command.py",
    "tests/integration/test_compiled.py",
    "tests/integration/test_plan_writes_nothing.py",
    "tests/core/test_build.py",
    "tests/metal/test_metal_same.py",
    # Of the other whole programs.
    "tests/integration/test_tutorial.py",
    "tests/integration/test_hostile_folder.py",
    "tests/integration/test_workflow_steps.py",
    "tests/integration/test_pytest_processes.py",
    "tests/integration/test_page_in_browser.py",
    "tests/integration/test_quick_start.py",
    "tests/integration/test_trainers.py",
    "tests/integration/test_models.py",
    "tests/integration/test_notebooks.py",
    "tests/integration/test_shader_signals.py",
    "tests/integration/test_children.py",
    "tests/integration/test_bench_processes.py",
    "tests/integration/test_start_method.py",
    "tests/integration/test_live_pages.py",
    # Of the unit tests.
    "tests/findings/test_rule_examples.py",
    "tests/conformance/test_slice.py",
    "tests/device/test_leaks.py",
    "tests/device/test_gpus.py",
    "tests/kernels/test_kernels_mode.py",
    "tests/kernels/test_kernels_releases.py",
    "tests/kernels/test_kernels_offered.py",
    "tests/commands/test_run.py",
    "tests/core/test_enable.py",
    "tests/pytest_plugin/test_pytest_reports.py",
    "tests/findings/test_hazards.py",
    "tests/core/test_philox.py",
    "tests/test_examples.py",
    "tests/fix/test_fix_check.py",
    "tests/commands/test_without_torch.py",
    "tests/core/test_native_units.py",
)
"""From 20 s on, on two busy cores; in each group the longest first. xdist would begin with those of most tests."""

_PLACES: Final = {file: place for place, file in enumerate(LONG)}


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of long files first; the others, and the tests of one file, stay in their order."""
    items.sort(key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(LONG)))
