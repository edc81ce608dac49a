"""Kernels of another release than the installed one: as a mode, on the command line, and compared with each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anymps.rules import NEWEST, OLDEST, parse_torch_version
from anymps.rules.faults import all_hazards
from kernel_files import add_to_cache, elementwise
from own_cache import new_cache
from processes import MAC, run_command, run_with_torch

INSTALLED = torch.__version__.partition("+")[0]
OTHER = next(
    f"2.{minor}.7" for minor in range(OLDEST[1], NEWEST[1] + 1) if not INSTALLED.startswith(f"{OLDEST[0]}.{minor}.")
)
SHORT = OTHER.rpartition(".")[0]
NAME = "add_dense_float_float"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, virtual_device: None) -> dict[str, str]:
    """The installed release's sum takes the difference, the other one's the product."""
    cache = new_cache(tmp_path_factory.mktemp("kernels") / "cache")
    for release, operation in ((INSTALLED, "fsub"), (OTHER, "fmul")):
        add_to_cache(cache, {NAME: elementwise(NAME, operation)}, release)
    return {"ANYMPS_CACHE_DIR": str(cache)}


def test_the_kernels_of_another_release_compute(kernels: dict[str, str]) -> None:
    """By its number; the banner says whose they are, and child processes find it."""
    code = f"""
        import anymps, os, torch
        state = anymps.enable({MAC!r}, kernels={SHORT!r})
        x = torch.full((3,), 5.0, device="mps")
        print((x + x).tolist(), state.kernels, state.kernels_torch, os.environ["ANYMPS_KERNELS"])
        print(anymps.enable(kernels={OTHER!r}) is state)
        try:
            anymps.enable(kernels="real")
        except anymps.EnableError as error:
            print(error)
    """
    result = run_with_torch(code, kernels)
    assert result.lines == [
        f"[25.0, 25.0, 25.0] real {OTHER} {SHORT}",
        "True",
        f"anymps: the device is already on with kernels={OTHER!r}; start a new process for kernels='real'",
    ]
    assert result.err.endswith(f"on this machine's CPU and by the kernels of torch {OTHER}; not a real Mac\n")


def test_the_installed_releases_number_means_its_kernels(kernels: dict[str, str]) -> None:
    """As `real` does."""
    code = f"""
        import anymps, torch
        state = anymps.enable({MAC!r}, kernels={INSTALLED!r})
        x = torch.full((3,), 5.0, device="mps")
        print((x + x).tolist(), anymps.enable(kernels="real") is state)
    """
    result = run_with_torch(code, kernels)
    assert result.lines == ["[0.0, 0.0, 0.0] True"]
    assert result.err.endswith("on this machine's CPU and by PyTorch's own kernels; not a real Mac\n")


@pytest.mark.parametrize(("asked", "release"), [("real", INSTALLED), (SHORT, OTHER)])
def test_known_faults_are_those_of_the_kernels_release(kernels: dict[str, str], asked: str, release: str) -> None:
    """A sum with an element of a CPU table: MPS605, in the releases that have it."""
    code = f"""
        import anymps, torch
        anymps.enable({MAC!r}, kernels={asked!r})
        from anymps.findings import find
        x, table = torch.ones(3, device="mps"), torch.ones(3)
        with anymps.record() as capture:
            x + table[1]
        print([found.id for found in find(capture.recording) if found.id == "MPS605"])
    """
    fault = next(fault for fault in all_hazards() if fault.id == "MPS605")
    has = fault.since <= parse_torch_version(release).release <= fault.until
    assert run_with_torch(code, kernels).lines == [str(["MPS605"] * has)]


def test_a_report_says_whose_kernels_computed(kernels: dict[str, str], tmp_path: Path) -> None:
    """The sentence, and the release in JSON."""
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(8, device='mps')\nfor _ in range(6): x + x\n")
    words = ("run", "--kernels", SHORT, "--report", f"json={tmp_path / 'r.json'}", str(tmp_path / "train.py"))
    result = run_command("-m", "anymps", *words, env=kernels)
    assert result.status == 0, result.err
    assert any(line.startswith(f"The kernels of torch {OTHER} computed 6 of ") for line in result.err.splitlines())
    assert json.loads((tmp_path / "r.json").read_text())["real_kernels"]["torch"] == OTHER


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("2.9", f"the Metal kernels of torch 2.9 are not known, only those of torch 2.{OLDEST[1]} to 2.{NEWEST[1]}"),
        (
            f"{SHORT}.99",
            f"the Metal kernels of torch {SHORT}.99 have not been added: run "
            f"`anymps kernels add --torch {SHORT}.99 --download`",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_kernels_that_are_missing_are_one_line(
    command: str, release: str, said: str, kernels: dict[str, str], tmp_path: Path
) -> None:
    """With the exit code of a bad environment, before the script runs."""
    (tmp_path / "s.py").write_text("print('ran')\n")
    words = ["--kernels", release] if command == "run" else ["--of", INSTALLED, "--with", release]
    result = run_command("-m", "anymps", command, *words, str(tmp_path / "s.py"), env=kernels)
    assert (result.status, result.out, result.err) == (2, "", f"anymps: {said}\n")


TRAINING = """
import torch
w = torch.ones(3, device="mps", requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = (w{sum}).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def compared(folder: Path, text: str, env: dict[str, str]) -> tuple[int, dict[str, object], str]:
    """Exit code, JSON and the report, of the installed release's kernels with the other's."""
    (folder / "train.py").write_text(text)
    words = ("compare", "--of", INSTALLED, "--with", SHORT, "--report", f"json={folder}/found.json")
    result = run_command("-m", "anymps", *words, str(folder / "train.py"), env=env)
    found = json.loads((folder / "found.json").read_text())
    return result.status, found, result.err


@pytest.mark.slow
def test_two_releases_are_compared_call_by_call(kernels: dict[str, str], tmp_path: Path) -> None:
    """The first call whose numbers differ is the planted one, at its line; the losses follow."""
    status, found, said = compared(tmp_path, TRAINING.format(sum=" + w"), kernels)
    assert status == 1, said
    assert said == (
        f"anymps: running on {INSTALLED}'s kernels and on {SHORT}'s kernels ...\n"
        f"anymps: report: {tmp_path}/found.json\n"
    )
    assert found["verdict"] == "The runs diverge in step 1 at train.py:6: different results from the same inputs."
    first = found["divergences"][0]  # type: ignore[index]
    assert first["call"]["operator"] == "aten.add.Tensor"
    assert f"the kernels of torch {INSTALLED} and torch {OTHER} compute different values." in first["why"]
    assert found["losses"]["values"][0] == [0, 0.0, 1.0]  # type: ignore[index]
    assert [run["kernels_torch"] for run in found["runs"]] == [INSTALLED, OTHER]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_two_releases_that_agree(kernels: dict[str, str], tmp_path: Path) -> None:
    """Nothing ran on the kernels, and the report says so."""
    status, found, said = compared(tmp_path, TRAINING.format(sum=""), kernels)
    assert status == 0, said
    assert found["verdict"] == (
        "The runs agree: all results from the same inputs are bit-identical "
        f"({found['rounding']['results']} compared); the losses are identical. "  # type: ignore[index]
        f"No call ran on both {INSTALLED}'s kernels and {SHORT}'s kernels, so this says nothing about them."
    )


def test_what_two_sides_cannot_be(kernels: dict[str, str], tmp_path: Path) -> None:
    """The same kernels twice, and kernels named beside those of releases."""
    (tmp_path / "s.py").write_text("")
    for words, said in (
        (("--with", INSTALLED), f"--of {SHORT} and --with {INSTALLED} name the same kernels, those of {INSTALLED}"),
        (
            ("--with", SHORT, "--kernels", "real"),
            "--kernels applies to a run on mps, but neither --of nor --with is mps",
        ),
    ):
        first = INSTALLED.rpartition(".")[0]
        result = run_command("-m", "anymps", "compare", "--of", first, *words, str(tmp_path / "s.py"), env=kernels)
        expected = said.replace(f"--of {SHORT}", f"--of {first}")
        assert (result.status, result.err) == (2, f"anymps: {expected}\n")
