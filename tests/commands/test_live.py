"""`anymps run --live`, and a page of a recording that is still being written."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import anymps
from anymps.capture import Progress
from anymps.commands._live import Live, words
from processes import MAC, PATIENCE, clean_environment, run_command, wait_until

MIB = 2**20
SCRIPT = """
import pathlib, time, torch
weight = torch.nn.Parameter(torch.ones(64, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        optimizer.step()
        loss.item()
train(20)
pathlib.Path("half").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
train(5)
print("trained")
"""


def progress(**facts: object) -> Progress:
    """A run at step 1,200."""
    usual: dict[str, object] = {
        "steps": 1200, "recorded": 1200, "waits": 2400, "step_ns": 34.5e6, "allocated": 1536 * MIB, "peak": 2048 * MIB,
        "begun": True, "over": False,
    }  # fmt: skip
    return Progress(**{**usual, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "step 1,200, 34.5 ms a step, 2 waits a step, memory 1.5 GiB, at most 2 GiB"),
        ({"waits": 600}, "step 1,200, 34.5 ms a step, 0.5 waits a step, memory 1.5 GiB, at most 2 GiB"),
        ({"steps": 0, "recorded": 0, "waits": 3, "peak": 0, "allocated": 0},
         "step 0, 3 waits, memory none, at most none"),
        ({"steps": 7, "recorded": 0, "begun": False}, "7 steps, recording has not begun"),
        ({"steps": 90, "recorded": 20, "waits": 20, "over": True},
         "step 90, 34.5 ms a step, 1 waits a step, memory 1.5 GiB, at most 2 GiB, recorded"),
    ],
)  # fmt: skip
def test_words(facts: dict[str, object], line: str) -> None:
    """The line of a run, of its beginning, and of a part before and after it."""
    assert words(progress(**facts)) == line


def test_plain_lines() -> None:
    """Where there is no terminal a line is written when it is another one, and a closed stream ends them."""

    class Fake:
        progress = progress()

    stream = io.StringIO()
    live = Live(cast(Any, Fake()), stream)
    live.say()
    live.say()
    assert stream.getvalue() == f"anymps: {words(progress())}\n"
    stream.close()
    live._said = ""
    live.say()
    live.stop()


@pytest.mark.usefixtures("virtual_device")
def test_progress_of_a_capture() -> None:
    """Steps, waits and memory so far, of a part that has begun and of one that is over."""
    weight = torch.nn.Parameter(torch.ones(64, device="mps"))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = weight.square().sum()
            loss.backward()
            optimizer.step()
            loss.item()

    with anymps.record(steps=(2, 5)) as capture:
        assert (capture.progress.begun, capture.progress.steps) == (False, 0)
        train(4)
        now = capture.progress
        assert (now.steps, now.recorded, now.waits, now.begun, now.over) == (4, 2, 3, True, False)
        assert now.step_ns > 0
        assert now.allocated > 0
        train(4)
        now = capture.progress
        assert (now.steps, now.recorded, now.waits, now.begun, now.over) == (8, 3, 3, True, True)


def test_a_page_while_it_runs(tmp_path: Path) -> None:
    """The recording of a running script gives a page; the script continues and its recording is whole in the end."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "anymps", "run", "--live", "--mac", MAC, "--record", "run.anymps", "train.py"]
    running = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        page = tmp_path / "page.html"
        wait_until(lambda: (tmp_path / "half").exists())
        report = ("-m", "anymps", "report", "run.anymps", "--format", "html", "--output", "page.html")
        wait_until(lambda: run_command(*report, cwd=tmp_path).status == 0 and "optimizer.step()" in page.read_text())
        assert running.poll() is None
    finally:
        (tmp_path / "go").touch()
        out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (0, "trained\n"), err
    assert "Would run on" in err


def test_in_a_terminal(tmp_path: Path) -> None:
    """The line is drawn below what the script prints, which arrives whole, and is gone in the end."""
    (tmp_path / "train.py").write_text(SCRIPT.replace('while not pathlib.Path("go").exists():', "if True:"))
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "anymps", "run", "--live", "--mac", MAC, "--no-report", "train.py"]
    environment = {**clean_environment(), "TERM": "xterm", "COLUMNS": "120"}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary
    )
    os.close(secondary)
    shown = b""
    while True:
        try:
            piece = os.read(primary, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(primary)
    assert running.wait(PATIENCE) == 0
    text = shown.decode()
    assert "a step, 1 waits a step, memory " in text or "step 0, memory " in text
    assert "trained" in text
