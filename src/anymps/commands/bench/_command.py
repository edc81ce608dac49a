"""`anymps bench`: how long a function, or an optimizer step of a script, takes; `--calibrate`: what a Mac takes."""

from __future__ import annotations

__all__ = ["bench"]

import re
from pathlib import Path

import click

from anymps._errors import UsageError
from anymps.commands._runner import run_target
from anymps.commands._script_command import ScriptCommand
from anymps.commands._target import Target
from anymps.commands._torch_option import torch_option
from anymps.commands.bench._function import BenchFunction
from anymps.commands.bench._session import BenchSession
from anymps.commands.calibrate import calibrate

_FUNCTION = re.compile(r"(?P<home>.+):(?P<name>[A-Za-z_]\w*)")


@click.command(cls=ScriptCommand, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option(
    "--device",
    "devices",
    metavar="DEVICES",
    help="For a function: where, as mps (the default) or cpu,mps to compare. A script chooses its own.",
)
@click.option("--mac", metavar="MAC", help="The Mac that the virtual device plays; its speed is not simulated.")
@torch_option
@click.option(
    "--fallback/--no-fallback", default=None, help="Run operators without an MPS kernel on the CPU, or raise."
)
@click.option(
    "--warmup", type=click.IntRange(1), default=3, show_default=True, help="Calls or steps that do not count."
)
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="Runs or steps that count.")
@click.option(
    "--min-time",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="For a function: repeat until the runs took this many seconds.",
)
@click.option("--calls", type=click.IntRange(1), default=1, show_default=True, help="For a function: calls in one run.")
@click.option(
    "--predict/--no-predict",
    "predicts",
    default=True,
    help="Record a few more steps or calls on mps, and say beside the times what was predicted for them.",
)
@click.option("--json", "form", flag_value="json", help="Print everything as JSON; times in nanoseconds.")
@click.option("--markdown", "form", flag_value="markdown", help="Print everything as Markdown.")
@click.option(
    "--calibrate", "wants_calibration", is_flag=True, help="Time this Mac, and predict times by that from now on."
)
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path), help="With --calibrate: write the timings there, as CSV."
)
@click.option("--calibrate-virtual", metavar="MAC", hidden=True)  # for tests: the virtual device's times are no Mac's
@click.argument("words", metavar="MODULE:FUNCTION|FILE.py:FUNCTION|SCRIPT [ARGUMENTS]...", nargs=-1)
def bench(
    devices: str | None,
    mac: str | None,
    torch_release: str,
    fallback: bool | None,
    warmup: int,
    repeat: int,
    min_time: float,
    calls: int,
    predicts: bool,
    form: str | None,
    wants_calibration: bool,
    out: Path | None,
    calibrate_virtual: str | None,
    words: tuple[str, ...],
) -> int:
    """Time a function, or the optimizer steps of a script.

    The device is synchronised before and after each run. A function that has a parameter `device` is called with it;
    if it returns a function, it has prepared something, and what it returned is timed. What the code prints goes to
    stderr.

    A few more steps or calls are then recorded, and their predicted time on this Mac is shown beside the measured one.
    On the virtual device only the prediction counts: its own times say nothing about a Mac.

    With --calibrate, the Mac itself is timed instead: about three minutes of products, convolutions, reductions, copies
    and waits. The timings are kept for its chip and this release of torch, and predictions use them.
    """
    if wants_calibration:
        if words:
            raise UsageError(f"--calibrate times the Mac itself, not {words[0]}")
        return calibrate(out, calibrate_virtual)
    if out is not None:
        raise UsageError("--out is for --calibrate")
    if not words:
        raise UsageError("name module:function or a script (anymps bench --help)")
    match = _FUNCTION.fullmatch(words[0])
    if match is None:
        if devices is not None:
            raise UsageError("--device is for functions: a script chooses its device itself")
        target = Target(words[0], words[1:])
        return run_target(target, BenchSession(mac, fallback, warmup, repeat, form, predicts, torch_release))
    if len(words) > 1:
        raise UsageError(f"{words[0]} takes no arguments from the command line: {' '.join(words[1:])}")
    names = [name.strip() for name in (devices or "mps").split(",")]
    function = BenchFunction(match["home"], match["name"], names, mac, fallback, predicts, torch_release)
    return function.run(form, warmup=warmup, repeat=repeat, min_time=min_time, calls=calls)
