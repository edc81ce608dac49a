"""Long runs as people make them: a part of each process, `--live` in a pipe, and Ctrl-C while it shows."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from anymps.record import Recording
from processes import MAC, PATIENCE, clean_environment, run_command

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
    run = ["-m", "anymps", "run", "--mac", MAC, "--steps", "2:5", "--record", "run.anymps"]
    result = run_command(*run, "--report", "terminal=r.txt", "train.py", cwd=tmp_path)
    assert result.status == 0, result.err
    with Recording.open(tmp_path / "run.anymps") as recording:
        assert [part.name for part in recording.parts] == ["main process", "process 2"]
        begin = recording.parts[1].begin_ns
        assert [step.start_ns >= begin for step in recording.steps()] == [False] * 2 + [True] * 3
    said = " ".join((tmp_path / "r.txt").read_text().split())
    assert "5 complete steps (steps 2:5 of each process)" in said


def live(folder: Path, error: int) -> subprocess.Popen[bytes]:
    """A run that only Ctrl-C ends."""
    (folder / "train.py").write_text(ENDLESS)
    return subprocess.Popen(
        [sys.executable, "-m", "anymps", "run", "--live", "--mac", MAC, "--record", "run.anymps", "train.py"],
        cwd=folder, env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=error,
    )  # fmt: skip


def interrupt_at(said: bytes, stream: IO[bytes], running: subprocess.Popen[bytes]) -> bytes:
    """All that comes from the stream; Ctrl-C once `said` has come."""
    late = threading.Timer(PATIENCE, running.kill)
    late.start()
    shown, sent = b"", False
    try:
        while piece := os.read(stream.fileno(), 65536):
            shown += piece
            if said in shown and not sent:
                running.send_signal(signal.SIGINT)
                sent = True
    except OSError:  # the other end of a terminal is closed
        pass
    finally:
        late.cancel()
    assert sent, shown.decode()
    return shown


def ends_well(folder: Path, running: subprocess.Popen[bytes], shown: bytes) -> None:
    """The code of Ctrl-C, the report, and a whole recording."""
    assert running.wait(PATIENCE) == 130, shown.decode()
    assert b"Ctrl-C ended the run; until then MPS on" in shown
    with Recording.open(folder / "run.anymps") as recording:
        assert recording.complete
        assert recording.complete_steps > 0


def test_live_in_a_pipe(tmp_path: Path) -> None:
    """Plain lines without any control sequence, then the report."""
    running = live(tmp_path, subprocess.PIPE)
    assert running.stderr is not None
    with running.stderr as stream:
        shown = interrupt_at(b"anymps: step ", stream, running)
    ends_well(tmp_path, running, shown)
    assert b"\x1b" not in shown


def test_live_in_a_terminal(tmp_path: Path) -> None:
    """Ctrl-C takes the line away and shows the cursor again."""
    primary, secondary = pty.openpty()
    running = live(tmp_path, secondary)
    os.close(secondary)
    with os.fdopen(primary, "rb", buffering=0) as stream:
        shown = interrupt_at(b"a step, ", stream, running)
    ends_well(tmp_path, running, shown)
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
