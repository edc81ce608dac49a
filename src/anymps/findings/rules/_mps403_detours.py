"""MPS403 to MPS406: tensors that pass through the CPU in every step and need not.

Round trips, tensors that are made on the CPU, and those that are kept there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from anymps._errors import UnsupportedTorchError
from anymps._text import listed
from anymps.findings._costs import COPY
from anymps.findings._loop import MIN_STEPS, AtLine, by_line, count_of, is_every_step, is_library, some_steps, times
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.findings._release import release_of
from anymps.findings.advice import BUFFER, ON_DEVICE, WAITS, UserLine, move_module
from anymps.findings.edits import Safety, place_at
from anymps.record import Direction, Noted, Recording, Wait
from anymps.rules import Kind, coverage
from anymps.source import (
    LineEdit,
    Place,
    Rewritten,
    Splice,
    argument,
    last_name,
    parse_expression,
    unpacks,
)

_COPY = f"aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); {COPY.source}"

ROUND_TRIP = Rule(
    id="MPS403",
    title="Tensor copied to the CPU and back for nothing",
    severity=Severity.WARNING,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS, Wait.COPY_TO_CPU}),
    why=(f"A Mac's CPU and GPU share memory, but a tensor is still copied each way, and the host {WAITS}."),
    fix="Leave the tensor on mps: drop `.cpu()` and `.to(device)`.",
    related_as="left mps at",
    source=_COPY,
    example=Example(
        bad="""
            for x in batches:
                train(x)
                weight = model.weight.detach().cpu()
                largest = torch.sort(weight).values.to(device)
        """,
        better={".cpu()": "", ".values.to(device)": ".values"},
    ),
)

BORN = Rule(
    id="MPS404",
    title="Tensor made on the CPU and copied in every step",
    severity=Severity.WARNING,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS}),
    needs_steps=True,
    why=f"A copy to mps {WAITS}; the same tensor made on mps needs no copy.",
    fix=f"{ON_DEVICE}, or once, before the loop. {BUFFER}",
    source=_COPY,
    example=Example(
        bad="""
            class Shifted(torch.nn.Module):
                def forward(self, x):
                    return x + torch.arange(4).to(x.device)


            for x in batches:
                train(x)
                Shifted()(x.to(device))
        """,
        better={"return x + torch.arange(4).to(x.device)": "return x + torch.arange(4, device=x.device)"},
    ),
)

DRAWN = Rule(
    id="MPS405",
    title="Random numbers drawn on the CPU in every step",
    severity=Severity.INFO,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS}),
    needs_steps=True,
    why=(
        "A CPU generator gives the same numbers on every machine, unlike one on mps. The price is a copy, for which "
        f"the host {WAITS}."
    ),
    fix='If the numbers need not match those of other machines, draw on mps: `torch.Generator("mps")`.',
    source=f"aten/src/ATen/native/mps/operations/Distributions.mm (torch 2.13); {_COPY}",
    example=Example(
        bad="""
            generator = torch.Generator().manual_seed(0)
            for x in batches:
                noise = torch.randn(8, 4, generator=generator).to(device)
                train(x)
        """,
        better={"Generator()": "Generator(device)", "generator).to(device)": "generator, device=device)"},
    ),
)

CONSTANT = Rule(
    id="MPS406",
    title="Same tensor copied to mps in every step",
    severity=Severity.WARNING,
    about_copies=True,
    waits=frozenset({Wait.COPY_TO_MPS}),
    needs_steps=True,
    why=(f"Its values were the same each time. A copy to mps {WAITS}; a tensor that is already on mps needs no copy."),
    fix=f"Copy it to mps once, before the loop. {BUFFER}",
    source=_COPY,
    example=Example(
        bad="""
            weights = torch.tensor([1.0, 0.0, 0.5])
            for x in batches:
                loss = (train(x) * weights.to(device)).sum()
        """,
        better={"0.5])": "0.5]).to(device)", "weights.to(device)": "weights"},
    ),
)

_PACKING = "torch/nn/utils/rnn.py:pack_padded_sequence"
# Whole modules that move on purpose: their weights are saved, swapped or kept away while not in use.
_MODULES_MOVE = ("torch/nn/modules/module.py", "torch/optim/optimizer.py")


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about detours through the CPU."""
    yield from map(_round_trip, round_trips(recording))
    copies = [copy for copy in recording.copies() if copy.direction is Direction.CPU_TO_MPS]
    lines = {line.site.file_line: line for line in by_line(copies) if line.site.known}
    told = set()
    for born in recording.noted("born"):
        site = born.occurrence.site
        line = lines.get(site.file_line)
        if line is None or site in told or is_library(site):
            continue
        told.add(site)
        routine = tuple(copy for copy in line.occurrences if copy.site == site and is_every_step(recording, copy))
        if routine and not _stands_for_data(born, AtLine(site, routine)):
            yield _born(recording, born, AtLine(site, routine))
    yield from _constants(recording, lines, {site.file_line for site in told})


