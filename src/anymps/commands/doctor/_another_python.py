"""`anymps doctor --python`: the same command in another interpreter, for its torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from anymps._errors import UsageError
from anymps.cleanup import PrivateFolder

# What `doctor` imports besides the standard library: pure Python, or with a pure form beside the compiled one. Not this
# interpreter's whole site-packages: a torch in there must not be taken for the other's.
_PACKAGES = ("anymps", "click", "jinja2", "markdown_it", "markupsafe", "mdurl", "platformdirs", "pygments", "rich")
_START = """\
import sys
if sys.version_info < (3, 10):
    sys.exit("anymps: %s is Python %d.%d; anymps needs 3.10 or newer" % ((sys.executable,) + sys.version_info[:2]))
if sys.path[:1] == [""]:
    del sys.path[0]
sys.dont_write_bytecode = True
sys.path.append(sys.argv.pop(1))
from anymps.commands import main
sys.exit(main(sys.argv[1:]))
"""


def run_in(python: Path, *words: str) -> int:
    """Run `anymps WORDS` in `python` and return its exit code. Packages that it has go before ours.

    Raises UsageError: `python` is no interpreter that can be started.
    """
    with PrivateFolder("anymps-packages-") as folder:
        for name in _PACKAGES:
            spec = importlib.util.find_spec(name)
            for place in (spec.submodule_search_locations or ()) if spec is not None else ():
                (folder / name).symlink_to(Path(place).resolve())
        sys.stdout.flush()
        try:
            # Before `_START` runs, Python 3.14 imports `linecache`: not from the current folder.
            environment = {**os.environ, "PYTHONSAFEPATH": "1"}
            answer = subprocess.run([str(python), "-c", _START, str(folder), *words], check=False, env=environment)
        except OSError as error:
            raise UsageError(f"--python {python} cannot be started: {error.strerror}") from None
    return answer.returncode
