"""`anymps plan`: on which Macs a training fits, at what batch size, and what to change first."""

from __future__ import annotations

import sys

from anymps._command_settings import PlanSettings
from anymps._settings import Settings, set_variable
from anymps.commands._script_command import script_command
from anymps.commands._show import say, show_document
from anymps.commands._target import Target
from anymps.report import Outputs


@script_command(
    "plan",
    "Show which Macs a training script fits on.",
    module="Plan a module, as `python -m` runs it; all later arguments go to it.",
)
def plan(asked: PlanSettings, module: str | None, words: tuple[str, ...]) -> int:
    """Show which Macs a training script fits on, before the first real step.

    The script runs for a few optimizer steps on shapes only: by the rules of the mps device, without data and without
    arithmetic, so that a model larger than this machine can be planned on it. Files that it writes are discarded.
    """
    target, outputs = Target.named(module, words, "plan"), Outputs.of(asked)
    target.check()
    from anymps.device import enable
    from anymps.mac import parse_mac
    from anymps.plan import Scenario, make_plan, parse_scenario
    from anymps.report import plan_document, plan_json
    from anymps.rules import installed_torch
    from anymps.runs import Order

    outputs.check()
    if asked.cuda_as_mps:
        set_variable("cuda_as_mps", True)  # the measured processes are this one's children
    if asked.alone:
        set_variable("alone", True)
    changes = [parse_scenario(text) for text in asked.what_if]
    chosen = [parse_mac(mac) for mac in dict.fromkeys(asked.macs)]
    own = parse_mac(asked.against) if asked.against is not None else None
    enable(
        chosen[0] if chosen else None, require="virtual", quiet=True, start_method="system"
    )  # for the allocator of the replay
    found = make_plan(
        Order(
            tuple(target.words),
            device=Settings(fallback=asked.fallback),
            steps=asked.steps,
            seconds=asked.seconds,
            may_write=asked.allow_writes,
        ),
        asked=chosen,
        what_if=changes,
        base=Scenario(batch=asked.batch, sequence=asked.sequence),
        torch_version=str(installed_torch().version),
        times_of=asked.torch,
        larger=asked.larger,
        against=own,
        say=lambda text: say(text) if sys.stderr.isatty() else None,
    )
    whole = plan_document(found)
    shown = whole if asked.verbose else plan_document(found, short=True)
    show_document(shown, outputs, whole, lambda: plan_json(found))
    return 0