def _constants(
    recording: Recording, lines: dict[tuple[str, int], AtLine], told: set[tuple[str, int]]
) -> Iterator[Finding]:
    constants: dict[tuple[str, int], list[Noted]] = {}
    for constant in recording.noted("constant"):
        site = constant.occurrence.site
        if site.file_line not in told and not is_library(site) and not site.via.startswith(_MODULES_MOVE):
            constants.setdefault(site.file_line, []).append(constant)
    for place, found in constants.items():
        routine = (
            [copy for copy in lines[place].occurrences if is_every_step(recording, copy)] if place in lines else []
        )
        if routine:
            yield _constant(recording, found, AtLine(found[0].occurrence.site, tuple(routine)))


def _constant(recording: Recording, constants: list[Noted], line: AtLine) -> Finding:
    name = str(constants[0].facts.get("name", ""))
    copies = count_of(constants)
    others = copies - 1
    # Once a step each, at least; the line may copy the batch as well.
    per_step = min(line.per_step, float(copies))
    count = min(line.count, copies * recording.complete_steps)
    moved = sum(_bytes(constant) * constant.occurrence.count for constant in constants) * count // copies
    subject = f"`{name}`" if name else "A tensor"
    subject += "" if not others else " and another one" if others == 1 else f" and {others} others"
    verb = "was" if not others else "were"
    attribute = re.fullmatch(r"self\.(\w+)", name)
    kept = constants[0].facts.get("kept")
    often = some_steps(recording, line.occurrences) or " in every step"
    return line.finding(
        CONSTANT,
        what=f"{subject} {verb} copied to mps from the CPU{often}, and had not changed.",
        count=count,
        per_step=per_step,
        cost_ns=COPY.of(count, moved),
        fix=(
            move_module(kept, "once, before the loop")
            if kept
            else f'{BUFFER} Write `self.register_buffer("{attribute[1]}", ..., persistent=False)` where it is made.'
            if attribute and line.modules
            else f"Copy `{name}`, or what it is taken from, to mps once, before the loop."
            if name.isidentifier()
            else ""
        ),
    )


def _bytes(constant: Noted) -> int:
    size = constant.facts.get("bytes")
    return size if isinstance(size, int) else 0


def _stands_for_data(born: Noted, line: AtLine) -> bool:
    """Whether it may be a batch of made-up data: drawn in a loop without other data, by no generator of the CPU's."""
    drawn = _DRAWN_DATA.match(str(born.facts.get("expression", "")))
    if drawn is None or line.modules or born.facts.get("generator"):
        return False
    place = place_at(line.site)
    loop = place.loop if place is not None else None
    return _OF_ANOTHER.search(drawn.string) is None and (loop is None or "range(" in ast.unparse(loop.iter))


def _born(recording: Recording, born: Noted, line: AtLine) -> Finding:
    expression = str(born.facts.get("expression", ""))
    rule = DRAWN if born.facts.get("generator") else BORN
    made = "here" if born.other.file_line == line.site.file_line else f"at {at(born.other)}"
    return line.finding(
        rule,
        what=(
            f"The tensor that `{expression}` made on the CPU {made} was copied to mps {times(line.per_step)} a step"
            f"{some_steps(recording, line.occurrences)}."
        ),
        cost_ns=COPY.of(line.count, line.moved_bytes),
        fix="" if rule is DRAWN else _fix(born, expression),
        related_sites=[born.other] if made != "here" else [],
        edit=LineEdit(partial(made_on_device, expression, bool(born.facts.get("number")))) if rule is BORN else None,
        safety=Safety.PROVED,
        written=_WRITTEN,
    )


def _fix(born: Noted, expression: str) -> str:
    """The advice for one call, empty where it takes no device or more than that must change."""
    statement = UserLine.of(expression).statement
    made = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return ""
    if made.func.attr == "randperm":
        return f"Create it on the device: `{expression.removesuffix(')')}, device=device)`."
    if made.func.attr not in ("as_tensor", "new_tensor", "tensor"):
        return f"{ON_DEVICE}."
    if born.facts.get("number") and made.args:
        return _FILLED
    once = f"reate it once, before the loop. {BUFFER}"
    fixed = bool(made.args) and not any(isinstance(node, (ast.Name, ast.Call)) for node in ast.walk(made.args[0]))
    return f"C{once}" if fixed else f"If its values never change, c{once}"


_DRAWN_DATA: Final = re.compile(r"torch\.rand(?!perm)")  # an order is an index, and no data
_OF_ANOTHER: Final = re.compile(r"\.(?:shape|size)\b")  # drawn to fit a tensor that is there
_WRITTEN: Final = "Write `{new}`, which creates it on the device."
_FILLED: Final = (
    "Create it on the device with `full` or `new_full`, which copies nothing. Most calls also take a plain number."
)


