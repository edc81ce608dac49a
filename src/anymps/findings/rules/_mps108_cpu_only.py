"""MPS108 to MPS111: an exception of torch's that ended the run, where a tensor or generator on the CPU would have done.

No MPS kernel raises these; they come from the parts of torch that only the CPU has. So they are read off the
exception that ended the run, by torch's own texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from anymps.findings._endings import ending, ending_refusal, kernel_limit
from anymps.findings._model import Example, Finding, Rule
from anymps.findings.advice import ON_THE_CPU
from anymps.findings.edits import Safety
from anymps.record import Recording
from anymps.rules.texts import (
    BackendText,
    called_per_element,
    generator_device,
    generator_index,
    numpy_of,
    pinned,
    pinned_factory,
)
from anymps.source import CallEdit, LineEdit, Place, Rewritten, Splice, argument, last_name


def _copied_first(place: Place) -> Rewritten | None:
    """`.cpu().numpy()`, where one call of `.numpy()` is all that it can be about."""
    calls = [
        node.func
        for node in place.code.nodes
        if isinstance(node, ast.Call) and last_name(node) == "numpy" and not node.args and not node.keywords
    ]
    if len(calls) != 1 or not isinstance(calls[0], ast.Attribute):
        return None
    made = calls[0].value
    if isinstance(made, ast.Call) and last_name(made) == "cpu":
        return None
    end = place.code.span(made)[1]
    return Rewritten((Splice(end, end, ".cpu()"),))


def _explained(recording: Recording) -> bool:
    return rule_of_ending(recording) is not None


GENERATOR = Rule(
    id="MPS108",
    title="Generator on mps for a tensor on the CPU",
    explains=_explained,
    why="A generator draws for its own device only; without `device=` a new tensor is made on the CPU.",
    fix=(
        "Draw on the generator's device (`device=generator.device`), or create the generator on the CPU "
        "(`torch.Generator()`), as a DataLoader and `random_split` require."
    ),
    source="aten/src/ATen/core/Generator.h (check_generator), torch 2.7 to 2.15",
    example=Example(
        bad="""
            generator = torch.Generator(device).manual_seed(0)
            x = torch.randn(3, generator=generator)
        """,
        better={"x = torch.randn(3, generator=generator)": "x = torch.randn(3, generator=generator, device=device)"},
    ),
)

NUMPY = Rule(
    id="MPS109",
    edit=LineEdit(_copied_first),
    safety=Safety.SAFE,
    title="NumPy cannot read a tensor on mps",
    explains=_explained,
    why="NumPy and the libraries built on it (matplotlib, pandas, scikit-learn) can read only the host's memory.",
    fix="Copy the tensor to the CPU first: `.cpu().numpy()`, with `.detach()` before it if it requires a gradient.",
    source="torch/csrc/utils/tensor_numpy.cpp, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.ones(3, device=device)
            values = x.numpy()
        """,
        better={"values = x.numpy()": "values = x.cpu().numpy()"},
    ),
)

PINNED = Rule(
    id="MPS110",
    title="Pinning a tensor that is on mps",
    explains=_explained,
    why="Pinning speeds up copies from CPU memory to a GPU. A tensor on mps is on the GPU already.",
    fix="Leave out `pin_memory` for tensors on mps.",
    source="aten/src/ATen/native/Memory.cpp, aten/src/ATen/EmptyTensor.cpp, torch 2.7 to 2.15",
    example=Example(
        bad="x = torch.ones(3, device=device, pin_memory=True)",
        better={"x = torch.ones(3, device=device, pin_memory=True)": "x = torch.ones(3, device=device)"},
    ),
)

ELSEWHERE = Rule(
    id="MPS111",
    title="Part of torch that accepts CPU tensors only",
    explains=_explained,
    why="This part of torch has no code for mps. It is not an operator, so the CPU fallback does not apply.",
    fix=ON_THE_CPU,
    source="torch/csrc/utils/tensor_apply.cpp and Python code of torch that names its devices, torch 2.7 to 2.15",
    example=Example(
        bad="""
            x = torch.ones(3, device=device)
            x.apply_(lambda value: value + 1)
        """,
        better={"x.apply_(lambda value: value + 1)": "x = x + 1"},
    ),
)

