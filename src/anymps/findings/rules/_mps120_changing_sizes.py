"""MPS120: sizes that change from step to step, for each of which a Mac compiles a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anymps.findings._costs import KEPT_SOURCE, kept_graphs
from anymps.findings._loop import is_library, number
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.findings.advice import FIXED_SIZES
from anymps.findings.edits import place_at
from anymps.record import Recording, Site
from anymps.record.format import ON_MPS

_OPERATORS = (
    *("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", "aten::_mps_convolution"),
    *("aten::convolution_backward", "aten::convolution_backward_overrideable"),
    *("aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm"),
    *("aten::native_batch_norm", "aten::_batch_norm_with_update", "aten::_softmax", "aten::_log_softmax"),
)
"""Operators whose graph is kept under a key that holds the sizes of its inputs, in torch 2.11 to 2.15."""

_JOINS = ("aten::cat", "aten::_cat")
_GROWS = (
    "Tensors grow where they are joined, at {}. Allocate the full length before the loop, write each new part into "
    "its place, and mask the rest."
)

_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_BEFORE = re.compile(r"past|prev|cache", re.IGNORECASE)
_MOST_NAMED = 3  # operators of the sentence
_LEAST = 8  # steps with new sizes: fewer are the last batch, a validation, a few buckets

SIZES = Rule(
    id="MPS120",
    title="Sizes change from step to step",
    severity=Severity.WARNING,
    why=(
        "MPSGraph compiles a graph for each set of sizes, and keeps it. A step with new sizes waits for the compiler, "
        "and the kept graphs take memory that no counter of torch shows."
    ),
    fix=FIXED_SIZES,
    source=(
        "aten/src/ATen/native/mps/OperationUtils.mm (getTensorsStringKey, MPSGraphCache), torch 2.11 to 2.15; a graph "
        "that is not kept yet took 100 us to encode instead of 15 on an M1 Max in 2022 (pytorch issue 82707); the kept "
        f"ones are never dropped (pytorch issue 164299); {KEPT_SOURCE}; 13.7 GB of the driver after 315 batches of new "
        "shapes on an M4 Max, with the allocator's cache (pytorch PR 181485)"
    ),
    example=Example(
        bad="""
            sizes = iter(range(16, 40))
            small = torch.nn.Conv2d(3, 4, 3).to(device)
            for _ in range(12):
                side = next(sizes)
                small(torch.zeros(1, 3, side, side, device=device)).sum().backward()
        """,
        better={"sizes = iter(range(16, 40))\n": "", "    side = next(sizes)\n": "", "side, side": "16, 16"},
    ),
)


@dataclass(frozen=True)
class Varied:
    """One operator at one site, as its sizes vary: in `steps` complete steps it met `signatures` different ones.

    A signature is the dtypes and shapes of a call's inputs. `steps_with_new` of the steps met one for the first time.
    """

    operator: str
    site: Site
    signatures: int
    steps: int
    steps_with_new: int


def find(recording: Recording) -> Iterator[Finding]:
    """One finding, at the line with the most sizes: what makes them change is the same for all."""
    if recording.complete_steps < _LEAST:
        return
    places = [place for place in _varied(recording, _OPERATORS) if _changes(place)]
    if not places:
        return
    by_operator: dict[str, int] = {}
    for place in places:
        name = place.operator
        by_operator[name] = max(by_operator.get(name, 0), place.signatures)
    ranked = sorted(by_operator.items(), key=lambda item: (-item[1], item[0]))
    counts = ", ".join(f"`{name}` {number(count)}" for name, count in ranked[:_MOST_NAMED])
    worst = max(places, key=lambda place: (not is_library(place.site), place.site.known, place.signatures))
    joins = (use for use in _varied(recording, _JOINS) if _changes(use) and _grows(use.site))
    joined = max(joins, key=lambda use: use.signatures, default=None)
    graphs = sum(place.signatures for place in places)
    yield SIZES.finding(
        worst.site,
        what=(
            f"Different sizes in {number(worst.steps)} steps, by operator: {counts}. "
            f"A Mac compiles {number(graphs)} graphs for {'this line' if len(places) == 1 else 'these calls'}; "
            f"they may keep {kept_graphs(graphs)} that no counter of torch shows."
        ),
        count=graphs,
        per_step=graphs / worst.steps,
        fix="" if joined is None else _GROWS.format(at(joined.site)),
        related_sites=() if joined is None else (joined.site,),
        related_as="joined at",
    )


def _grows(site: Site) -> bool:
    """Whether a line joins something to what it was before: `keys = torch.cat([keys, key])`, `cat([past, key])`."""
    place = place_at(site)
    statement = place.code.statement if place is not None else None
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)) or statement.value is None:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    given = {ast.unparse(target) for target in targets if target is not None}
    parts = [ast.unparse(node) for node in ast.walk(statement.value) if isinstance(node, _NAMED)]
    return any(part in given or _BEFORE.search(part) for part in parts)


def _changes(place: Varied) -> bool:
    """Whether the sizes at a place are new in at least every second step, and in enough of them."""
    return place.steps_with_new >= _LEAST and 2 * place.steps_with_new >= place.steps


def _varied(recording: Recording, operators: Sequence[str]) -> list[Varied]:
    """Where these operators ran in complete steps, and with how many different inputs; the most varied first."""
    names = ", ".join(f"'{name}'" for name in operators)
    found = recording.stream(
        "SELECT name, site, COUNT(DISTINCT inputs), COUNT(DISTINCT step), "
        "COUNT(DISTINCT CASE WHEN step = first THEN step END) FROM (SELECT "
        "o.name AS name, e.site AS site, s.inputs AS inputs, e.step AS step, e.id AS id, MIN(e.step) "
        "OVER (PARTITION BY o.name, e.site, s.inputs) AS first FROM entries e "
        "JOIN signatures s ON s.id = e.signature JOIN operators o ON o.id = s.operator "
        "JOIN steps c ON c.step = e.step AND c.end_ns IS NOT NULL "
        f"WHERE o.name IN ({names}) AND {ON_MPS}) GROUP BY 1, 2 ORDER BY 3 DESC, MIN(id)"
    )
    return [Varied(name, recording.site(at), *numbers) for name, at, *numbers in found]
