"""What a finding is, and what a rule is: data that carries its own documentation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from anymps._settings import variable_of
from anymps.findings._release import release_in
from anymps.findings._severity import Severity as Severity
from anymps.findings.edits import CodeChange, Placed, Safety, change_at
from anymps.record import Recording, Site, Wait
from anymps.source import Edit

_CELL = re.compile(r"cell \d+")


def numbered(name: str, line: int) -> str:
    """`train.py:12`; of a cell of a notebook `cell 3, line 2`."""
    return f"{name}, line {line}" if _CELL.fullmatch(name) else f"{name}:{line}"


def at(site: Site) -> str:
    """`train.py:12`, the file without its directories."""
    return numbered(site.file.replace("\\", "/").rpartition("/")[2], site.line)


_DEVICE: Final = """\
import torch

device = "mps"
"""
_TRAINING: Final = """\
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.rand(8, 4) for _ in range(5)]


def train(x):
    loss = model(x.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


@dataclass(frozen=True)
class Example:
    """A few lines of Python that follow `setup`: `bad` gives the rule's finding, `good` gives none.

    They may be indented as the code around them. `better` says what to replace in `bad` to make it good. `fallback`,
    `check_shaders`, `cuda_as_mps` and `alone` are settings of `anymps run`, `mac` is the Mac to run on.
    `numbers`: PyTorch's own kernels compute, and every number is compared with the CPU's. `releases` are those of torch
    that `bad` fails in, in words, where these are not all that the rule applies to.
    """

    bad: str
    good: str = ""
    better: InitVar[Mapping[str, str]] = MappingProxyType({})
    fallback: bool = False
    check_shaders: bool = False
    cuda_as_mps: bool = False
    alone: bool = False
    numbers: bool = False
    mac: str = "M3 Pro 18GB"
    releases: str = ""

    def __post_init__(self, better: Mapping[str, str]) -> None:
        bad, good = (textwrap.dedent(half).strip() + "\n" for half in (self.bad, self.good or self.bad))
        for old, new in better.items():
            good = good.replace(old, new)
        object.__setattr__(self, "bad", bad)
        object.__setattr__(self, "good", good)

    @property
    def variables(self) -> dict[str, str]:
        """The environment that both halves run in."""
        names = ("fallback", "alone", "cuda_as_mps", "check_shaders")
        switches = {variable_of(name): "1" for name in names if getattr(self, name)}
        checks = {"kernels": "real", "check_numbers": "all"} if self.numbers else {}
        return switches | {variable_of(name): value for name, value in checks.items()}

    @property
    def setup(self) -> str:
        """The lines before both: torch and `device`, and a small model with `batches` and `train(x)` where used."""
        trains = re.search(r"\b(?:model|optimizer|batches|train)\b", self.bad + self.good)
        return f"{_DEVICE}{_TRAINING}" if trains else _DEVICE


_WRITTEN: Final = "Write `{new}`."


@dataclass(frozen=True)
class Finding:
    """One thing worth changing, at one place, by a rule.

    `count` is over the recorded run, `per_step` the count in a typical step, and the mean where half of the steps have
    none. `cost_ns` is the lowest and highest estimate, in ns, of what `count` costs on a Mac, (0, 0) if it stops the
    run instead. `what` happened, `why` it matters on MPS, `fix` is the smallest one, `source` backs the rule.
    `related_sites` are other lines, such as the one that made the tensor; `related_as` says what they are, before a
    place: `made at`. `sequence` sorts findings of one rule where the order of the run matters. An unknown `site` has no
    file. `processes` are those in which it was seen, by name, where the recording is joined of several and these are
    not all in which anything ran. `edit` is what a machine can do about it and at which lines.
    `caller` is the line of the user's that called, `train.py:12`, where `site` is one of an installed package. `ways`
    are all ways out, the cheapest first, where a rule knows several; `{cost}` in one stands for the finding's cost.
    """

    rule: Rule
    severity: Severity
    site: Site
    count: int
    per_step: float
    cost_ns: tuple[int, int]
    what: str
    why: str
    fix: str
    source: str
    related_sites: tuple[Site, ...] = ()
    related_as: str = "made at"
    processes: tuple[str, ...] = ()
    edit: Placed | None = None
    sequence: int = 0
    caller: str = ""
    ways: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """That of its rule."""
        return self.rule.id

    @property
    def title(self) -> str:
        """That of its rule."""
        return self.rule.title

    @cached_property
    def change(self) -> CodeChange | None:
        """What the edit makes of the lines that the recording holds; `fix` shows its code."""
        return change_at(self.edit) if self.edit is not None else None

    @property
    def urgency(self) -> tuple[Severity, bool, bool]:
        """Sorts findings: the most severe first, of these the ones about wrong numbers, then those with a place."""
        return self.severity, not self.rule.wrong, not self.site.known

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts findings: by urgency, then the costliest first, then by place."""
        place = self.site.file_line
        return (*self.urgency, -self.cost_ns[1], self.id, self.sequence, *place, self.what)

    @property
    def cost_per_step_ns(self) -> tuple[int, int]:
        """The part of `cost_ns` that falls on one complete step."""
        low, high = self.cost_ns
        share = self.per_step / self.count if self.count else 0.0
        return round(low * share), round(high * share)


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule, with its documentation. Applies to torch release `since` to `until`, both included.

    `fix` is the general advice; a finding says it in terms of its own line where it can. `example` is run by the
    tests; a known bug of the backend has none, but a row in rules/faults/faults.toml.
    `refusal`: its errors are calls that raised. `stops`: it stops a script on a Mac, though nothing raises here.
    `wrong`: it is about broken numbers; its errors are other results than there should be. `needs_steps`: it is applied
    only where a recording holds enough complete training steps.

    `edit` is what a machine can do about it, as sure as `safety` says; a finding may have one of its own, for its line.

    What else treats a rule in its own way goes by these: `waits`, the kinds of wait that its lines do; `about_copies`,
    whether it is about copies to the device; `about_loops`, about loops without a training step; `price`, by how many
    seconds a step of a recording is shorter without the kernels that a finding is about; `explains`, whether the rule,
    or another one of its file, is about the exception that ended a run. `project` is an edit for every line of a
    project that it fits, once there is a finding.
    """

    id: str
    title: str
    why: str
    fix: str
    source: str
    example: Example | None
    severity: Severity = Severity.ERROR
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None
    related_as: str = "made at"
    refusal: bool = False
    stops: bool = False
    wrong: bool = False
    needs_steps: bool = False
    edit: Edit | None = None
    safety: Safety = Safety.ADVICE
    waits: frozenset[Wait] = frozenset()
    about_copies: bool = False
    about_loops: bool = False
    price: Callable[[Finding, Recording], float | None] | None = None
    explains: Callable[[Recording], bool] | None = None
    project: Edit | None = None

    @property
    def about_waits(self) -> bool:
        """Whether it is about the host standing still."""
        return self.about_loops or (bool(self.waits) and not self.about_copies)

    @property
    def both_ways(self) -> bool:
        """Whether it is about a copy to the device and the one away from it, at the related line."""
        return {Wait.COPY_TO_MPS, Wait.COPY_TO_CPU} <= self.waits

    def applies(self, torch_version: str | None) -> bool:
        """Whether the rule holds for a torch version; every rule does for an unknown one."""
        release = release_in(torch_version or "")
        return release is None or (self.since or release) <= release <= (self.until or release)

    def finding(
        self,
        site: Site,
        *,
        what: str,
        count: int,
        per_step: float = 0.0,
        cost_ns: tuple[float, float] = (0, 0),
        fix: str = "",
        source: str = "",
        related_sites: Iterable[Site] = (),
        related_as: str = "",
        severity: Severity | None = None,
        why: str = "",
        edit: Edit | None = None,
        edit_at: Iterable[Site] = (),
        safety: Safety | None = None,
        written: str = _WRITTEN,
        sequence: int = 0,
        ways: tuple[str, ...] = (),
    ) -> Finding:
        """A finding of this rule; what is given replaces the rule's own where the place allows a better word.

        `edit` is made at the first of the lines `edit_at` that it fits, `site` if there are none. `written` is the fix
        where the recording holds enough to build the new code, `{new}`, for the first of these; `fix` the one where
        it does not.
        """
        edit = edit or self.edit
        sites = tuple(dict.fromkeys(place for place in edit_at if place.known)) or (site,)
        placed = Placed(edit, sites, self.safety if safety is None else safety) if edit is not None else None
        change = change_at(placed) if placed is not None else None
        return Finding(
            rule=self,
            severity=self.severity if severity is None else severity,
            site=site,
            count=count,
            per_step=per_step,
            cost_ns=(round(cost_ns[0]), round(cost_ns[1])),
            what=what,
            why=why or self.why,
            fix=_told(written if _is_at(change, sites[0]) else _WRITTEN, change) or fix or self.fix,
            source=source or self.source,
            related_sites=tuple(related for related in related_sites if related.known),
            related_as=related_as or self.related_as,
            edit=placed,
            sequence=sequence,
            ways=ways,
        )


def _is_at(change: CodeChange | None, site: Site) -> bool:
    return change is not None and change.file == site.file and change.line <= site.line


def _told(written: str, change: CodeChange | None) -> str:
    """The fix with the new code; empty where there is none, or it takes several lines."""
    if change is None or not change.code:
        return ""
    if not change.inserts:
        return written.replace("{new}", change.code)
    made = " and ".join(f"`{insert.code}`" for insert in change.inserts)
    return f"Make {made} once, below the imports. Then {written[0].lower()}{written[1:].replace('{new}', change.code)}"
