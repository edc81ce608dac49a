"""`anymps run --live` with a page: it is there during the run, and stays whole if the run dies."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from processes import MAC, PATIENCE, clean_environment, wait_until

pytestmark = pytest.mark.integration

STEPS = '<p class="running">Still running: step '
SCRIPT = """
import pathlib, time, torch
weight = torch.nn.Parameter(torch.ones(64, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
while not pathlib.Path("go").exists():
    optimizer.zero_grad()
    loss = weight.square().sum()
    loss.backward()
    optimizer.step()
    loss.item()
    time.sleep(0.05)
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """A run whose page tells of its steps; the first one may come before any."""
    (folder / "train.py").write_text(SCRIPT)
    words = ["--live", "--mac", MAC, "--record", "run.anymps", "--report", "html=page.html", "train.py"]
    running = subprocess.Popen(
        [sys.executable, "-m", "anymps", "run", *words],
        cwd=folder, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    page = folder / "page.html"
    wait_until(lambda: running.poll() is not None or (page.exists() and STEPS in page.read_text(encoding="utf-8")))
    return running


def said(stream: IO[str] | None) -> str:
    """All that comes."""
    return (stream or io.StringIO()).read()


def test_a_page_during_the_run(tmp_path: Path) -> None:
    """It is there while the script runs; the last one is that of the whole run."""
    running = started(tmp_path)
    try:
        assert running.poll() is None, said(running.stderr)
        assert "optimizer.step()" in (tmp_path / "page.html").read_text(encoding="utf-8")
        (tmp_path / "go").touch()
        assert running.wait(PATIENCE) == 0, said(running.stderr)
    finally:
        running.kill()
        running.communicate()
    last = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "till running" not in last
    assert "Would run on" in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "page.html", "run.anymps", "train.py"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_dies(tmp_path: Path, how: signal.Signals) -> None:
    """Ended by SIGTERM, its page comes to say so. Killed, it leaves the last page whole, and no other file."""
    running = started(tmp_path)
    running.send_signal(how)
    running.communicate(timeout=PATIENCE)
    assert running.returncode == -how
    page = tmp_path / "page.html"
    if how is signal.SIGTERM:
        wait_until(lambda: "SIGTERM ended the run" in page.read_text(encoding="utf-8"))
        assert "till running" not in page.read_text(encoding="utf-8")
    wait_until(lambda: not list(tmp_path.glob(".page.html.*")))
    assert page.read_text(encoding="utf-8").endswith("</html>\n")
    names = {path.name for path in tmp_path.iterdir()} - {"run.anymps-wal", "run.anymps-shm"}
    assert sorted(names) == ["page.html", "run.anymps", "train.py"]
