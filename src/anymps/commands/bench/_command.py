"""`anymps bench`: how long a function, or an optimizer step of a script, takes."""

from __future__ import annotations

import re

from anymps._command_settings import BenchSettings
from anymps._errors import UsageError
from anymps.commands._runner import run_target
from anymps.commands._script_command import script_command
from anymps.commands._target import Target
from anymps.commands.bench._function import BenchFunction
from anymps.commands.bench._session import BenchSession

_FUNCTION = re.compile(r"(?P<home>.+):(?P<name>[A-Za-z_]\w*)")


@script_command(
    "bench",
    module="Time a module, as `python -m` runs it; all later arguments go to it.",
    words="MODULE:FUNCTION|FILE.py:FUNCTION|SCRIPT [ARGUMENTS]...",
)
def bench(asked: BenchSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Time a function, or the optimizer steps of a script.

    The device is synchronised before and after each run. A function that has a parameter `device` is called with it.
    If it returns another function, that one is timed: the first only prepares. What the code prints goes to stderr.

    A few more steps or calls are then recorded, and their predicted time on this Mac is shown beside the measured one.
    On the virtual device only the prediction counts: the measured times say nothing about a Mac.
    """
    if not words and module is None:
        raise UsageError("name module:function or a script (anymps bench --help)")
    match = _FUNCTION.fullmatch(words[0]) if module is None else None
    if match is None:
        if asked.devices is not None:
            raise UsageError("--device is for functions: a script chooses its device itself")
        return run_target(Target.named(module, words, "bench"), BenchSession(asked))
    if len(words) > 1:
        raise UsageError(f"{words[0]} takes no arguments from the command line: {' '.join(words[1:])}")
    return BenchFunction(match["home"], match["name"], asked).run()
