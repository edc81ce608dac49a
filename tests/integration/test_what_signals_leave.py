"""A command that a signal ends takes its files and its processes with it; the signal is still what ended it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from anymps.cleanup import PrivateFolder
from processes import clean_environment, run_command, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no system call tells of processes that went away"),
]

SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

# The command line on a disk that takes for ever to write to.
SLOW = """
import os, sys, time
os.fsync = lambda number: (open("there", "w").close(), time.sleep(600))
from anymps.commands import main
sys.exit(main(sys.argv[1:]))
"""

SLOW_REPORT = """
import os, sys, time
if "anymps.commands._conclude:conclude" in sys.orig_argv:
    os.fsync = lambda number: (open("there", "w").close(), time.sleep(600))
"""

# Three sleepers: one in the group of the script, one in a session of its own, and one whose parent has gone as well.
SLEEPERS = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)", "SLEEPER"]
for own in (False, True):
    subprocess.Popen(sleep, start_new_session=own, env={})
subprocess.run(["sh", "-c", 'setsid "$@" &', "sh", *sleep], env={"PATH": "/usr/bin:/bin"})
"""


def ended(words: list[str], folder: Path, how: signal.Signals, when: Callable[[], bool], modules: str = "") -> str:
    """Ends a command, which finds modules in a folder, as soon as something holds; returns what it said."""
    clean = clean_environment()
    (folder / "tmp").mkdir(exist_ok=True)
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # inherited; under nohup it is ignored
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**clean, "PYTHONPATH": f"{folder / modules}:{clean['PYTHONPATH']}", "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGHUP, former)
    try:
        wait_until(lambda: when() or process.poll() is not None)
    finally:
        process.send_signal(how)
        process.send_signal(how)  # as `timeout` does
    _, err = process.communicate()
    assert process.returncode == -how, err
    return err


def running(folder: Path) -> list[bytes]:
    """The command lines of processes that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:  # it has ended
            continue
    return [line for line in lines if bytes(folder) in line]


@pytest.mark.parametrize("how", SIGNALS)
def test_convert(tmp_path: Path, how: signal.Signals) -> None:
    """No hidden file is left beside its output; after SIGKILL the next conversion removes it."""
    torch.save({"w": torch.ones(3, dtype=torch.float64)}, tmp_path / "in.pt")
    assert ended(["-c", SLOW, "convert", "in.pt", "out.pt"], tmp_path, how, (tmp_path / "there").exists) == ""
    left = {path.name for path in tmp_path.iterdir()} - {"in.pt", "there", "tmp"}
    assert len(left) == (how is signal.SIGKILL)
    run_command("-m", "anymps", "convert", "in.pt", "out.pt", cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} - {"there", "tmp"} == {"in.pt", "out.pt"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "how"),
    [
        *(("plan --mac M1", how) for how in SIGNALS),
        ("plan --mac M1 --allow-writes", signal.SIGKILL),
        *((command, signal.SIGTERM) for command in ("compare", "fix")),
    ],
)
def test_commands_that_run_a_script_apart(tmp_path: Path, command: str, how: signal.Signals) -> None:
    """Nothing that the script started is left, in whatever session, and no folder; after SIGKILL until the next one."""
    script = tmp_path / "script.py"
    script.write_text(SLEEPERS.replace("SLEEPER", str(tmp_path / "sleeper")) + "time.sleep(600)\n")
    sleeper = bytes(tmp_path / "sleeper")
    ended(
        ["-m", "anymps", *command.split(), str(script)],
        tmp_path,
        how,
        lambda: sum(line.endswith(sleeper + b"\0") for line in running(tmp_path)) >= 3,
    )
    if how is signal.SIGKILL:
        wait_until(lambda: not running(tmp_path))
        PrivateFolder("anymps-run-", tmp_path / "tmp").remove()
    assert running(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


RUNS = """
import time, torch
torch.ones(2, device="mps").add(1)
open("there", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("how", SIGNALS)
def test_run(tmp_path: Path, how: signal.Signals) -> None:
    """A script that is ended keeps its recording and leaves no folder; after SIGKILL the next run removes it."""
    (tmp_path / "script.py").write_text(RUNS)
    words = ["-m", "anymps", "run", "--record", "out.anymps", "script.py"]
    ended(words, tmp_path, how, (tmp_path / "there").exists)
    if how is signal.SIGKILL:
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        (tmp_path / "script.py").write_text("")
        run_command("-m", "anymps", "run", "script.py", cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")})
    else:
        assert run_command("-m", "anymps", "report", "out.anymps", cwd=tmp_path).status == 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_handlers_of_a_script_count(tmp_path: Path, how: signal.Signals) -> None:
    """While the script runs; the report is ours again, and leaves no file."""
    (tmp_path / "script.py").write_text(
        "import os, signal, torch\n"
        "torch.ones(2, device='mps').add(1)\n"
        f"signal.signal({how:d}, lambda *_: print('handled', flush=True))\n"
        f"os.kill(os.getpid(), {how:d})\n"
    )
    result = run_command("-m", "anymps", "run", "script.py", cwd=tmp_path)
    assert (result.status, result.out.splitlines()[0]) == (0, "handled")
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_REPORT)
    words = ["-m", "anymps", "run", "--report", "html=page.html", "script.py"]
    assert "handled" not in ended(words, tmp_path, how, (tmp_path / "there").exists, "slow")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "slow", "there", "tmp"]
