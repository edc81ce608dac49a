"""`anymps plan` with a time limit that comes when the script makes a file, however busy the machine is."""

from __future__ import annotations

from pathlib import Path

from processes import Result, run_command

REACHED = "reached"
"""The file that the script makes; the plan needs --allow-writes for it."""

DRIVER = """
import os, runpy, subprocess, sys, time
wait = subprocess.Popen.wait

def limited(process, timeout=None):
    if timeout != {seconds}:
        return wait(process, timeout)
    while not os.path.exists({reached!r}):
        if process.poll() is not None:
            return process.returncode
        time.sleep(0.05)
    os.unlink({reached!r})  # the next measurement makes its own
    raise subprocess.TimeoutExpired(process.args, timeout)

subprocess.Popen.wait = limited
sys.argv = ["anymps", *sys.argv[1:]]
runpy.run_module("anymps", run_name="__main__")
"""


def limited_plan(folder: Path, seconds: float, *arguments: str) -> Result:
    """Runs `anymps plan --seconds N` in a folder; the seconds are over when the script has made `reached` there."""
    driver = DRIVER.format(seconds=float(seconds), reached=str(folder / REACHED))
    options = ("plan", "--allow-writes", "--seconds", str(seconds))
    return run_command("-c", driver, *options, *arguments, cwd=folder)
