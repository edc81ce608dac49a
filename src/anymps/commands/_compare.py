"""`anymps compare`: runs one script on two devices, call by call, and shows where the runs first diverge, and why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from anymps._command_settings import CompareSettings
from anymps._errors import UsageError
from anymps._settings import Settings
from anymps._text import last_line
from anymps.commands._judge import UNUSED
from anymps.commands._script_command import script_command
from anymps.commands._show import say, show_document
from anymps.commands._target import Target
from anymps.report import Outputs

if TYPE_CHECKING:
    from anymps.compare import Ran
    from anymps.runs import Order

PART: Final = 1
"""The runs diverge, or one of them fails."""

_ASKS_FOR_CUDA: Final = ("not compiled with CUDA enabled", "No CUDA GPUs are available", "NVIDIA driver")


@script_command(
    "compare",
    "Run a script on two devices, or on two releases' kernels, and show where the numbers diverge.",
    module="Compare a module, as `python -m` runs it.",
)
def compare(asked: CompareSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Run a script on two devices with the same seeds, and show where and why the numbers diverge.

    Both run at the same time, each in its own process; what the script writes and prints is discarded. Each
    torch call in one run is compared with the same call in the other. In a run on the CPU, "mps" and "cuda" in the
    script mean the CPU. With --of 2.13 --with 2.15, both runs are on mps, on PyTorch's own Metal kernels of these
    releases. Exits with 1 if the runs diverge.
    """
    target, outputs = Target.named(module, words, "compare"), Outputs.of(asked)
    target.check()
    outputs.check()
    _check(asked)
    from anymps.compare import compare_traces
    from anymps.device import build
    from anymps.findings import read_settings

    asked = asked.filled(read_settings(target.place))
    if any(_is_mps(device) for device in (asked.of, asked.other)):
        build()  # build here if needed: the processes that run the script may not write the user's files
    names = _names(asked)
    sides = _run(asked, target.words, names)
    if not asked.cuda_as_mps and any(_asks_for_cuda(side) for side in sides):
        say("the script asks for CUDA; running it again with mps in its place (--cuda-as-mps)")
        asked = replace(asked, cuda_as_mps=True)
        sides = _run(asked, target.words, names)
    errors = [side.trace.ending.error for side in sides]
    if all(errors):
        raise UsageError(f"the script fails in both runs, so there is nothing to compare: {errors[0]}")
    found = compare_traces(target.name, names, sides[0].trace, sides[1].trace)
    from anymps.report import comparison_document, comparison_json

    shown, whole = (comparison_document(found, short=short) for short in (True, False))
    show_document(shown, outputs, whole, lambda: comparison_json(found))
    if not found.is_used:
        say(f"exit code {UNUSED}: nothing ran on {names[asked.other != 'cpu']}")
        return UNUSED
    return 0 if found.agrees else PART


def _check(asked: CompareSettings) -> None:
    """Raise UsageError, before the runs, for options that make no sense."""
    sides = (asked.of, asked.other)
    if asked.of == asked.other != "mps":
        raise UsageError(f"--of {asked.of} and --with {asked.other} name the same device")
    if asked.substrate is not None and not any(map(_is_mps, sides)):
        raise UsageError("--substrate applies to mps, but neither run uses mps")
    if asked.kernels is not None and "mps" not in sides:
        raise UsageError("--kernels applies to a run on mps, but neither --of nor --with is mps")
    releases = [side for side in sides if _is_release(side)]
    if releases:
        from anymps.device import release_of_kernels

        found = [release_of_kernels(release) for release in releases]
        if len(set(found)) < len(found):
            raise UsageError(f"--of {asked.of} and --with {asked.other} name the same kernels, those of {found[0]}")


def _is_release(side: str) -> bool:
    """Whether the side is the kernels of a release, and not a device."""
    return side[0].isdigit()


def _is_mps(side: str) -> bool:
    return side == "mps" or _is_release(side)


def _renamed(asked: CompareSettings, device: str) -> tuple[str, ...]:
    """The names of devices that mean `device` in one run.

    "cuda" means the CPU only if it is a GPU in the other run. Otherwise autocast and gradient scalers for CUDA do
    nothing in the run on mps, and must do nothing on the CPU either.
    """
    if device == "cpu":
        return ("mps", "cuda") if asked.cuda_as_mps or "cuda" in (asked.of, asked.other) else ("mps",)
    return ("mps",) if device == "cuda" else ()


def _names(asked: CompareSettings) -> tuple[str, str]:
    """The names of the runs: their devices, or whose kernels they are on, with a qualifier if both use the same one."""
    first, second = (f"{side}'s kernels" if _is_release(side) else side for side in (asked.of, asked.other))
    if first != second:
        return first, second
    return ("mps, CPU kernels", "mps, PyTorch's kernels") if asked.kernels == "real" else ("mps, first", "mps, second")


def _run(asked: CompareSettings, command: list[str], names: tuple[str, str]) -> list[Ran]:
    """Run both sides at the same time. Raises UsageError if one could not start."""
    from anymps.compare import trace_run
    from anymps.runs import together

    say(f"running on {names[0]} and on {names[1]} ...")
    first = replace(asked, kernels="cpu") if asked.of == asked.other == "mps" else asked
    orders = (_order(first, asked.of, command), _order(asked, asked.other, command))
    sides = together([partial(trace_run, order) for order in orders])
    for name, side in zip(names, sides, strict=True):
        if not side.trace.facts:
            raise UsageError(f"the run on {name} could not start: {last_line(side.errors)}")
        if side.status is None:
            say(f"the run on {name} did not finish within {asked.seconds:g} s; comparing what it ran until then")
    return sides


def _order(asked: CompareSettings, device: str, command: list[str]) -> Order:
    from anymps.compare import Traced
    from anymps.runs import Order

    settings = Settings(**asked.device())
    if _is_release(device):
        device, settings = "mps", replace(settings, kernels=device)
    return Order(
        tuple(command),
        on=cast(Any, device),
        device=settings,
        recorded=False,
        observer=Traced(asked.full_steps, asked.random == "cpu", _renamed(asked, device)),
        steps=asked.steps,
        seconds=asked.seconds,
    )


def _asks_for_cuda(side: Ran) -> bool:
    return any(words in side.trace.ending.error for words in _ASKS_FOR_CUDA)
