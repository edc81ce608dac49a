"""`anymps run`: runs a script, unedited, on a chosen Mac."""

from __future__ import annotations

from anymps._command_settings import RunSettings
from anymps._errors import UsageError
from anymps.commands._notebook import NotebookSession, NotebookTarget, is_notebook
from anymps.commands._runner import run_target
from anymps.commands._script_command import script_command
from anymps.commands._session import RunSession
from anymps.commands._target import Target
from anymps.report import Outputs


@script_command(
    "run",
    "Run a script or notebook on mps, and report what to change.",
    module="Run a module, as `python -m` does; all later arguments go to it.",
)
def run(asked: RunSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Run a script, or a notebook, on the mps device and report what happened.

    The script runs as `python` would run it, with its own output, input and exit status. A short report goes to stderr;
    `-v` shows the full one, and so does `anymps report` afterwards.
    """
    target = Target.named(module, words, "run")
    if not asked.report and asked.verbose:
        raise UsageError("--no-report and --verbose exclude each other")
    in_notebook = not target.is_module and is_notebook(target.name)
    if asked.live and in_notebook:
        raise UsageError("--live works for scripts, not for notebooks")
    if asked.torch and in_notebook:
        raise UsageError("--torch works for scripts, not for notebooks")
    outputs = Outputs.of(asked)
    if in_notebook:
        session = NotebookSession(asked, outputs)
        return run_target(NotebookTarget(target.name, target.arguments, session=session), session)
    return run_target(target, RunSession(asked, outputs))
