"""How anymps starts itself again: a command that runs no code from the current folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# `-m anymps` and `-c` alone put the current folder first among the places that modules come from: a file of the name
# anymps.py or json.py there would run. `-I` would also leave out PYTHONPATH, where the script's own modules may be.
_START = """\
import sys
if sys.path[:1] == [""]:
    sys.path[0] = {nowhere!r}
sys.path.append({home!r})
"""
_COMMAND = "from anymps.commands import main\nsys.exit(main(sys.argv[1:]))\n"
_WORKER = "from {module} import main\nmain()\n"


def own_command(*words: str) -> list[str]:
    """The command that runs `anymps WORDS` in a new process, with this interpreter and this anymps."""
    return [sys.executable, "-c", _start() + _COMMAND, *words]


def own_worker(module: str) -> list[str]:
    """The command that runs `main` of a module of anymps in a new process."""
    return [sys.executable, "-c", _start() + _WORKER.format(module=module)]


def _start() -> str:
    # Last of all places: only for an anymps that is not installed, as in a checkout.
    home = str(Path(__file__).resolve().parents[1])
    # The first place stays taken: the script's own folder is put there, and PYTHONPATH's behind it must not go.
    return _START.format(home=home, nowhere=os.devnull)
