"""MPS695 to MPS698: results that differ from the CPU's (`--check-numbers`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from anymps._text import base_name, percent
from anymps.findings._loop import times
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import ON_THE_CPU
from anymps.record import Recording, Site
from anymps.rules.faults import all_hazards

_FIX: Final = f"{ON_THE_CPU} Then report it to PyTorch with these numbers and the dtype."
_SOURCE: Final = "recomputed on the CPU from the same inputs, in float64, complex128 or integers"


def _example(identity: str, bad: str, better: Mapping[str, str]) -> tuple[Example, str]:
    """An example that meets a known bug, and the rule's source with that of the bug."""
    bug = next(hazard for hazard in all_hazards() if hazard.id == identity)
    issues = ", ".join(f"#{number}" for number in bug.issues)
    releases = f"The example is the known bug [{identity}]({identity}.md): {bug.where}"
    example = Example(bad, better=better, numbers=True, releases=releases)
    return example, f"{_SOURCE}; example: pytorch issue {issues}"


_NAN_EXAMPLE, _NAN_SOURCE = _example(
    "MPS639",
    """
        x = torch.full((1, 4, 300), 4000.3, device=device)
        y = torch.nn.functional.group_norm(x, 2)
    """,
    {"group_norm(x, 2)": "group_norm(x - x.mean(), 2)"},
)
_NUMBER_EXAMPLE, _NUMBER_SOURCE = _example(
    "MPS605",
    """
        table = torch.tensor([1.0, 2.0])
        x = torch.ones(4, device=device) + table[1]
    """,
    {"table[1]": "table[1].item()"},
)

NOT_FINITE = Rule(
    id="MPS695",
    title="NaN or infinity where the CPU has none",
    why=(
        "The CPU computed this call from the same inputs and got a finite number, or the reverse. NaN spreads to "
        "everything computed from it: in a training step, to all weights."
    ),
    fix=_FIX,
    source=_NAN_SOURCE,
    example=_NAN_EXAMPLE,
    wrong=True,
)
NUMBER = Rule(
    id="MPS696",
    title="Result differs from the CPU's",
    why="The CPU computed this call from the same inputs. The results differ by more than rounding can explain.",
    fix=_FIX,
    source=_NUMBER_SOURCE,
    example=_NUMBER_EXAMPLE,
    wrong=True,
)
FLUSHED = Rule(
    id="MPS697",
    title="Subnormal numbers flushed to zero",
    severity=Severity.INFO,
    why=(
        "PyTorch's Metal kernels flush numbers closer to zero than the dtype's smallest normal number (1.2e-38 in "
        "float32). This only matters if you divide by them, or scale them up later."
    ),
    fix="Nothing, unless these numbers matter. If they do, scale them up first, as a GradScaler does with the loss.",
    source=(
        "Metal Shading Language Specification 4.1, section 8.1: subnormal float numbers may be flushed to zero; "
        "pytorch issue #125051"
    ),
    example=Example(
        bad="""
            x = torch.full((4,), 1e-20, device=device)
            y = x * x
        """,
        better={"x * x": "(1e10 * x) * x"},
        numbers=True,
        releases="All supported releases of torch",
    ),
)
REFUSED = Rule(
    id="MPS698",
    title="Index out of bounds without an error",
    why=(
        "The CPU computed this call from the same inputs and raised an error about an index. Here it ran: an "
        "out-of-bounds read or write, unless an error follows at a later wait."
    ),
    fix="Check the indices where they are created: the largest must be less than the size of what they index.",
    source=f"{_SOURCE}; example: pytorch issue #189971",
    example=Example(
        bad="""
            weight = torch.rand(4, 2, device=device)
            rows, offsets = torch.tensor([0, 4], device=device), torch.tensor([0], device=device)
            y = torch.nn.functional.embedding_bag(rows, weight, offsets)
        """,
        better={"[0, 4]": "[0, 3]"},
        numbers=True,
        releases=(
            "In torch 2.13 the example, an index equal to the number of rows, raises no error. A larger index raises "
            "one at a later wait"
        ),
    ),
    wrong=True,
)

_RULE_OF: Final = {"not finite": NOT_FINITE, "number": NUMBER, "flushed": FLUSHED, "refused": REFUSED}
_MARK: Final = "anymps::hazard."


@dataclass
class _Group:
    """The wrong results of one operator and kind at one line; the first of them stands for all."""

    site: Site
    first: dict[str, object]
    count: int = 0
    folded: list[tuple[str, Site]] = field(default_factory=list)

    @property
    def order(self) -> int:
        return _whole(self.first.get("order"))