_ANY: Final = "ANYTHING"


def _pattern(*texts: BackendText) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text.text).replace(_ANY, ".*?") for text in texts))


_TEXTS: Final = (
    (
        GENERATOR,
        _pattern(
            generator_device("cpu", "mps"),
            generator_index("cpu", "mps"),
            generator_index("cpu", "mps:0"),
        ),
    ),
    (NUMPY, _pattern(*(numpy_of(device) for device in ("mps:0", "mps")))),
    (PINNED, _pattern(pinned_factory(), pinned(f"MPS{_ANY}"))),
    (ELSEWHERE, _pattern(*(called_per_element(name) for name in ("apply_", "map_", "map2_")))),
)
_OF_TORCH: Final = ("RuntimeError", "NotImplementedError", "TypeError", "AttributeError")
_NAMES_MPS: Final = re.compile(r"(?<![\w/.])mps\b(?![./]\w)|\bMPS")
"""The device, and no file, key or name that has it as a part."""
_OF_A_DEVICE: Final = re.compile(r"(?i)support|implement|device|tensor|kernel|storage|type|\bon\b|\bCPU\b")
_OF_NAMES: Final = re.compile(r"^Invalid backend: |device type at start of device string")
"""A name that no device and no backend has: any machine refuses it."""


def find(recording: Recording) -> Iterator[Finding]:
    """The finding about the exception that ended the run, if torch raised it because something is on mps."""
    rule, ended = rule_of_ending(recording), ending(recording)
    if rule is not None:
        yield rule.finding(
            ended.site,
            what=f"torch raised {ended.words}",
            count=1,
            fix=_LOADED if rule is ELSEWHERE and "map_location" in ended.site.source else "",
            edit=_LOADING if rule is ELSEWHERE else None,
            safety=Safety.PROVED if rule is ELSEWHERE else None,
            written="Copy the tensor to the CPU first: `{new}`." if rule is NUMPY else "Load to the CPU: `{new}`.",
        )


def rule_of_ending(recording: Recording) -> Rule | None:
    """The rule that explains the exception which ended the run; None if it is none of these."""
    ended = ending(recording)
    if not ended.exception or ended.raised_by == "program" or kernel_limit(ended.message):
        return None
    if ending_refusal(recording) is not None:
        return None
    message = ended.message
    if "Traceback (most recent call last)" in message:  # of a worker: what was raised there stands at the end
        message = message.strip().rpartition("\n")[2]
    for rule, pattern in _TEXTS:
        if pattern.search(message):
            return rule
    if ended.raised_by != "torch" and ended.exception not in _OF_TORCH:
        return None
    return ELSEWHERE if _has_no_code_for_mps(message, ended.raised_by) else None


def _has_no_code_for_mps(message: str, raised_by: str) -> bool:
    if "has no attribute" in message:  # torch asks for what `torch.cuda` has; a program's own line is mistaken
        return raised_by == "torch" and "'torch.mps'" in message
    told = _NAMES_MPS.search(message) and _OF_A_DEVICE.search(message) and not _OF_NAMES.search(message)
    return bool(told) and "anymps:" not in message


def _loaded_to_cpu(place: Place) -> Rewritten | None:
    """A checkpoint read to the CPU, where `load_state_dict` then copies it to where its module lies."""
    for node in place.code.nodes:
        if not isinstance(node, ast.Call) or last_name(node) != "load_state_dict":
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and place.names.meaning(call.func) == "torch.load":
                given = argument(call, "map_location", ("f", "map_location"))
                edit = CallEdit(("load",), set=(("map_location", '"cpu"'),), order=("f", "map_location"))
                stays = given is not None and ast.unparse(given) == "'cpu'"
                changed = None if stays else edit.rewrite(place)
                if changed is not None:
                    return replace(changed, shown=None)
    return None


_LOADED: Final = 'Load to the CPU, `map_location="cpu"`, then move it: `.to(device)`.'
_LOADING: Final = LineEdit(_loaded_to_cpu)
