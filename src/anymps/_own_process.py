"""How anymps starts itself again: a command that runs no code from the current folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
_WORKER: Final = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
sys.path.append({home!r})
from {module} import main
main()
"""

SAFE_PATH: Final = ["-P"] if sys.version_info >= (3, 11) else []
"""Options of this interpreter under which `-c` does not put the current folder first among the places of modules.

The code itself takes it out too late: Python 3.14 imports `linecache` first, to keep the lines of that code.
"""


def own_command(*words: str) -> list[str]:
    """The command that runs `anymps WORDS` in a new process, with this interpreter and this anymps.

    By a file, as `-m anymps` and `-c` put the current folder first: a file of the name anymps.py or json.py there would
    run. `-I` and `-P` are no choice: the script would do without PYTHONPATH, or without its own folder.
    """
    return [sys.executable, str(_PACKAGE / "__main__.py"), *words]


def own_worker(module: str) -> list[str]:
    """The command that runs `main` of a module of anymps, which runs no code of a user's, in a new process."""
    # Last of all places: only for an anymps that is not installed, as in a checkout.
    return [sys.executable, *SAFE_PATH, "-c", _WORKER.format(module=module, home=str(_PACKAGE.parent))]
