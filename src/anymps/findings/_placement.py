"""MPS4xx: tensors and generators that lie on the wrong device."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._example import Example
from anymps.findings._model import Finding, Rule, Severity
from anymps.findings._refusals import Refused, at, refused_as
from anymps.record import Recording, RefusalKind

DEVICES = Rule(
    id="MPS401",
    title="Tensors on different devices",
    severity=Severity.ERROR,
    why="An operator works on one device; MPS moves nothing by itself, apart from single numbers in some operators.",
    fix="Move the tensor to the device of the others: `.to(device)`.",
    source="aten/src/ATen/TensorIterator.cpp, aten/src/ATen/native/mps/OperationUtils.mm, torch 2.13",
    example=Example(
        bad="""
            x = torch.ones(3, device=device)
            labels = torch.zeros(3)
            y = x + labels
        """,
        good="""
            x = torch.ones(3, device=device)
            labels = torch.zeros(3, device=device)
            y = x + labels
        """,
    ),
)

GENERATOR = Rule(
    id="MPS402",
    title="Generator on the wrong device",
    severity=Severity.ERROR,
    why="A random operator on mps draws from a generator on mps; a CPU generator raises.",
    fix='Make the generator on the device: `torch.Generator(device="mps")`, or leave `generator=` out.',
    source="aten/src/ATen/core/Generator.h (check_generator), torch 2.13",
    example=Example(
        bad="""
            generator = torch.Generator().manual_seed(0)
            x = torch.rand(3, device=device, generator=generator)
        """,
        good="""
            generator = torch.Generator(device).manual_seed(0)
            x = torch.rand(3, device=device, generator=generator)
        """,
    ),
)

RULES = (DEVICES, GENERATOR)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about tensors and generators on the wrong device."""
    for refused in refused_as(recording, RefusalKind.DEVICE):
        yield _devices(refused)
    for refused in refused_as(recording, RefusalKind.GENERATOR):
        yield GENERATOR.finding(
            refused.site,
            what=f"`{refused.operator}` raised {refused.error}: {refused.message}",
            count=refused.count,
            related_sites=[refused.origin],
        )


def _devices(refused: Refused) -> Finding:
    name = refused.detail.get("name")
    made = ""
    if refused.origin.known:
        made = f", made by `{refused.expression}`" if refused.expression else ", made"
        made += f" at {at(refused.origin)},"
    subject = refused.name[0].upper() + refused.name[1:]
    variable = name if isinstance(name, str) and name.isidentifier() else ""
    return DEVICES.finding(
        refused.site,
        what=f"{subject}{made} is on the CPU, and `{refused.operator}` raised {refused.error}: {refused.message}",
        count=refused.count,
        fix=f"Move it before this line: `{variable} = {variable}.to(device)`." if variable else "",
        related_sites=[refused.origin],
    )
