"""What a killed process has left is removed by the next, and nothing else; children end with all that they started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anymps._atomic import Staged, staged_folder
from anymps.cleanup import PrivateFolder, remove_leftovers
from processes import clean_environment, run_python

pytestmark = pytest.mark.skipif(os.name == "nt", reason="locks of POSIX")

HELD = """
import os, pathlib, signal, sys
from anymps._atomic import Staged, staged_folder
from anymps.cleanup import PrivateFolder
place = pathlib.Path(os.environ["PLACE"])
folder = staged_folder(place / "folder")
(folder.__enter__() / "inside").touch()
kept = [Staged(place / "file"), PrivateFolder("ours-", place)]
print("there", flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1:] else input()
"""


def start_all(place: Path) -> None:
    """What takes each kind of leftover away."""
    Staged(place / "file").discard()
    with staged_folder(place / "folder"):
        pass
    PrivateFolder("ours-", place).remove()


def test_leftovers(tmp_path: Path) -> None:
    """They go with the next start; names that are like theirs stay."""
    names = (".file.0123456789abcde.new", ".other.0123456789abcdef.new", "ours-1.held", "ours-abcdefgh")
    like = [tmp_path / name for name in names]
    for path in like:
        path.touch()
    code = HELD.replace("sys.argv[1:]", "True")
    assert run_python(code, {"PLACE": str(tmp_path)}).status == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 7
    start_all(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(like)


def test_what_another_process_holds(tmp_path: Path) -> None:
    """It stays, until it is dead."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HELD],
        env={**clean_environment(), "PLACE": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"there\n"
    held = sorted(tmp_path.iterdir())
    start_all(tmp_path)
    assert (len(held), sorted(tmp_path.iterdir())) == (3, held)
    holder.kill()
    holder.communicate()
    start_all(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_stay(tmp_path: Path) -> None:
    """What such a name leads to is another's."""
    (tmp_path / "file").touch()
    (tmp_path / "ours-1").symlink_to(tmp_path / "file")
    remove_leftovers(tmp_path, re.compile(r"ours-\d"))
    remove_leftovers(tmp_path / "nowhere", re.compile(r"ours-\d"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "ours-1"]


STRAYS = """
import os, subprocess
from anymps.cleanup import adopt_descendants, children, end_children
adopt_descendants()
kept = subprocess.Popen(["sleep", "600"])
shell = subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 600 & echo $!; wait' & echo $!"], stdout=subprocess.PIPE)
started = {int(shell.stdout.readline()) for _ in range(2)}
shell.wait()
adopted = children() - {kept.pid}
end_children({kept.pid})
print(len(adopted), adopted < started, children() == {kept.pid})
kept.kill()
for pid in started:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        print("ended")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process adopts others")
def test_descendants() -> None:
    """A process in a session of its own, whose parent has gone, ends with what it has started; others stay."""
    assert run_python(STRAYS).out.splitlines() == ["1 True True", "ended", "ended"]
