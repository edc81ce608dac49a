"""MPS821 to MPS825: autocast and GradScaler for another device, in a dtype that mps lacks, or around backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from anymps.findings._loop import is_library
from anymps.findings._model import Example, Finding, Rule, Severity, at
from anymps.findings.advice import UserLine, has_half_parameters
from anymps.findings.edits import TYPE_WITH_MPS, Safety, portable, recorded_statements
from anymps.record import Fate, Noted, Recording, Site
from anymps.source import LineEdit, last_name

OTHER_AUTOCAST = Rule(
    id="MPS821",
    title="autocast has no effect on mps",
    severity=Severity.WARNING,
    why="autocast acts only on operators of the device that it names, so here it does nothing.",
    fix="Name the device of the tensors, `device_type=x.device.type`, and keep the other arguments.",
    edit=LineEdit(portable),
    safety=Safety.SAFE,
    source="torch/amp/autocast_mode.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.rand(4, 4, device=device)
            with torch.autocast("cuda"):
                y = x @ x
        """,
        better={'with torch.autocast("cuda"):': 'with torch.autocast("mps"):'},
    ),
)

OTHER_SCALER = Rule(
    id="MPS822",
    title="GradScaler has no effect on mps",
    severity=Severity.WARNING,
    why="Without CUDA, a GradScaler for CUDA switches itself off: neither the loss nor the gradients are scaled.",
    fix='Name the device: `torch.amp.GradScaler("mps")`.',
    edit=LineEdit(portable),
    safety=Safety.SAFE,
    source='torch/amp/grad_scaler.py, torch 2.8 to 2.15 (`device` is "cuda" unless it is given)',
    example=Example(
        bad="""
            x = torch.rand(4, 4, device=device)
            scaler = torch.amp.GradScaler()
            with torch.autocast("mps", dtype=torch.float16):
                y = x @ x
        """,
        better={"scaler = torch.amp.GradScaler()": 'scaler = torch.amp.GradScaler("mps")'},
    ),
    since=(2, 8),
)

_IDLE: Final[dict[str, Any]] = {
    "severity": Severity.INFO,
    "why": (
        "Without CUDA, a GradScaler for CUDA switches itself off. Nothing is lost: only float16 gradients of float32 "
        "parameters are scaled, and a scaler for mps would make the host wait in every step."
    ),
    "fix": 'Leave the scaler out on mps. For float16 under autocast, make it with `torch.amp.GradScaler("mps")`.',
    "edit": None,
    "safety": Safety.ADVICE,
}
"""What MPS822 says of a program that computes nothing in float16, or whose parameters are float16 themselves."""

BACKWARD = Rule(
    id="MPS823",
    title="backward() under autocast may cast more than forward",
    severity=Severity.INFO,
    why=(
        "Backward runs each operator in the dtype of its forward, so it needs no autocast. Under autocast, operators "
        "of your own `autograd.Function` may be cast although they were not in forward."
    ),
    fix="End the `with torch.autocast(...)` block after the loss, before `backward()`.",
    source="torch/amp/autocast_mode.py (backward passes under autocast are not recommended), torch 2.7 to 2.15",
    example=Example(
        bad="""
            with torch.autocast("mps", dtype=torch.bfloat16):
                loss = model(batches[0].to(device)).sum()
                loss.backward()
        """,
        better={"    loss.backward()": "loss.backward()"},
    ),
)

SWITCHED_OFF = Rule(
    id="MPS824",
    title="autocast has no effect with this dtype",
    severity=Severity.WARNING,
    why=(
        "On mps, autocast supports float16 and bfloat16. For any other dtype, torch warns and switches autocast off: "
        "every operator then runs in the dtype of its tensors."
    ),
    fix=(
        "Use float16, or bfloat16 on M3 and later. To compute in float32, leave autocast out. Nothing computes in "
        "float64 on mps."
    ),
    source="torch/amp/autocast_mode.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.rand(4, 4, device=device)
            with torch.autocast("mps", dtype=torch.float64):
                y = x @ x
        """,
        better={'with torch.autocast("mps", dtype=torch.float64):': 'with torch.autocast("mps", dtype=torch.float16):'},
    ),
)

ISLAND = Rule(
    id="MPS825",
    title="Autocast stays on for mps",
    severity=Severity.WARNING,
    why=(
        "`enabled=False` switches autocast off only for the named device. It stays on for mps, so operators that were "
        "meant to run in float32 silently run in the lower precision."
    ),
    fix="Switch it off for the device of the tensors: `torch.autocast(device_type=x.device.type, enabled=False)`.",
    edit=LineEdit(portable),
    safety=Safety.SAFE,
    source="torch/amp/autocast_mode.py (autocast is a state of each device type), torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.rand(4, 4, device=device)
            with torch.autocast("mps", dtype=torch.float16):
                with torch.autocast("cuda", enabled=False):
                    y = x @ x
        """,
        better={'with torch.autocast("cuda", enabled=False):': 'with torch.autocast("mps", enabled=False):'},
    ),
    related_as="switched on at",
)