def find(recording: Recording) -> Iterator[Finding]:
    """One finding for each line, operator, dtype and kind, in the order of the run.

    A result with a wrong result among its inputs is reported with that one, not on its own.
    """
    groups: dict[tuple[Site, str, str, str], _Group] = {}
    of_order: dict[int, _Group] = {}
    for noted in sorted(recording.noted("numbers"), key=lambda noted: _whole(noted.facts.get("order"))):
        facts, site = noted.facts, noted.occurrence.site
        kind, operator = str(facts.get("kind")), str(facts.get("operator"))
        if kind not in _RULE_OF:
            continue
        cause = of_order.get(_whole(facts.get("follows")))
        if cause is not None and cause.site != site:
            cause.folded.append((operator, site))
            of_order[_whole(facts.get("order"))] = cause
            continue
        group = groups.setdefault((site, operator, str(facts.get("dtype")), kind), _Group(site, dict(facts)))
        group.count += noted.occurrence.count
        of_order[_whole(facts.get("order"))] = group
    known = _known_faults(recording)
    for place, group in enumerate(sorted(groups.values(), key=lambda group: group.order)):
        yield _finding(group, place, known.get((group.site, base_name(str(group.first.get("operator"))))))


def _finding(group: _Group, place: int, identity: str | None) -> Finding:
    facts = group.first
    rule = _RULE_OF[str(facts.get("kind"))]
    hazard = next((hazard for hazard in all_hazards() if hazard.id == identity), None)
    if rule is REFUSED:
        return rule.finding(
            group.site,
            what=f"`{facts.get('operator')}` ran {times(group.count)}, but the CPU rejects it: {facts.get('expected')}",
            count=group.count,
            sequence=place,
        )
    what = f"{_result(facts)}{_often(group)}. {_worst(facts)}{_folded(group)}"
    if hazard is not None:
        what += f" This is the known bug {hazard.id}."
    if facts.get("mpsgraph"):
        what += " MPSGraph computes this operator in this release, and how it does so is not public."
    return rule.finding(
        group.site,
        what=what,
        count=group.count,
        fix=hazard.fix if hazard is not None else "",
        source=_source(facts),
        related_sites=[site for _, site in group.folded][:5],
        related_as="its result is used at",
        sequence=place,
    )


def _result(facts: dict[str, object]) -> str:
    wrong, count = _whole(facts.get("wrong")), max(1, _whole(facts.get("count")))
    inputs = " and ".join(_shape(shape) for shape in _list(facts.get("shapes"))[:3]) or "no tensors"
    layout = str(facts.get("layout"))
    laid = "" if layout == "contiguous" else f", {layout}"
    share = f"{wrong:,} of {count:,} elements" if count > 1 else "its only element"
    portion = f" ({percent(wrong / count)})" if count > 1 else ""
    done = f"flushed {share} to zero" if facts.get("kind") == "flushed" else f"got {share} wrong"
    direction = ", in the backward pass," if facts.get("backward") else ""
    return f"`{facts.get('operator')}` of {facts.get('dtype')} {inputs}{laid}{direction} {done}{portion}"


def _often(group: _Group) -> str:
    return f", and again in later calls: {times(group.count)} in all" if group.count > 1 else ""


def _worst(facts: dict[str, object]) -> str:
    index = _list(facts.get("index"))
    at = f"The worst, at {_shape(index)}, is" if index else "It is"
    allowed = f" Rounding allows an error of {facts.get('allowed')} ({facts.get('bound')})."
    if facts.get("bound") == "exact":
        allowed = " This result must be exact."
    if facts.get("allowed") in ("inf", "nan"):
        allowed = ""
    return f"{at} {facts.get('found')}; the CPU computes {facts.get('expected')}.{allowed}"


def _folded(group: _Group) -> str:
    names = list(dict.fromkeys(f"`{operator}`" for operator, _ in group.folded))
    return f" Later results computed from it are wrong too: {', '.join(names[:4])}." if names else ""


def _source(facts: dict[str, object]) -> str:
    source = str(facts.get("source") or "")
    return f"{_SOURCE}; bound: {source}" if source else _SOURCE


def _known_faults(recording: Recording) -> dict[tuple[Site, str], str]:
    """The known bug that calls of an operator met at a line."""
    found = {}
    slow = {hazard.id for hazard in all_hazards() if hazard.is_slow}
    for use in recording.hazards():
        identity, _, call = use.operator.removeprefix(_MARK).partition(" ")
        if identity not in slow:
            found[use.site, base_name(call)] = identity
    return found


def _shape(sizes: object) -> str:
    return f"[{', '.join(str(size) for size in _list(sizes))}]"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
