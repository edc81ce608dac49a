"""Notebooks in Jupyter's own engine: `%%mps`, what it shows, and `anymps run notebook.ipynb`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anymps.commands import main
from anymps.record import Recording
from processes import FLUSHED, Result, run_anymps, run_command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
nbformat: Any = pytest.importorskip("nbformat", reason="the `integration` extra brings it")
nbclient: Any = pytest.importorskip("nbclient", reason="the `integration` extra brings it")

STEP = """\
import torch
def step(model, optimizer):
    loss = model(torch.rand(4, 8, device="mps")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())"""
EMPTY = '{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}'
TRAIN = """\
model = torch.nn.Linear(8, 1).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    step(model, optimizer)"""


def write(path: Path, *sources: str) -> None:
    """A notebook of these cells, after a text."""
    cells = [nbformat.v4.new_markdown_cell("# A notebook"), *map(nbformat.v4.new_code_cell, sources)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """A notebook with `%%mps`, run: its code cells with what they show."""
    path = tmp_path_factory.mktemp("magic") / "a.ipynb"
    write(
        path,
        STEP,
        "%load_ext anymps",
        f'%%mps --mac "M2 16GB" --record run.anymps\n{TRAIN}',
        '%%mps\nx = torch.ones(3, device="mps", dtype=torch.float64)',
        "%%mps --mac M77\n1",
        "%%mps --what\n1",
        '%%mps --check-numbers\nprint("checked")',
        "%%mps --check-numbers none\n1",
        '%%mps --cuda-as-mps\nprint("device:", torch.ones(3, device="cuda").device)',
    )
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        notebook, kernel_name="python3", allow_errors=True, timeout=None, startup_timeout=600, resources=resources
    ).execute()
    return list(notebook.cells[1:])


def shown(cell: Any) -> list[Any]:
    """What a cell gives besides what it prints."""
    return [output.data for output in cell.outputs if "data" in output]


def printed(cell: Any, stream: str) -> str:
    """What a cell prints on `stdout` or `stderr`: Jupyter cuts a line in two where it sends in between."""
    return "".join(output.text for output in cell.outputs if output.get("name") == stream)


def test_a_cell_is_recorded_and_shows_its_report(cells: list[Any]) -> None:
    """The short report as text, the page as a frame, and the lines of cells, those above `%load_ext` too."""
    (data,) = shown(cells[2])
    assert "MPS202  Tensor printed or logged in every step\n" in data["text/plain"]
    assert '  line    print("loss", loss.item())\n' in data["text/plain"]
    assert "Change first: cell 1, line 7" in data["text/plain"]
    assert data["text/html"].startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert 'sandbox="allow-scripts"' in data["text/html"]
    assert data["text/markdown"].startswith("### Would run on ")


def test_a_cell_that_raises(cells: list[Any]) -> None:
    """Its traceback is Jupyter's, and the report has the line: the magic's own is the first."""
    assert [output.ename for output in cells[3].outputs if output.output_type == "error"] == ["TypeError"]
    (data,) = shown(cells[3])
    verdict = "Would not run on M2 16GB: cell 4, line 2 raises TypeError."
    assert data["text/plain"].startswith(f"{verdict} 1 error.")


def test_a_mistake_is_one_line(cells: list[Any]) -> None:
    """No Mac of that name, or an option that there is not: the text of the command line, without a traceback."""
    assert [printed(cell, "stderr") for cell in cells[4:6]] == [
        'UsageError: there is no Mac "M77"; nearest: M1, M2, M3, M4, M5\n',
        "UsageError: %%mps: unrecognized arguments: --what\n",
    ]


def test_a_cell_whose_numbers_are_checked(cells: list[Any]) -> None:
    """Where the CPU computes everything one line says so, and the cell runs; another word is a mistake."""
    assert printed(cells[6], "stdout") == "checked\n"
    assert printed(cells[6], "stderr") == (
        "anymps: check-numbers: this machine's CPU computes everything, so there is nothing to compare; add "
        "--kernels real (PyTorch's own Metal kernels) or --substrate cuda (an NVIDIA GPU), or run on a Mac\n"
    )
    assert printed(cells[7], "stderr") == (
        "UsageError: %%mps: argument --check-numbers: invalid choice: 'none' (choose from 'some', 'all')\n"
    )


def test_a_cell_for_cuda(cells: list[Any]) -> None:
    """With the option mps answers for CUDA, also where the device is on already, and the report names the line."""
    assert printed(cells[8], "stdout") == "device: mps:0\n"
    (data,) = shown(cells[8])
    assert "MPS409" in data["text/plain"]


def run(folder: Path, *words: str) -> Result:
    """`anymps run` in a folder."""
    return run_anymps("run", *words, cwd=folder)


def test_run_a_notebook(tmp_path: Path) -> None:
    """It prints what its cells print; the report names cells and lines; the file stays as it was."""
    write(tmp_path / "train.ipynb", STEP, TRAIN, "'done'")
    before = (tmp_path / "train.ipynb").read_bytes()
    ran = run(tmp_path, "--mac", "M2 16GB", "--record", "run.anymps", "train.ipynb")
    assert ran.status == 0, ran.err
    assert [line.split()[0] for line in ran.lines] == ["loss"] * 10 + ["'done'"]
    assert ran.err.splitlines()[0].startswith("anymps: VIRTUAL mps device: M2 16GB")
    assert "Change first: cell 1, line 7" in ran.err
    assert (tmp_path / "train.ipynb").read_bytes() == before
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.complete
        assert recording.complete_steps == 10


def test_run_a_notebook_that_fails(tmp_path: Path) -> None:
    """A cell that raises ends it with 1 and its traceback; cells after it do not run."""
    write(tmp_path / "train.ipynb", 'import torch\nx = torch.ones(2, device="mps")', "1 / 0", "print('never')")
    ran = run(tmp_path, "train.ipynb")
    assert (ran.status, ran.out) == (1, "")
    assert "ZeroDivisionError" in ran.err
    assert "The script ended with ZeroDivisionError at cell 2, line 1." in ran.err


@pytest.mark.slow
def test_run_a_part_of_a_notebook(tmp_path: Path) -> None:
    """`--steps` reaches the kernel; with too few steps one line says so."""
    write(tmp_path / "train.ipynb", STEP, TRAIN)
    ran = run(tmp_path, "--steps", "100:200", "train.ipynb")
    assert ran.status == 4
    assert ran.err.splitlines()[-1] == (
        "anymps: nothing was recorded: the script made 10 training steps, and --steps is 100:200"
    )


@pytest.mark.slow
def test_a_kernel_that_dies(tmp_path: Path) -> None:
    """One line; what it had recorded can be read."""
    write(
        tmp_path / "train.ipynb",
        f'import os, torch\nx = torch.ones(2, device="mps") + 1\n{FLUSHED}\nos.kill(os.getpid(), 9)',
    )
    ran = run(tmp_path, "--record", "run.anymps", "train.ipynb")
    assert ran.status == 2
    assert ran.err.splitlines()[-1] == "anymps: the kernel of train.ipynb died; its recording up to there is kept"
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert (recording.complete, recording.entry_count > 0) == (False, True)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("{", ["train.ipynb"], "train.ipynb is not a notebook: Notebook does not appear to be JSON: '{'"),
        (EMPTY.replace("[]", "3"), ["train.ipynb"], "train.ipynb is not a notebook: "),
        (None, ["train.ipynb"], "there is no script train.ipynb"),
        (EMPTY, ["train.ipynb", "x"], "a notebook accepts no arguments: x"),
        (EMPTY, ["--mac", "M77", "train.ipynb"], 'there is no Mac "M77"; nearest: M1, M2, M3, M4, M5'),
    ],
)
def test_what_cannot_be_run(
    text: str | None,
    words: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line and exit code 2, and nothing has run."""
    if text is not None:
        (tmp_path / "train.ipynb").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == 2
    out, err = capsys.readouterr()
    (only,) = err.splitlines()
    assert out == ""
    assert only.startswith(f"anymps: {line}")


def test_without_the_libraries(tmp_path: Path) -> None:
    """One line that says what to install."""
    write(tmp_path / "train.ipynb", "1")
    code = "import sys; sys.modules['nbclient'] = None; from anymps.commands import main; sys.exit(main(sys.argv[1:]))"
    ran = run_command("-c", code, "run", "train.ipynb", cwd=tmp_path)
    assert ran.status == 2
    assert ran.err.startswith("anymps: a notebook needs nbclient: ")
    assert ran.err.endswith(" -m pip install 'nbclient>=0.10' 'ipykernel>=6.29'\n")
