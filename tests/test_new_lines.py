"""The gate of all code that a fix shows: what may stand in place of a line of the user's."""

from __future__ import annotations

import pytest

from anymps.findings.advice._new_line import checked


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("total += loss.detach()", "total += loss.item()"),
        ("AdamW(net.parameters(), fused=True)", "optimizer = AdamW(net.parameters())"),
        ("run(**options)", "run(**options)"),
        ("if loss > 3:", "if loss.item() > 3:"),
        ('x = x.to("mps")', 'x = x.to("mps").cpu()'),  # as the user has it
        ("y = len(x)", "y = x.item()"),
    ],
)
def test_what_may_be_shown(new: str, old: str) -> None:
    """Code of the names that stand there, on whatever device."""
    assert checked(new, instead_of=old) == new


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("total += loss.detach(", "total += loss.item("),
        ("total += torch.zeros(1)", "total += loss.item()"),  # perhaps `import torch as t`
        ("AdamW(groups, fused=True, **options)", "AdamW(groups, **options)"),  # perhaps given twice
        ('x = x.to("mps")', "x = x.cpu()"),
        ('x = x.to("cuda:1")', "x = x.cpu()"),
        ("a = 1; b = 2", "a = 1"),
        ("total += " + "long_name" * 10, "total += " + "long_name" * 10),
        ("x = y", "x = (y,"),
    ],
)
def test_what_may_not_be_shown(new: str, old: str) -> None:
    """Code that does not parse, has a name that may not exist there, or depends on the machine."""
    assert checked(new, instead_of=old) == ""


def test_names_that_are_known_otherwise() -> None:
    """A name that another source has proved counts as there."""
    assert checked("x = x.to(device)", instead_of="x = make()", known=("device",)) == "x = x.to(device)"
