"""`anymps plan`: on which Macs a training fits, at what batch size, and what to change first."""

from __future__ import annotations

__all__ = ["plan", "write_plan"]

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from anymps._atomic import replace_text
from anymps._errors import UsageError
from anymps.commands._runner import run_target
from anymps.commands._script_command import ScriptCommand
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps.commands._torch_option import torch_option
from anymps.commands.isolated import PlanSession

if TYPE_CHECKING:
    from anymps.plan import Plan

_FORMS: Final = {".html": "html", ".htm": "html", ".md": "markdown"}  # by a file's ending; else text


@click.command(
    cls=ScriptCommand,
    short_help="Say on which Macs a training script fits.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option(
    "--mac",
    "macs",
    metavar="MAC",
    multiple=True,
    help='Only this Mac: "M3 Pro 18GB"; given more than once, these. Without it, one Mac of each memory size.',
)
@click.option(
    "--against",
    metavar="MAC",
    help='Your own Mac: how many times as fast the others are ("M1 16GB"), with an interval of its own.',
)
@torch_option
@click.option(
    "--what-if",
    "what_if",
    metavar="CHANGES",
    multiple=True,
    help="Try a change without editing the script: batch=8, sequence=512, accumulate=4, bf16, fp16, checkpoint, fused, "
    "unfused, sgd, adam, adamw, adam8bit, adamw8bit; several at once with commas; may be given more than once.",
)
@click.option("--larger/--no-larger", default=True, help="Measure twice the batch, too, which tells the largest one.")
@click.option("--batch", type=click.IntRange(1), help="The batch size, also for {batch} in the script's arguments.")
@click.option("--sequence", type=click.IntRange(1), help="The sequence length, also for {sequence} in the arguments.")
@click.option("--steps", type=click.IntRange(1, 1000), default=3, show_default=True, help="Optimizer steps to measure.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=300, show_default=True, help="How long one measurement may take."
)
@click.option(
    "--fallback/--no-fallback", default=None, help="Run operators without an MPS kernel on the CPU, or raise."
)
@click.option(
    "--cuda-as-mps",
    is_flag=True,
    help='Let mps answer for CUDA: torch.cuda, .cuda() and "cuda" (ANYMPS_CUDA_AS_MPS=1).',
)
@click.option(
    "--allow-writes", is_flag=True, help="Let the script write its files; otherwise they are dropped after the plan."
)
@click.option(
    "--report-to",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write all of the plan to this file: .html, .md, .json, else text.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all that the plan knows, not only which Mac.")
@click.option("--measure", hidden=True)
@click.option("-m", "module", metavar="MODULE", help="Plan a module, as `python -m` runs it; the rest is for it.")
@click.argument("words", metavar="SCRIPT [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def plan(
    macs: tuple[str, ...],
    against: str | None,
    torch_release: str,
    what_if: tuple[str, ...],
    larger: bool,
    batch: int | None,
    sequence: int | None,
    steps: int,
    seconds: float,
    fallback: bool | None,
    cuda_as_mps: bool,
    allow_writes: bool,
    report_to: Path | None,
    verbose: bool,
    measure: str | None,
    module: str | None,
    words: tuple[str, ...],
) -> int:
    """Say on which Macs a training script fits, before the first real step.

    The script runs for a few optimizer steps on shapes alone: by the rules of the mps device, without data and without
    arithmetic, so that a model larger than this machine can be planned on it. What it writes is dropped.
    """
    if module is not None:
        target = Target(module, words, is_module=True)
    elif words:
        target = Target(words[0], words[1:])
    else:
        raise UsageError("name a script, or a module with -m (anymps plan --help)")
    if measure is not None:
        return run_target(target, PlanSession(measure, fallback))
    target.check()
    from anymps.device import CUDA_VARIABLE, enable
    from anymps.mac import parse_mac
    from anymps.plan import Scenario, make_plan, parse_scenario
    from anymps.rules import installed_torch

    if cuda_as_mps:
        os.environ[CUDA_VARIABLE] = "1"  # the measured processes are this one's children
    changes = [parse_scenario(text) for text in what_if]
    chosen = [parse_mac(mac) for mac in dict.fromkeys(macs)]
    own = parse_mac(against) if against is not None else None
    enable(
        chosen[0] if chosen else None, require="virtual", quiet=True, start_method="system"
    )  # for the allocator of the replay
    found = make_plan(
        ["-m", module, *words] if module is not None else list(words),
        asked=chosen,
        what_if=changes,
        base=Scenario(batch=batch, sequence=sequence),
        torch_version=str(installed_torch().version),
        times_of=torch_release,
        steps=steps,
        seconds=seconds,
        fallback=fallback,
        allow_writes=allow_writes,
        larger=larger,
        against=own,
        say=lambda text: say(text) if sys.stderr.isatty() else None,
    )
    write_plan(found, report_to, verbose=verbose)
    return 0


def write_plan(found: Plan, path: Path | None, *, verbose: bool = False) -> None:
    """Show the plan on stdout, short unless `verbose`, or write all of it to `path`.

    Raises UsageError if the file cannot be written.
    """
    from anymps.report import plan_document, plan_json, print_document, rendered

    if path is None:
        print_document(plan_document(found, short=not verbose), sys.stdout)
        return
    form = _FORMS.get(path.suffix, "terminal")
    pieces = [plan_json(found)] if path.suffix == ".json" else rendered(plan_document(found), form)
    try:
        replace_text(path, pieces)
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {path}: {error.strerror or error}") from error