_BY_TYPE: Final = (
    'A test for CUDA takes mps for the CPU. Autocast for "cpu" does nothing for operators on mps; without autocast '
    "they run in the dtype of their tensors."
)
_TYPE_OF: Final = "Set `{}` to the type of the tensors' device: `{}`."
_SAME_DTYPE: Final = "Name the device of the tensors: `torch.autocast(device_type=x.device.type, dtype=torch.{})`."


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about autocast and gradient scalers."""
    if any(use.fate is Fate.NATIVE for use in recording.operators()):
        yield from _by_types(recording)
        yield from _other_devices(recording)
    yield from _islands(recording)
    for backward in _in_program(recording.noted("backward")):
        what = f"`backward()` ran while autocast to {backward.facts.get('autocast')} was on."
        yield BACKWARD.finding(backward.occurrence.site, what=what, count=backward.occurrence.count)


def _islands(recording: Recording) -> Iterator[Finding]:
    """Of an installed package, too: its results are the program's."""
    for note in recording.noted("autocast_island"):
        device, dtype = note.facts.get("device"), note.facts.get("dtype")
        yield ISLAND.finding(
            note.occurrence.site,
            what=f"Autocast was switched off for {device}, while autocast to {dtype} was on for mps.",
            written="Switch it off for mps where there is one: `{new}`.",
            count=note.occurrence.count,
            related_sites=(note.other,),
        )


def _in_program(noted: tuple[Noted, ...]) -> list[Noted]:
    """Those at lines of the program itself; what an installed package does is its own business."""
    return [note for note in noted if not is_library(note.occurrence.site)]


def _by_types(recording: Recording) -> Iterator[Finding]:
    """About names that are "cpu" for a device on mps, where autocast or a scaler goes by them."""
    for note in recording.noted("device_type"):
        name, call = str(note.facts.get("name")), str(note.facts.get("call"))
        yield OTHER_AUTOCAST.finding(
            note.occurrence.site,
            what=f'`{name}` is "cpu" here for a device on mps, so `{call}` has no effect on mps.',
            count=1,
            why=_BY_TYPE,
            fix=_TYPE_OF.format(name, "torch.device(device).type"),
            written="If it is to act on mps, write `{new}`. Other machines behave as before.",
            edit=TYPE_WITH_MPS,
            safety=Safety.ADVICE,
            related_sites=(note.other,),
            related_as="used at",
        )


def _other_devices(recording: Recording) -> Iterator[Finding]:
    told = {(note.other.file, str(note.facts.get("name"))) for note in recording.noted("device_type")}
    scales = _has_float16(recording) and not has_half_parameters(recording)
    scaler = OTHER_SCALER if scales else replace(OTHER_SCALER, **_IDLE)
    for rule, word, call in (
        (OTHER_AUTOCAST, "autocast", "`torch.autocast` was asked for {}"),
        (scaler, "grad_scaler", "A `GradScaler` was made for {}"),
    ):
        groups: dict[tuple[str, str | int], list[Noted]] = {}
        for note in _in_program(recording.noted(word)):
            if _device(note).partition(":")[0] != "mps":
                site = note.occurrence.site
                groups.setdefault((site.file, _named_by(site) or site.line), []).append(note)
        for (file, name), notes in groups.items():
            if (file, name) in told:
                continue  # at the line that gives the name its value
            what = f"{call.format(_device(notes[0]))}, and the program computes on mps."
            dtype = notes[0].facts.get("dtype")
            fix = _SAME_DTYPE.format(dtype) if dtype else ""
            if isinstance(name, str):
                what += f" The device is that of `{name}`{_set_at(notes[0].occurrence.site, name)}."
                fix = _TYPE_OF.format(name, "x.device.type")
            first, *others = (note.occurrence.site for note in notes)
            count = sum(note.occurrence.count for note in notes)
            yield rule.finding(first, what=what, count=count, fix=fix, related_sites=others, related_as="also at")
    for note in _in_program(recording.noted("autocast")):
        if note.facts.get("device") == "mps" and note.facts.get("refused"):
            what = f"`torch.autocast` was asked for {note.facts.get('dtype')} on mps, and torch switched it off."
            yield SWITCHED_OFF.finding(note.occurrence.site, what=what, count=note.occurrence.count)


def _device(note: Noted) -> str:
    return str(note.facts.get("device", ""))


def _named_by(site: Site) -> str:
    """The name that the call at a line is given as its device, `device_type`; empty where it is a text."""
    for call in UserLine.at(site).parsed.calls:
        if last_name(call) in ("autocast", "GradScaler"):
            given = [
                *call.args[:1],
                *(named.value for named in call.keywords if named.arg in ("device_type", "device")),
            ]
            return next((each.id for each in given if isinstance(each, ast.Name)), "")
    return ""


def _set_at(site: Site, name: str) -> str:
    """`, which train.py:12 sets`, by the lines that the recording holds of the file."""
    lines = [
        number
        for number, statement in recorded_statements(site)
        if isinstance(statement, ast.Assign) and name in map(ast.unparse, statement.targets)
    ]
    return f", which {at(replace(site, line=lines[-1]))} sets" if lines else ""


def _has_float16(recording: Recording) -> bool:
    """Whether an operator computed in float16, or autocast was asked for it: CUDA's, too, which MPS821 makes one."""
    asked = any(note.facts.get("dtype") == "float16" for note in recording.noted("autocast"))
    return asked or bool(recording.with_dtype("float16"))
