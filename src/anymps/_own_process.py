"""How anymps starts itself again: a command that runs no code from the current folder."""

from __future__ import annotations

__all__ = ["own_command"]

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
from anymps.commands import main
sys.exit(main(sys.argv[1:]))
"""


def own_command(*words: str) -> list[str]:
    """The command that runs `anymps WORDS` in a new process, with this interpreter and this anymps."""
    # Last of all places: only for an anymps that is not installed, as in a checkout.
    home = str(Path(__file__).resolve().parents[1])
    # The first place stays taken: the script's own folder is put there, and PYTHONPATH's behind it must not go.
    return [sys.executable, "-c", _START.format(home=home, nowhere=os.devnull), *words]
