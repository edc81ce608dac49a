"""MPS401 and MPS402: tensors and generators on the wrong device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from anymps.findings._model import Example, Finding, Rule, at
from anymps.findings._refusals import Refused, refused_as
from anymps.findings.advice import BUFFER, move_module
from anymps.findings.edits import place_at, recorded_statements
from anymps.record import Recording, RefusalKind
from anymps.source import fits, parse_expression

DEVICES = Rule(
    id="MPS401",
    title="Tensors on different devices",
    refusal=True,
    why=(
        "An operator needs all its tensors on one device. MPS moves nothing automatically, except single numbers in "
        "some operators."
    ),
    fix="Move the tensor to the device of the others: `.to(device)`.",
    source="aten/src/ATen/TensorIterator.cpp, aten/src/ATen/native/mps/OperationUtils.mm, torch 2.13",
    example=Example(
        bad="""
            x = torch.ones(3, device=device)
            labels = torch.zeros(3)
            y = x + labels
        """,
        better={"labels = torch.zeros(3)": "labels = torch.zeros(3, device=device)"},
    ),
)

GENERATOR = Rule(
    id="MPS402",
    title="Generator on the wrong device",
    refusal=True,
    why="A random operator on mps draws from a generator on mps; a CPU generator raises.",
    fix='Make the generator on the device: `torch.Generator(device="mps")`, or leave `generator=` out.',
    source="aten/src/ATen/core/Generator.h (check_generator), torch 2.13",
    example=Example(
        bad="""
            generator = torch.Generator().manual_seed(0)
            x = torch.rand(3, device=device, generator=generator)
        """,
        better={"generator = torch.Generator().manual_seed(0)": "generator = torch.Generator(device).manual_seed(0)"},
    ),
)

_HIDDEN = (
    'The default device is mps, and torch made a CPU generator: pass `generator=torch.Generator(device="mps")` to the '
    "`DataLoader`, sampler or `random_split`."
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors and generators on the wrong device."""
    for refused in refused_as(recording, RefusalKind.DEVICE):
        yield _devices(refused)
    for refused in refused_as(recording, RefusalKind.GENERATOR):
        # Shuffling and splitting make a CPU generator themselves, and then draw on the default device.
        hidden = refused.detail.get("default_device") == "mps" and "generator" not in refused.site.source.lower()
        yield refused.finding(GENERATOR, fix=_HIDDEN if hidden else "")


def _devices(refused: Refused) -> Finding:
    name, kept = refused.detail.get("name"), refused.detail.get("kept")
    made = ""
    if refused.origin.known:
        made = f", made by `{refused.expression}`" if refused.expression else ", made"
        made += f" at {at(refused.origin)},"
    subject = refused.name[0].upper() + refused.name[1:]
    fix = ""
    if refused.caller:  # the line is an installed package's: nobody is to edit it
        fix = f"Move it to the device of the others before the call at {refused.caller}."
    elif isinstance(kept, str) and kept:
        fix = move_module(kept, "before this line")
    elif isinstance(name, str) and name.isidentifier():
        line, place = f"{name} = {name}.to(device)", place_at(refused.site)
        shown = place is not None and fits(line, place)
        fix = f"Move it before this line: `{line}`." if shown else f"Move `{name}` to their device before this line."
    elif isinstance(name, str) and all(part.isidentifier() for part in name.split(".")):
        fix = f"Move `{name}` to the device of the others: `.to(device)`."
        if name.startswith("self.") and name.count(".") == 1 and "Parameter(" not in refused.expression:
            fix += f" {BUFFER}"
    elif asked := _asked_for_cuda(refused):
        tensor, number = asked
        fix = (
            f"`{tensor}.is_cuda` in line {number} is False on mps: write `{tensor}.is_cuda or {tensor}.is_mps` there, "
            f"and `.to({tensor}.device)` for `.cuda()` below it."
        )
    unreached = _beyond_default(refused)
    if unreached:
        fix = f"{unreached} {fix or DEVICES.fix}"
    return refused.finding(DEVICES, what=f"{subject}{made} is on the CPU, and {refused.raised}", fix=fix)


_NEAR = 5  # lines above


def _asked_for_cuda(refused: Refused) -> tuple[str, int] | None:
    """The tensor of an `if x.is_cuda:` just above the line, below which others would be moved, and its line."""
    for line, statement in recorded_statements(refused.site):
        if not isinstance(statement, ast.If) or not refused.site.line - _NEAR <= line < refused.site.line:
            continue
        if isinstance(statement.test, ast.Attribute) and statement.test.attr == "is_cuda":
            return ast.unparse(statement.test.value), line
    return None


_OLD_MAKERS = re.compile(
    r"(?:torch\.)?(?:(?:Double|Float|Half|BFloat16|Long|Int|Short|Char|Byte|Bool)?Tensor|from_numpy|frombuffer|from_dlpack)"
)
_KEEPERS = frozenset({"Parameter", "Buffer", "Variable"})  # what they are given is what they hold


def _beyond_default(refused: Refused) -> str:
    """Why the default device, which was mps, did not reach the tensor; the empty text if nothing tells.

    Source: torch 2.13, torch/utils/_device.py (_device_constructors); nothing is on it before it is set.
    """
    if refused.detail.get("default_device") != "mps":
        return ""
    if maker := _old_maker(refused.expression):
        return f"The default device does not reach `{maker}`."
    if refused.origin.known and refused.origin.function == "<module>":
        return "The default device does not reach what a module makes when it is imported."
    return ""


def _old_maker(expression: str) -> str:
    """What made the tensor of an expression, if the default device does not reach that: `Tensor`; else the empty text.

    It may be held by a parameter or have been filled: `nn.Parameter(Tensor(3).fill_(1))`.
    """
    node = parse_expression(expression)
    while isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if _OLD_MAKERS.fullmatch(name):
            return name
        if name.rpartition(".")[2] in _KEEPERS and node.args:
            node = node.args[0]
        else:
            node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    return ""
