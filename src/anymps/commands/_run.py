"""`anymps run`: any script, unedited, on a chosen Mac."""

from __future__ import annotations

__all__ = ["run"]

from pathlib import Path
from typing import Any

import click

from anymps._errors import UsageError
from anymps.commands._judge import Choice, finding_options
from anymps.commands._notebook import NotebookSession, NotebookTarget, is_notebook
from anymps.commands._outputs import Output, Outputs, report_option, root_option
from anymps.commands._runner import run_target
from anymps.commands._script_command import ScriptCommand
from anymps.commands._session import RunOptions, RunSession
from anymps.commands._target import Target
from anymps.commands._torch_option import torch_option


def _steps(text: str) -> tuple[int, int]:
    """`10:30`, or `:30` from the beginning on."""
    first, mark, last = text.partition(":")
    if not (mark and last.isdecimal() and (first.isdecimal() or not first) and int(first or 0) < int(last)):
        raise click.BadParameter(f"{text!r} names no steps: write FIRST:LAST, such as 10:30")
    return int(first or 0), int(last)


@click.command(cls=ScriptCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--mac", metavar="MAC", help='The Mac to act as: "M3 Pro 18GB", "M1 8GB, macOS 14.5".')
@torch_option
@click.option(
    "--fallback/--no-fallback",
    default=None,
    help="Run operators without an MPS kernel on the CPU, or raise (PYTORCH_ENABLE_MPS_FALLBACK). "
    "Default: what the environment says.",
)
@click.option("--record", metavar="FILE", type=click.Path(path_type=Path), help="Keep the recording in this file.")
@click.option(
    "--require",
    type=click.Choice(["real", "virtual"]),
    help="Run only on an Apple GPU, or only on the virtual device.",
)
@click.option(
    "--source",
    type=click.Choice(["native", "observer"]),
    help="How operators are recorded: by the virtual device, or by an observer, as on a real Mac. "
    "Default: the best that the device has.",
)
@click.option(
    "--strict-copies",
    is_flag=True,
    help="Let copies to the CPU with non_blocking=True arrive no sooner than the next wait (ANYMPS_STRICT_COPIES=1).",
)
@click.option(
    "--check-shaders",
    is_flag=True,
    help="Look for races, accesses outside of buffers and the like in Metal kernels, slowly (ANYMPS_CHECK_SHADERS=1).",
)
@click.option(
    "--start-method",
    type=click.Choice(["spawn", "fork", "forkserver"]),
    help="How DataLoader workers and other processes start, where the script does not choose. Default: spawn, as on "
    "macOS (ANYMPS_START_METHOD).",
)
@click.option(
    "--cuda-as-mps",
    is_flag=True,
    help='Let mps answer for CUDA: torch.cuda, .cuda() and "cuda" (ANYMPS_CUDA_AS_MPS=1).',
)
@click.option(
    "--alone",
    is_flag=True,
    help="Run one process of a script that needs several: NCCL and its transfers are skipped and reported "
    "(ANYMPS_ALONE=1).",
)
@click.option(
    "--no-children",
    is_flag=True,
    help="Do not give processes that the script starts the device, and do not record them.",
)
@click.option(
    "--steps",
    metavar="FIRST:LAST",
    callback=lambda context, option, value: None if value is None else _steps(value),
    help="Record a part of a long run: 10:30 begins after 10 steps of the optimizer and ends after 30.",
)
@click.option(
    "--kernels",
    type=click.Choice(["cpu", "real"]),
    help="Compute on this machine's CPU, or with PyTorch's own Metal kernels where their launches are known, after "
    "`anymps kernels add` (ANYMPS_KERNELS).",
)
@click.option(
    "--live",
    is_flag=True,
    help="Show steps, waits and memory while the script runs, and write the pages of --report html=FILE meanwhile.",
)
@click.option("--allow-unused", is_flag=True, help="Exit with 0 even if nothing ran on mps.")
@click.option("-v", "--verbose", is_flag=True, help="Show the full report at the end, not the short one.")
@click.option("--no-arguments", is_flag=True, help="Leave the script's arguments out of the recording and the reports.")
@click.option("--no-report", is_flag=True, help="Show no report at the end.")
@click.option(
    "--report-to",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the whole report to this file: .html, .json, .md or .sarif, else text.",
)
@finding_options
@report_option
@root_option
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does; the rest is for it.")
@click.argument("words", metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    mac: str | None,
    torch_release: str,
    fallback: bool | None,
    record: Path | None,
    require: str | None,
    source: str | None,
    strict_copies: bool,
    check_shaders: bool,
    start_method: str | None,
    cuda_as_mps: bool,
    alone: bool,
    no_children: bool,
    steps: tuple[int, int] | None,
    kernels: str | None,
    live: bool,
    verbose: bool,
    no_arguments: bool,
    no_report: bool,
    report_to: Path | None,
    reports: tuple[Output, ...],
    root: str | None,
    module: str | None,
    words: tuple[str, ...],
    **choice: Any,
) -> int:
    """Run a script, or a notebook, on the mps device and report what happened.

    The script runs as `python` would run it, with its own output, input and exit status. A short report goes to stderr;
    `-v` shows the whole one, and so does `anymps report` afterwards.
    """
    if module is not None:
        target = Target(module, words, is_module=True)
    elif words:
        target = Target(words[0], words[1:])
    else:
        raise UsageError("name a script, or a module with -m (anymps run --help)")
    if no_report and report_to is not None:
        raise UsageError("--no-report and --report-to exclude each other")
    if no_report and verbose:
        raise UsageError("--no-report and --verbose exclude each other")
    named = None if report_to is None else Output.by_ending(report_to)
    if named is not None:
        report_to, reports = None, (*reports, named)
    if live and not target.is_module and is_notebook(target.name):
        raise UsageError("--live watches scripts, and no notebooks")
    if torch_release and not target.is_module and is_notebook(target.name):
        raise UsageError("--torch predicts for scripts, and no notebooks")
    options = RunOptions(
        mac=mac,
        torch=torch_release,
        fallback=fallback,
        record=record,
        require=require,
        source=source,
        strict_copies=strict_copies,
        check_shaders=check_shaders,
        start_method=start_method,
        cuda_as_mps=cuda_as_mps,
        alone=alone,
        children=not no_children,
        steps=steps,
        kernels=kernels,
        live=live,
        arguments=not no_arguments,
        report=not no_report,
        verbose=verbose,
        report_to=report_to,
        choice=Choice(**choice),
        outputs=Outputs(reports, root),
    )
    if not target.is_module and is_notebook(target.name):
        session = NotebookSession(options)
        return run_target(NotebookTarget(target.name, target.arguments, session=session), session)
    return run_target(target, RunSession(options))