def round_trips(recording: Recording) -> Iterator[list[Noted]]:
    """Round trips reported as a finding (MPS403), by the lines of both copies; `other` is the way to the CPU."""
    groups: dict[tuple[object, ...], list[Noted]] = {}
    for trip in recording.noted("round_trip"):
        sites = (trip.occurrence.site, trip.other)
        if not any(is_library(site) or site.via.startswith(_MODULES_MOVE) for site in sites):
            groups.setdefault(tuple(site.file_line for site in sites), []).append(trip)
    for trips in groups.values():
        if _is_routine(recording, trips) and all(_has(recording, name) for name in _operators(trips)):
            yield trips


def _is_routine(recording: Recording, trips: list[Noted]) -> bool:
    """Every step; without a training loop, at least as often as makes a loop."""
    if recording.complete_steps < MIN_STEPS:
        return count_of(trips) >= MIN_STEPS
    return any(is_every_step(recording, trip.occurrence) for trip in trips)


def _round_trip(trips: list[Noted]) -> Finding:
    back, away = trips[0].occurrence.site, trips[0].other
    count = count_of(trips)
    moved = sum(trip.occurrence.moved_bytes for trip in trips)
    per_step = sum(trip.occurrence.per_step for trip in trips)
    operators = _operators(trips)
    names = listed([f"`{name}`" for name in operators])
    left = f" at {at(away)}" if away.known else ""
    between = "nothing had changed it" if not operators else f"only {names} had been applied to it"
    often = f"{times(per_step)} a step" if per_step else times(count)
    fix = "" if not operators else f"Leave it on mps: {names} {'runs' if len(operators) == 1 else 'run'} there too."
    if back.via.startswith(_PACKING):
        fix = "`pack_padded_sequence` takes lengths on the CPU only: keep a copy there, beside the one on mps."
    return ROUND_TRIP.finding(
        back,
        what=f"A tensor that was copied to the CPU{left} came back {often}, and {between}.",
        count=count,
        per_step=per_step,
        cost_ns=COPY.of(2 * count, 2 * moved),
        fix=fix,
        related_sites=[away],
    )


def _operators(trips: list[Noted]) -> list[str]:
    """What was done on the CPU meanwhile, each operator once, in the order of the first time."""
    names: dict[str, None] = {}
    for trip in trips:
        found = trip.facts.get("operators")
        names |= dict.fromkeys(str(name) for name in found) if isinstance(found, list) else {}
    return list(names)


def _has(recording: Recording, operator: str) -> bool:
    """Whether mps ran the operator in the recorded torch."""
    release = release_of(recording)
    try:
        return release is not None and coverage(operator.removeprefix("aten::"), release).kind in (
            Kind.NATIVE,
            Kind.COMPOSITE,
        )
    except UnsupportedTorchError:
        return False


_FROM_VALUES: Final = {"as_tensor": "full", "new_tensor": "new_full", "tensor": "full"}
_DEVICE: Final = re.compile(r"(?:\w+\.)*(?:device|DEVICE)")


def made_on_device(expression: str, number: bool, place: Place) -> Rewritten | None:
    """The statement in which `expression` makes a tensor, of one `number` or not, and `.to` moves it."""
    wanted = parse_expression(expression)
    same = ast.dump(wanted) if wanted is not None else ""
    made = next((call for call in place.code.calls if ast.dump(call) == same), None)
    if made is None or unpacks(made):
        return None
    name = last_name(made)
    if name in _FROM_VALUES and not (number and made.args):
        return None
    move = _moved_by(made, place)
    given = argument(made, "device") is not None
    if (move is None and not given) or (given and name not in _FROM_VALUES):
        return None
    splices = []
    if name in _FROM_VALUES:  # `torch.tensor(0.5)` as `torch.full((), 0.5)`, which copies nothing from the host
        end = place.code.span(made.func)[1]
        first = place.code.span(made.args[0])[0]
        splices += [Splice(end - len(name), end, _FROM_VALUES[name]), Splice(first, first, "(), ")]
    shown = place.code.span(move if move is not None else made)
    if move is not None and isinstance(move.func, ast.Attribute):
        end = place.code.span(made)[1] - 1
        if not given:
            separator = ", " if made.args or made.keywords else ""
            splices.append(Splice(end, end, f"{separator}device={place.code.source(move.args[0])}"))
        splices.append(Splice(place.code.span(move.func.value)[1], place.code.span(move)[1], ""))
    return Rewritten(tuple(splices), shown=shown) if splices else None


def _moved_by(made: ast.Call, place: Place) -> ast.Call | None:
    """The `.to(device)` at the end of the methods that are called on what was made."""
    node: ast.AST = made
    while True:
        attribute = place.code.parents.get(node)
        call = place.code.parents.get(attribute) if isinstance(attribute, ast.Attribute) else None
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return None
        if last_name(call) == "to":
            device = call.args[0] if len(call.args) == 1 and not call.keywords else None
            return call if device is not None and _DEVICE.fullmatch(place.code.source(device)) else None
        node = call
