"""The command line: `anymps run`, `anymps report` and the others. It parses, calls and prints; nothing else."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from anymps._errors import FAULT, MORE_FILES, TOO_MANY_FILES, AnympsError, UsageError
from anymps._own_process import called
from anymps._text import can_tell, forget_untold
from anymps._version import __version__
from anymps.children import stand_aside
from anymps.cleanup import termination_raises
from anymps.commands._help import Group

_CANNOT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

_MODULES: Final = {
    "bench": "bench",
    "compare": "_compare",
    "convert": "_convert",
    "coverage": "_coverage",
    "diff": "_diff",
    "doctor": "doctor",
    "explain": "_explain",
    "fix": "_fix",
    "kernels": "_kernels",
    "plan": "_plan",
    "report": "_report",
    "run": "_run",
    "upgrade": "_upgrade",
    "verify": "_verify",
}
"""The module of each command, which defines it under the command's own name."""


class _Commands(Group):
    """The commands by name; one is imported when it is asked for, as all together take half a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The one of that name."""
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"{__name__}.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="anymps", message="%(prog)s %(version)s")
@click.option("--call", nargs=2, hidden=True)  # by which anymps starts its own processes
@click.pass_context
def _commands(context: click.Context, call: tuple[str, str] | None) -> int | None:
    """PyTorch's mps device (the Apple GPU) on any machine."""
    if call is not None:
        return called(*call)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(UsageError.exit_code)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (``sys.argv`` if no arguments are given) and return its exit status.

    A mistake of the user's is one line on stderr. Raises nothing.
    """
    stand_aside()  # where a recorded script has started this command
    can_tell()
    try:
        with termination_raises():
            return _status_of(arguments)
    finally:
        forget_untold()


def _status_of(arguments: Sequence[str] | None) -> int:
    if sys.stdout is None:  # closed by whoever started us (`>&-`)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the end of the process
    try:
        # standalone_mode off: click would swallow exceptions and exit codes that belong to a script.
        status = _commands.main(None if arguments is None else list(arguments), "anymps", standalone_mode=False)
    except AnympsError as error:
        return _fail(error, error.exit_code)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "anymps"
        return _fail(f"{error.format_message().rstrip('.')} ({where} --help)", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        from anymps.capture import INTERRUPTED

        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _forget_output()  # the reader has closed the pipe (`anymps report x | head`)
        return 0
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            return _fail(MORE_FILES, UsageError.exit_code)
        if error.errno not in _CANNOT_BE_WRITTEN or error.filename is not None:
            traceback.print_exc()
            return FAULT
        _forget_output()
        return _fail(f"standard output cannot be written: {error.strerror}", UsageError.exit_code)
    except Exception:
        traceback.print_exc()
        return FAULT
    return status if isinstance(status, int) else 0


def _forget_output() -> None:
    """Let Python's own flush at exit not fail a second time (docs.python.org/3/library/signal.html, SIGPIPE)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(problem: object, status: int) -> int:
    from anymps.commands._show import say

    say(problem)
    return status
