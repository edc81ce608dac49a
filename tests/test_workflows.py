"""The files for GitHub and pre-commit: what they name exists, and nothing in them can be injected."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from anymps.commands import _commands
from anymps.rules import NEWEST, OLDEST, parse_torch_version
from sanitized import SANITIZERS
from test_docs import mistakes

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"


def load(path: Path) -> Any:
    """The file's content. `on` is a boolean to YAML 1.1; here it is the key True."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow, or of the action."""
    parts = [load(path)["runs"]] if path == ACTION else load(path)["jobs"].values()
    return [step for part in parts for step in part["steps"]]


def test_they_are_there() -> None:
    """One for each change, one for each night, one for a real Mac, one for releases."""
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "nightly.yml", "real-mac.yml", "release.yml"]


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_actions_have_a_version_and_jobs_an_end(path: Path) -> None:
    """Each action is pinned by a tag, each job has a time limit."""
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        assert re.fullmatch(r"[\w./-]+@(release/)?v\d+", step.get("uses", "a/b@v1")), step
    assert all(job["timeout-minutes"] <= 60 for job in load(path).get("jobs", {}).values())


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_no_input_is_part_of_a_command(path: Path) -> None:
    """Inputs reach the shell as variables: only the matrix, which is the file's own, stands in a command."""
    for step in steps(path):
        assert re.findall(r"\$\{\{(?! *matrix\.)[^}]*\}\}", step.get("run", "")) == []


def test_inputs_of_the_action_are_used_and_explained() -> None:
    """Each input is described, has a default, is used, and has its row in docs/ci.md with that default."""
    inputs = load(ACTION)["inputs"]
    assert set(re.findall(r"inputs\.([\w-]+)", ACTION.read_text(encoding="utf-8"))) == set(inputs)
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \|(.*?)\| (.+) \|$", page, re.MULTILINE)
    shown = {name: default.strip("` ") for name, default, _ in rows}
    assert shown | {"torch-index": ""} == {name: entry["default"] for name, entry in inputs.items()}
    assert all(entry["description"] for entry in inputs.values())


def test_the_example_uses_the_action() -> None:
    """The step that docs/ci.md shows passes inputs that exist."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text("utf-8"), re.DOTALL)
    jobs = [job for block in blocks for job in yaml.safe_load(block).get("jobs", {}).values()]
    ((before, step),) = (
        pair for job in jobs for pair in pairwise(job["steps"]) if str(pair[1].get("uses")).startswith("./")
    )
    assert (before["uses"], f"./{before['with']['path']}") == ("actions/checkout@v4", step["uses"])
    assert set(step["with"]) <= set(load(ACTION)["inputs"])


def test_what_is_supported_is_tested() -> None:
    """The matrix of ci.yml holds each Python and each release of torch that pyproject.toml supports, and no other."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    matrix = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    matrix = [job for job in matrix if not job.get("next")]  # what is to come turns nothing red
    assert {job["python"] for job in matrix} == set(re.findall(r"Python :: (3\.\d+)", project))
    assert f'torch>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"' in project
    releases = [(OLDEST[0], minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert [parse_torch_version(job["torch"]).release for job in matrix] == releases


def test_a_release_is_checked_before_it_is_published() -> None:
    """Nothing is published that was not built and checked; each job has only the rights that it needs, no secret."""
    path = ROOT / ".github" / "workflows" / "release.yml"
    jobs = load(path)["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "wheels": None,
        "publish": ["build", "wheels"],
        "tag": "publish",
        "docs": "publish",
    }
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"] and "permissions" not in jobs["wheels"]
    assert "secrets." not in path.read_text(encoding="utf-8")
    assert load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["continue-on-error"].startswith(
        "${{ matrix.next"
    )


def test_wheels_have_a_core_for_each_release_of_torch() -> None:
    """For each Python and each release of torch that pyproject.toml supports."""
    job = load(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["wheels"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pythons = [f"cp{version.replace('.', '')}" for version in re.findall(r"Python :: (3\.\d+)", project)]
    assert job["strategy"]["matrix"]["python"] == [f"{python}-{python}" for python in pythons]
    releases = [f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert job["env"]["TORCH"].split() == releases


def test_the_hook_is_a_command() -> None:
    """The hook of pre-commit, with the arguments that docs/ci.md gives it, is a command line that anymps takes."""
    (hook,) = load(ROOT / ".pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language", "pass_filenames", "stages"} <= set(hook)
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (repository,) = yaml.safe_load(re.findall(r"```yaml\n(repos:.*?)```", text, re.DOTALL)[0])["repos"]
    (use,) = repository["hooks"]
    assert use.items() <= {**hook, "args": use["args"]}.items()
    words = [*shlex.split(hook["entry"]), *use["args"]]
    assert list(mistakes(words)) == []
    run = _commands.get_command(click.Context(_commands), "run")
    assert run is not None
    context = run.make_context("run", words[2:])
    assert context.params["fail_on"] is not None
    assert f"`{shlex.join(words)}`".replace("'", '"') in text


STRESS = "ANYMPS_STRESS"


def test_the_night_has_a_new_seed_and_every_sanitizer() -> None:
    """A new seed, more stress than in the suite, and the sanitizers that tests/sanitized.py proves."""
    jobs = load(ROOT / ".github" / "workflows" / "nightly.yml")["jobs"]
    assert jobs["fuzz"]["env"]["ANYMPS_FUZZ_SEED"] == "${{ github.run_number }}"
    assert int(jobs["stress"]["env"][STRESS]) > 1
    assert f'os.environ.get("{STRESS}"' in (ROOT / "tests" / "device" / "test_stress.py").read_text(encoding="utf-8")
    assert [step["run"] for step in jobs["stress"]["steps"] if "run" in step] == ["make stress"]
    assert jobs["sanitizers"]["strategy"]["matrix"]["sanitizer"] == list(SANITIZERS)
