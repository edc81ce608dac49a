"""`anymps plan`: on which Macs a training fits, at what batch size, and what to change first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anymps._command_settings import PlanSettings
from anymps._settings import Settings, set_variable
from anymps.commands._script_command import script_command
from anymps.commands._show import show_document
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
    from anymps.device import build, enable
    from anymps.mac import parse_mac, parse_memory
    from anymps.plan import Scenario, make_plan, parse_scenario
    from anymps.report import plan_document, plan_json
    from anymps.rules import installed_torch
    from anymps.runs import Order, undisturbed

    outputs.check()
    if asked.cuda_as_mps:
        set_variable("cuda_as_mps", True)  # the measured processes are this one's children
    if asked.alone:
        set_variable("alone", True)
    changes = [parse_scenario(text) for text in asked.what_if]
    chosen = [parse_mac(mac) for mac in dict.fromkeys(asked.macs)]
    other_memory = parse_memory(asked.other_memory) if asked.other_memory is not None else 0
    own = parse_mac(asked.against) if asked.against is not None else None
    build()  # here, if ever: the measurements cannot show how far it is

    def allocator() -> None:
        """For the replay. Most of its time goes into the import."""
        import torch  # noqa: F401

        with undisturbed():  # it asks the compiler for its name
            enable(chosen[0] if chosen else None, require="virtual", quiet=True, start_method="system")

    with _told() as tell:
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
            other_memory=other_memory,
            against=own,
            say=tell,
            meanwhile=allocator,
        )
    whole = plan_document(found)
    shown = whole if asked.verbose else plan_document(found, short=True)
    show_document(shown, outputs, whole, lambda: plan_json(found))
    return 0


@contextmanager
def _told() -> Iterator[Callable[[str], None]]:
    """Shows what goes on and since when: a line of a terminal that is redrawn and does not stay, elsewhere nothing."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True, highlight=False)
    one_line = Column(no_wrap=True, overflow="ellipsis")
    columns = TextColumn("anymps: {task.description}", markup=False, table_column=one_line), TimeElapsedColumn()
    with Progress(
        *columns, console=console, refresh_per_second=1, transient=True, disable=not console.is_terminal
    ) as progress:
        line = progress.add_task("starting")
        yield lambda words: progress.update(line, description=words)
