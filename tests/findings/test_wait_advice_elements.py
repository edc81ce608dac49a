"""The advice on a tensor that is read element by element, and on values that are printed over several lines."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, find
from anymps.record import Fate, Phase, RecordingBuilder, Wait
from findings.advised import advice

ELEMENTS = (
    "Read what the loop does not change once before it, a tensor by `x.tolist()` and a list of tensors by "
    "`torch.stack(xs).tolist()`, and go over those numbers: one wait instead of 3 a step."
)
KEEP = (
    "Keep the tensor, `seen['x'] = z[i].detach()`, and read it only where the number itself is needed; a log needs it "
    "every 10 steps."
)


def of_reads(text: str, *rows: int) -> Finding:
    """The finding about five steps that each read a number at these lines of a file."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    sites = [builder.site("train.py", row, "main", text.splitlines()[row - 1].strip(), text=text) for row in rows]
    for step in range(5):
        for number, site in enumerate(sites):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=100 * step + number, duration_ns=1, fate=Fate.NATIVE,
                phase=Phase.LOSS_READ, site=site, wait=Wait.ITEM,
            )  # fmt: skip
        builder.end_step(100 * step + 100)
    (finding,) = find(builder.close())
    return finding


@pytest.mark.parametrize(
    ("above", "line", "fix"),
    [
        ("for i, y_i in enumerate(y):", "seen['x'] = z[i, 0].item()", ELEMENTS),
        ("for i, y_i in enumerate(y):", "labels[i] = int(y_i)", ELEMENTS),
        ("", "numbers = [y_i.item() for y_i in y]", ELEMENTS),
        ("for x in batches:", "seen['x'] = z[i].item()", KEEP),
        ("for i in range(3):", "seen['x'] = z[0].item()", KEEP.replace("z[i]", "z[0]")),
    ],
)
def test_a_tensor_that_is_read_by_its_elements(above: str, line: str, fix: str) -> None:
    """One wait before the loop does for all: a tensor in the place of each number would be no help."""
    lines = ["x = 0", *above.splitlines(), ("    " if above else "") + line, "x = 1"]
    assert of_reads("\n".join(lines), *[len(lines) - 1] * 3).fix == fix


def test_an_element_once_a_step_is_no_loop() -> None:
    """A loop that reads one element in each training step has nothing to read before it."""
    finding = advice("seen['x'] = z[i].item()", around="x = 0\nfor i in range(9):\n    seen['x'] = z[i].item()\n")
    assert finding.fix == KEEP


def test_a_list_that_grows_by_a_list() -> None:
    """`fractions += [x.item()]` keeps values as `append` does: they are not added up."""
    text = "import torch\n\nfractions += [(ratio > 1).float().mean().item()]\n"
    finding = advice("fractions += [(ratio > 1).float().mean().item()]", around=text)
    assert finding.fix == (
        "Write `fractions += [(ratio > 1).float().mean()]`, and after the loop `torch.stack(fractions).tolist()`: one "
        "wait."
    )


def test_a_print_over_several_lines() -> None:
    """Its lines are one finding, and what is to be done is to print it less often."""
    text = "for i, x in enumerate(xs):\n    print('loss',\n          loss.item(),\n          best.item())\n"
    finding = of_reads(text, 3, 4)
    assert (finding.id, finding.site.line, [related.line for related in finding.related_sites]) == ("MPS202", 3, [4])
    assert finding.what == "Showing a tensor made the host wait twice a step, at 2 lines: this one costs most."
    assert finding.fix == "Print or log every 10 steps."
