"""MPS407: CUDA, which no Mac has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from anymps.findings._endings import ending
from anymps.findings._model import Example, Finding, Rule
from anymps.findings.advice import EVERYWHERE
from anymps.findings.edits import Safety, chosen_by_name, portable
from anymps.record import Noted, Recording
from anymps.source import LineEdit

_CUDA = re.compile(r"cuda(:\d+)?")

CUDA = Rule(
    id="MPS407",
    title="CUDA call raises on a Mac",
    refusal=True,
    explains=lambda recording: asked_for_cuda(recording) is not None,
    why="torch for macOS is built without CUDA: any use of it raises AssertionError.",
    fix=EVERYWHERE,
    edit=LineEdit(portable),
    safety=Safety.SAFE,
    project=LineEdit(chosen_by_name),
    source="torch/cuda/__init__.py (_lazy_init), torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.ones(3).cuda()",
        better={".cuda()": '.to("mps" if torch.backends.mps.is_available() else "cuda")'},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """The finding about the line that asked for CUDA, if that ended the run."""
    mark = asked_for_cuda(recording)
    if mark is not None and "sentence" not in mark.facts:
        words = "This line needs CUDA and raised AssertionError: Torch not compiled with CUDA enabled"
        yield CUDA.finding(mark.occurrence.site, what=words, count=1, fix=_other_option(recording.run.arguments))


def _other_option(arguments: Sequence[str]) -> str:
    """What to do where the command line of the script chose CUDA (`--device cuda`): no line of it needs a change."""
    for before, given in pairwise(("", *arguments)):
        option, _, value = given.rpartition("=")
        if _CUDA.fullmatch(value):
            new = f"{option}=mps" if option else f"{before} mps" if before.startswith("-") else "mps"
            old = f"{before} {given}" if before.startswith("-") and not option else given
            return f"Start the script with `{new}` in place of `{old}`."
    return ""


def asked_for_cuda(recording: Recording) -> Noted | None:
    """The line that asked for CUDA, if that ended the run: a program that catches the error knows what to do.

    With `--cuda-as-mps` it is one that asked for what no Mac has (MPS410).
    """
    ended = ending(recording)
    if ended.message.startswith("anymps: ") and ended.exception == "NotImplementedError":
        return next(iter(recording.noted("cuda_refused")[-1:]), None)
    if "not compiled with CUDA" not in ended.message:
        return None
    return next(iter(recording.noted("cuda")[-1:]), None)
