"""Long runs as people make them: a part of each process, and Ctrl-C while `--live` shows."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from anymps.record import Recording
from processes import MAC, PATIENCE, clean_environment, run_anymps

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CHILD = """
import subprocess, sys, torch
weight = torch.nn.Parameter(torch.ones(4, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "train.py", "6"], check=True)
for _ in range(int((sys.argv + ["4"])[1])):
    weight.square().sum().backward()
    optimizer.step()
"""

ENDLESS = """
import signal, time, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
weight = torch.nn.Parameter(torch.ones(64, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.square().sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""


def test_a_part_of_each_process(tmp_path: Path) -> None:
    """`--steps 2:5` is counted in each process: three steps of a child that makes six, two of a script with four."""
    (tmp_path / "train.py").write_text(CHILD)
    words = ("--mac", MAC, "--steps", "2:5", "--record", "run.anymps", "--report", "terminal=r.txt", "train.py")
    result = run_anymps("run", *words, cwd=tmp_path)
    assert result.status == 0, result.err
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert [part.name for part in recording.parts] == ["main process", "process 2"]
        begin = recording.parts[1].begin_ns
        assert [step.start_ns >= begin for step in recording.steps()] == [False] * 2 + [True] * 3
    said = " ".join((tmp_path / "r.txt").read_text().split())
    assert "5 complete steps (steps 2:5 of each process)" in said


def test_ctrl_c_while_it_shows(tmp_path: Path) -> None:
    """It takes the line away, shows the cursor again, and leaves the report and a whole recording."""
    (tmp_path / "train.py").write_text(ENDLESS)
    primary, secondary = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "anymps", "run", "--live", "--mac", MAC, "--record", "run.anymps", "train.py"],
        cwd=tmp_path, env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=secondary,
    )  # fmt: skip
    os.close(secondary)
    late = threading.Timer(PATIENCE, running.kill)
    late.start()
    shown, sent = b"", False
    with os.fdopen(primary, "rb", buffering=0) as stream, suppress(OSError):  # when its other end is closed
        while piece := os.read(stream.fileno(), 65536):
            shown += piece
            if b"a step, " in shown and not sent:
                running.send_signal(signal.SIGINT)
                sent = True
    late.cancel()
    assert (sent, running.wait(PATIENCE)) == (True, 130), shown.decode()
    assert b"Ctrl-C ended the run; until then MPS on" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert recording.complete
        assert recording.complete_steps > 0
