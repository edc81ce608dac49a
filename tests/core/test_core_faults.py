"""A failed assertion in the native core is told as a fault of anymps, with where to report it."""

from __future__ import annotations

from processes import MAC, run_with_torch

PLANTED = f"""\
import torch
from anymps.device import _enable, _rule_tables

checks = _rule_tables.device_checks

def planted(version):  # max_unpool2d's one tensor of indices is taken for a list of them
    table = checks(version)
    table["max_unpool2d"] = ("advanced", "no", "")
    return table

_rule_tables.device_checks = planted
_enable.enable({MAC!r}, quiet=True)
values = torch.ones(1, 1, 2, 2, device="mps")
try:
    torch.nn.functional.max_unpool2d(values, torch.full((1, 1, 2, 2), 99, device="mps"), 2)
except RuntimeError as error:
    print(error)
"""


def test_a_failed_assertion_is_ours() -> None:
    """The text says that it is a bug of anymps, not of PyTorch, and keeps what failed."""
    text = "\n".join(run_with_torch(PLANTED).lines)
    assert text.startswith(
        "anymps: an assertion of its native core failed. This is a bug of anymps, not of PyTorch or of your code. "
        "Please report it to anymps, with this text and the output of `anymps doctor`: "
    )
    assert "INTERNAL ASSERT FAILED at " in text
    assert "Expected OptionalTensorList but got Tensor" in text
    assert "PyTorch." not in text
