"""MPS413 and MPS414: environment variables and attributes of the MPS backend that torch does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anymps.findings._memory_limits import first_allocation
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._release import release_of
from anymps.record import Recording
from anymps.rules.variables import nearest_variable, unread

UNREAD = Rule(
    id="MPS413",
    title="Environment variable that torch does not read",
    severity=Severity.INFO,
    why="A variable that torch does not read changes nothing, on a Mac as little as here.",
    fix="Leave it out.",
    source="C strings of the macOS wheels of torch 2.11 to 2.15; pytorch, docs/source/mps_environment_variables.md",
    example=Example(
        bad="""
            import os

            os.environ["PYTORCH_MPS_LOG_LEVEL"] = "1"
            x = torch.ones(4, device=device)
        """,
        better={'os.environ["PYTORCH_MPS_LOG_LEVEL"] = "1"': 'os.environ["PYTORCH_MPS_LOG_PROFILE_INFO"] = "0"'},
    ),
)

ATTRIBUTE = Rule(
    id="MPS414",
    title="torch.backends.mps setting without effect",
    severity=Severity.INFO,
    why=(
        "`torch.backends.mps` has functions that tell of the device, and no settings. Python keeps an attribute that a "
        "program gives it, and nothing in torch reads it."
    ),
    fix="Leave it out.",
    source="torch/backends/mps/__init__.py, callers of alertNotDeterministic in the macOS wheels, torch 2.11 to 2.15",
    example=Example(
        bad="""
            torch.backends.mps.benchmark = True
            x = torch.ones(4, device=device)
        """,
        better={"torch.backends.mps.benchmark = True\n": ""},
    ),
)

_INSTEAD: Final = {
    "deterministic": "Leave it out. On mps, `torch.manual_seed` seeds, and a few operators go by "
    "`torch.use_deterministic_algorithms(True)`.",
}


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for all such variables that the run had at its end, and one for each line that sets an attribute."""
    for note in recording.noted("backend_attribute"):
        name = str(note.facts.get("name"))
        yield ATTRIBUTE.finding(
            note.occurrence.site,
            what=f"`torch.backends.mps.{name}` is set, and torch has no such setting.",
            count=note.occurrence.count,
            fix=_INSTEAD.get(name, ""),
        )
    yield from _variables(recording)


def _variables(recording: Recording) -> Iterator[Finding]:
    """Variables that the run had at its end, where torch would read them."""
    release = release_of(recording)
    told = {name: why for name in recording.run.environment if (why := unread(name, release))}
    if not told:
        return
    meant = {name: nearest_variable(name) for name in told}
    instead = [f"`{right}` for `{name}`" for name, right in meant.items() if right not in ("", name)]
    yield UNREAD.finding(
        first_allocation(recording),
        what="; ".join(f"`{name}` is set, but {why}" for name, why in told.items()) + ".",
        count=len(told),
        fix=f"Write {' and '.join(instead)}, if you meant that, or leave it out." if instead else "",
    )
