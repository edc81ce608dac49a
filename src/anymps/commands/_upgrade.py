"""`anymps upgrade`: which torch and which macOS a script can use, from one recording of it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anymps._command_settings import RunSettings, UpgradeSettings
from anymps._errors import UnsupportedTorchError, UsageError
from anymps._own_process import own_call
from anymps.commands._conclude import whole_recording
from anymps.commands._recordings import opened
from anymps.commands._runner import run_target
from anymps.commands._script_command import script_command
from anymps.commands._session import Conclusion, RunSession
from anymps.commands._show import show_document
from anymps.commands._target import Target
from anymps.mac import parse_mac
from anymps.report import Outputs, is_recording
from anymps.rules import parse_torch_version

if TYPE_CHECKING:
    from anymps.record import Recording
    from anymps.upgrade import Release

WORSE: Final = 1


@script_command(
    "upgrade",
    "Show which torch and macOS a script can use.",
    module="Ask about a module, which runs as `python -m` does; all later arguments go to it.",
    words="[SCRIPT [ARGUMENTS]... | RECORDING...]",
)
def upgrade(asked: UpgradeSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Show what becomes of a script in each release of torch on each macOS: where it is right, wrong, refused or slow.

    A script runs once, as `anymps run --fallback` does it, with the installed torch. A recording, by default that of
    the last run, is only read.
    """
    outputs = Outputs.of(asked)
    _releases(asked)
    if module is None and not (words and not is_recording(Path(words[0]))):
        with opened([Path(word) for word in words], outputs, "name a script, or a recording") as recording:
            return _show(recording, asked, outputs)
    run = RunSettings(
        mac=asked.mac,
        fallback=asked.fallback is not False,  # so that what comes after an operator without a kernel is recorded, too
        substrate=asked.substrate,
        cuda_as_mps=asked.cuda_as_mps,
        report=False,
    )
    return run_target(Target.named(module, words, "upgrade"), _UpgradeSession(run, outputs, asked))


class _UpgradeSession(RunSession):
    """A run that is concluded with the table in the place of the report."""

    def __init__(self, run: RunSettings, outputs: Outputs, asked: UpgradeSettings) -> None:
        super().__init__(run, outputs)
        self._upgrade = asked

    def _conclusion(self, order: Conclusion, *, shown: bool) -> list[str]:
        return own_call("anymps.commands._upgrade:conclude", order, self._upgrade, shown)


def conclude(order: Conclusion, asked: UpgradeSettings, shown: bool) -> int:
    """What follows the run: the recording is kept as the last one, and the table is shown."""
    with whole_recording(order) as (recording, _):
        return _show(recording, asked, order.outputs) if shown else 0


def _show(recording: Recording, asked: UpgradeSettings, outputs: Outputs) -> int:
    """Show the table and write the reports; 1 where `--fail-on` says so."""
    from anymps.report import upgrade_document, upgrade_json
    from anymps.upgrade import Outcome, make_grid

    first, last = _releases(asked)
    grid = make_grid(recording, parse_mac(asked.mac) if asked.mac else None, first=first, last=last)
    document = upgrade_document(grid)
    show_document(document, outputs, document, lambda: upgrade_json(grid))
    sys.stdout.flush()
    least = {outcome.word.replace(" ", "-"): outcome for outcome in Outcome}.get(asked.least)
    return WORSE if least is not None and grid.at(last or grid.releases[-1]).outcome >= least else 0


def _releases(asked: UpgradeSettings) -> tuple[Release | None, Release | None]:
    """Those of --from and --to. Raises UsageError for a text that is no release."""
    return _release("--from", asked.first), _release("--to", asked.last)


def _release(option: str, text: str | None) -> Release | None:
    if text is None:
        return None
    with suppress(UnsupportedTorchError):
        return parse_torch_version(text).release
    raise UsageError(f"{option}: {text!r} is no release of torch, such as 2.13")
