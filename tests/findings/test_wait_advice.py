"""What to do about a wait in every step, in words of the line that makes it; most of it is in data/wait_advice.txt."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, find
from anymps.findings.edits import Safety
from anymps.record import Fate, Phase, RecordingBuilder, Wait
from findings.golden import cases, rewrite, told


def advice(
    source: str,
    wait: str = "item",
    *,
    via: str = "",
    phase: str = "LOSS_READ",
    operator: str = "aten::_local_scalar_dense",
    file: str = "train.py",
    around: str = "",
) -> Finding:
    """The finding about a line that waits in each of five steps; it is the third of the lines `around`."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    line = builder.site(file, 22, "main", source, via, text="\n" * 19 + around)
    kind = Wait[wait.upper()]
    fate = Fate.FALLBACK if kind is Wait.FALLBACK else Fate.NATIVE
    for step in range(5):
        builder.entry(
            operator, start_ns=100 * step, duration_ns=10, fate=fate, phase=Phase[phase], site=line, wait=kind
        )
        builder.end_step(100 * step + 100)
    (finding,) = find(builder.close())
    return finding


@pytest.mark.parametrize(("source", "given", "expected"), cases("wait_advice.txt"))
def test_the_advice_on_a_line(source: str, given: str, expected: str) -> None:
    """By what the line does with the value, by what torch or a library reads there, and by the lines around it."""
    assert told(advice, source, given) == expected


def test_anomaly_detection() -> None:
    """MPS201: one finding for all lines whose gradients are searched; a line that reads has its own."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    lines = ("x = self.up(x)", "return self.down(x)", "return grad * self.scale.item()")
    for step in range(5):
        backward = builder.site("train.py", 9, "main", "loss.backward()")
        if step == 0:
            builder.note("anomaly", start_ns=0, site=backward)
        for number, source in enumerate(lines):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=100 * step + number, phase=Phase.BACKWARD, wait=Wait.ITEM,
                site=builder.site("model.py", 30 + number, "forward", source),
            )  # fmt: skip
        builder.end_step(100 * step + 100)
    searched, own = find(builder.close())
    assert own.what == "`.item()` made the host wait once a step."
    assert searched.what == (
        "Anomaly detection looked for NaN in the gradients twice a step, at 2 lines: this one costs most."
    )
    assert searched.fix == (
        "Switch it off unless you are looking for a NaN: `torch.autograd.set_detect_anomaly`, `detect_anomaly=True` "
        "of a "
        "Lightning Trainer. With `check_nan=False` it reads nothing, and still reports which forward failed."
    )
    assert [site.line for site in (searched.site, *searched.related_sites)] == [30, 31]


@pytest.mark.parametrize(
    "source",
    [
        "total += loss.item()",
        "meter.total += loss.item()",
        "history.append(loss.item())",
        "best = loss.item()",
        "return loss.item()",
    ],
)
def test_a_number_that_is_kept_is_left_to_a_person(source: str) -> None:
    """A list, a file or an `if` of the script may need it: no machine makes a tensor of it."""
    edit = advice(source).edit
    assert (edit is not None, edit and edit.safety) == (True, Safety.ADVICE)


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


def test_a_print_over_several_lines() -> None:
    """Its lines are one finding, and what is to be done is to print it less often."""
    text = "for i, x in enumerate(xs):\n    print('loss',\n          loss.item(),\n          best.item())\n"
    finding = of_reads(text, 3, 4)
    assert (finding.id, finding.site.line, [related.line for related in finding.related_sites]) == ("MPS202", 3, [4])
    assert finding.what == "Showing a tensor made the host wait twice a step, at 2 lines: this one costs most."
    assert finding.fix == "Print or log every 10 steps."


if __name__ == "__main__":
    rewrite("wait_advice.txt", advice)
