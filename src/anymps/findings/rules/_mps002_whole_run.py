"""MPS002 and MPS003: a run that says little about a Mac, as nothing reached mps or an exception ended it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from anymps.findings import _catalogue
from anymps.findings._endings import Ending, ending, ending_refusal
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings.advice import PREFER_MPS
from anymps.findings.edits import Safety, chosen_by_name, place_at
from anymps.record import Recording, Site, SourcePlace
from anymps.source import LineEdit

NOTHING_RAN = Rule(
    id="MPS002",
    title="Nothing ran on mps",
    why="The script made no call on mps, so on a Mac it would run on the CPU. The report says nothing about the GPU.",
    fix=f'{PREFER_MPS}: `device = "mps" if torch.backends.mps.is_available() else "cpu"`.',
    edit=LineEdit(chosen_by_name),
    safety=Safety.SAFE,
    project=LineEdit(chosen_by_name),
    source="docs.pytorch.org, MPS backend; torch/backends/mps/__init__.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            device = "cuda" if torch.cuda.is_available() else "cpu"
            x = torch.ones(3, device=device)
        """,
        better={'"cpu"': '"mps" if torch.backends.mps.is_available() else "cpu"'},
    ),
)

UNFINISHED = Rule(
    id="MPS003",
    title="The script did not finish",
    severity=Severity.WARNING,
    why="The script stopped at the exception, so this report says nothing about the code after it.",
    fix="Fix the line and run the script again.",
    source="the traceback of the run",
    example=Example(
        bad="""
            x = torch.ones(8, 3, device=device)
            y = x @ torch.ones(8, 3, device=device)
        """,
        better={"y = x @ torch.ones(8, 3, device=device)": "y = x @ torch.ones(3, 8, device=device)"},
    ),
)

_MOVED: Final = "Then move the model and each batch, `.to(device)`, and create other tensors with `device=device`."
_BRANCH: Final = (
    "Put a branch for mps before this one: `if torch.backends.mps.is_available():`. In it, do with mps what this one "
    "does with CUDA. This one then begins with `elif`, so other machines behave as before."
)
_NAMED: Final = re.compile(r"[\"']cuda\b")
_NAMED_FIRST: Final = (
    f'{PREFER_MPS}: put `"mps" if torch.backends.mps.is_available() else` before it. Other machines behave as before.'
)
_DEVICE_TYPE: Final = (
    'The device of a tensor on mps is `mps:0`, which does not equal `torch.device("mps")` in `{}`: compare '
    '`x.device.type` with `"mps"`.'
)
_NO_VERSION: Final = (
    "`torch.version.cuda` is None in a torch without CUDA, such as that for macOS: write `(torch.version.cuda or "
    '"0.0")`.'
)
_MISTAKES: Final = (
    (
        re.compile(r"'dict' object has no attribute 'to'"),
        "Move each tensor of the dictionary: `{name: x.to(device) for name, x in batch.items()}`.",
    ),
    (
        re.compile(r"metal_capture\(\) missing 1 required positional argument"),
        'Pass the name of the trace file: `torch.mps.profiler.metal_capture("step")`.',
    ),
    (
        re.compile(r"module 'torch\.backends\.mps' has no attribute '(empty_cache|manual_seed|seed|synchronize)'"),
        r"It is a function of `torch.mps`: `torch.mps.\1`.",
    ),
    (
        re.compile(r"same dtype, but got|Input type \(MPS\w+\) and (?:weight|bias) type \(MPS\w+\) should be the same"),
        "The input and the weights have different dtypes, and no autocast casts them here: convert one to the dtype of "
        "the other, or compute under an autocast that is switched on for mps.",
    ),
)
_CALLED: Final = ("RuntimeError", "NotImplementedError")
_OF_TORCH: Final = {"torch": (*_CALLED, "TypeError", "ValueError", "IndexError", "AssertionError"), "": _CALLED}
"""Exceptions that torch raises of itself, by who is known to have raised: its Python code, or a call from the line."""


def find(recording: Recording) -> Iterator[Finding]:
    """The finding about a run without mps, or about an exception that ended it and that no other rule explains."""
    ended = ending(recording)
    choice = recording.run.device_choice
    if choice is not None and nothing_ran(recording):
        yield _unused(choice)
    explaining = (rule.explains(recording) for rule in _catalogue.RULES.values() if rule.explains is not None)
    if not ended.exception or ending_refusal(recording) is not None or any(explaining):
        return
    if ended.exception in _OF_TORCH.get(ended.raised_by, ()):
        words = f"torch raised {ended.words.removesuffix('.')}. Nothing in this message is about mps"
        fix = _known(ended) or (
            'Run the script with `device = "cpu"`: if it raises there too, the bug is in the script. If it raises '
            "only on mps, run this call on the CPU."
        )
        yield UNFINISHED.finding(ended.site, what=f"{words}.", count=1, fix=fix)
    else:
        what = f"The script ended with {ended.words.removesuffix('.')}. MPS did not raise it."
        fix = _known(ended)
        severity = None if fix else Severity.INFO
        yield UNFINISHED.finding(ended.site, what=what, count=1, fix=fix, severity=severity)


def _known(ended: Ending) -> str:
    """What to do about a mistake that scripts for mps often make; empty for another."""
    if ended.compared:
        return _DEVICE_TYPE.format(ended.compared)
    if "torch.version.cuda" in ended.site.source and "NoneType" in ended.message:
        return _NO_VERSION
    found = ((words.search(ended.message), fix) for words, fix in _MISTAKES)
    return next((match.expand(fix) for match, fix in found if match is not None), "")


def nothing_ran(recording: Recording) -> bool:
    """Whether the program came to its end and nothing of it reached mps."""
    ended = ending(recording)
    return not ended.exception and not ended.early and recording.run.device_choice is not None


def _unused(choice: SourcePlace) -> Finding:
    """About a run without mps, at the line that chose the device as far as the source tells."""
    site = choice.site
    if choice.chosen:
        what, fix = "No tensor reached mps. This line chooses the device, and it did not choose mps.", _in_words(site)
    else:
        what = "The script never named a device, so everything stayed on the CPU."
        fix = f"{NOTHING_RAN.fix} {_MOVED}"
    written = "Let the line choose mps too: `{new}`. Other machines behave as before."
    return NOTHING_RAN.finding(
        site,
        what=what,
        count=1,
        fix=fix,
        written=written,
    )


def _in_words(site: Site) -> str:
    """What to do about a line that asks for CUDA, and for which no code can be built; empty for another."""
    if "cuda" not in site.source:
        return ""
    place = place_at(site)
    if place is not None and isinstance(place.code.statement, ast.If):
        return _BRANCH
    if _NAMED.search(site.source):
        return _NAMED_FIRST
    return f"{NOTHING_RAN.fix} Then write `.to(device)` for `.cuda()`, and `device=device` where a tensor is made."
