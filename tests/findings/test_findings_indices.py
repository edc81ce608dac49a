"""MPS408 and MPS814 on hand-made recordings, MPS408 on the device: indices on the CPU, and scatters to few places."""

from __future__ import annotations

import ast

import pytest

from anymps.findings import Finding, find
from anymps.record import Phase, Recording, RecordingBuilder, Wait
from processes import ENABLE, run_with_torch
from rule_loops import ids, only
from timed_steps import Steps

LIBRARY = "/opt/lib/python3.11/site-packages/trainer/loop.py"


def found(*inputs: str, source: str = "x = data[order]", file: str = "train.py", every: int = 1) -> list[Finding]:
    """The findings about a line that indexes with these inputs in every `every`-th of ten steps."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    line = builder.site(file, 12, "main", source)
    for step in range(10):
        builder.entry("aten::mm", start_ns=100 * step)
        if step % every == 0:
            builder.entry("aten::index.Tensor", start_ns=100 * step + 1, site=line, inputs=inputs)
        builder.end_step(100 * step + 100)
    return find(builder.close())


@pytest.mark.parametrize(
    ("source", "what", "fix"),
    [
        (
            "x = data[order[i : i + 2]]",
            "The index `order` is on the CPU, and was copied to mps once a step.",
            "Create `order` on the device, or copy it to mps once, before the loop; `torch.randperm(n, "
            "device=device)` draws there.",
        ),
        (
            "x, y = data[a], labels[b]",
            "An index is on the CPU, and was copied to mps once a step.",
            "Create the index on the device, or copy it to mps once, before the loop; "
            "`torch.randperm(n, device=device)` draws there.",
        ),
    ],
)
def test_a_cpu_index_in_every_step(source: str, what: str, fix: str) -> None:
    """The index by its name where the line has one."""
    (finding,) = found("float32[8, 4]", "int64[2] on cpu", source=source)
    assert (finding.id, finding.what, finding.fix, finding.count) == ("MPS408", what, fix, 10)


def test_indices_that_are_no_finding() -> None:
    """On the device, now and then, in a package; and a number on the CPU that is assigned to a place."""
    assert found("float32[8, 4]", "int64[2]") == []
    assert found("float32[8, 4]", "int64[2] on cpu", every=5) == []
    assert found("float32[8, 4]", "int64[2] on cpu", file=LIBRARY) == []
    assert found("float32[8, 4]", "int64[2]", "float32[] on cpu") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "rewards = all_rewards[batch]",
            ["The index `batch` is a list or an array, and was copied to mps once a step."],
        ),
        ("x = data[batch].to(device)", []),
        ("x = data.to(device)", []),
    ],
)
def test_a_list_as_index(source: str, expected: list[str]) -> None:
    """Torch makes a tensor of it, whose copy is told where nothing else on the line copies."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    line = builder.site("train.py", 12, "main", source)
    for step in range(10):
        builder.entry("aten::copy_", start_ns=100 * step, site=line, wait=Wait.COPY_TO_MPS, phase=Phase.MOVE)
        builder.entry("aten::index.Tensor", start_ns=100 * step + 1, site=line, inputs=("float32[8, 4]", "int64[2]"))
        builder.end_step(100 * step + 100)
    assert [finding.what for finding in find(builder.close()) if finding.id == "MPS408"] == expected


def test_indices_on_the_device() -> None:
    """Both ways of use, in a loop that trains nothing."""
    script = """
from anymps.findings import Story, find
def use():
    data, order = torch.rand(40, 4).to("mps"), torch.randperm(40)
    for i in range(20):
        y = data[order[i : i + 2]]
        data[order[i : i + 2]] = 0.0
for source in ("native", "observer"):
    with anymps.record(source=source) as capture:
        use()
    print(source, [(finding.id, finding.count) for finding in find(capture.recording)])
"""
    expected = "[('MPS408', 20), ('MPS408', 20)]"
    assert run_with_torch(ENABLE + script).lines == [f"native {expected}", f"observer {expected}"]


def test_index_copies_are_needless_waits() -> None:
    """Beside the read of the loss; the table of waits names their finding, and an index on mps is none."""
    script = """
from anymps.findings import Story, find
from anymps.report import render_summary, render_terminal
weight = torch.nn.Parameter(torch.rand(4, device="mps"))
optimizer = torch.optim.SGD([weight], lr=0.1)
data, there = torch.rand(40, 4, device="mps"), torch.arange(2, device="mps")
with anymps.record() as capture:
    for step in range(10):
        order = torch.randperm(40)
        x = torch.cat([data[order[i : i + 2]] for i in range(3)] + [data[there]])
        loss = (x * weight).sum()
        loss.backward()
        optimizer.step()
        loss.item()
recording = capture.recording
for render in (render_summary, render_terminal):
    print(" ".join(render(Story.of(recording), find(recording), width=100).split()))
print([(wait.wait.label, wait.count) for wait in recording.waits()])
"""
    short, full, waits = run_with_torch(ENABLE + script).lines
    assert "4 waits in every step." in short
    assert "Copies to the device wait too; the findings say how to avoid that:" in full
    assert sorted(ast.literal_eval(waits)) == [("copy to mps", 30), ("item", 10)]


def scattering(torch: str = "2.12.0", mac: str = "M1 16GB", name: str = "scatter_add_", places: int = 10) -> Recording:
    """A million rows of 64 numbers are added to some places in each of five steps."""
    steps = Steps(torch_version=torch, mac=mac, mac_details="")
    index = "int64[1000000]" if name.startswith("index") else "int64[1000000, 64]"
    inputs = (f"float32[{places}, 64]", index, "float32[1000000, 64]")
    for _ in range(5):
        steps.product(4)
        steps.entry(f"aten::{name}", 1000, inputs=inputs, site=steps.line)
        steps.end()
    return steps.close()


@pytest.mark.parametrize(
    ("torch", "mac", "name", "expected"),
    [
        ("2.12.0", "M1 16GB", "scatter_add_", ["MPS814"]),
        ("2.12.0", "M2 Ultra 60-core GPU 64GB", "scatter_reduce_.two", ["MPS814"]),
        ("2.12.0", "M3 16GB", "scatter_add_", []),
        ("2.13.0", "M1 16GB", "scatter_add_", []),
        ("2.13.0", "M1 16GB", "index_add_", ["MPS814"]),
        ("2.14.0", "M1 16GB", "index_add_", []),
    ],
)
def test_scatters_that_wait_for_each_other(torch: str, mac: str, name: str, expected: list[str]) -> None:
    """MPS814: by MPSGraph, on M1 and M2."""
    assert ids(scattering(torch, mac, name)) == expected


def test_what_a_scatter_to_few_places_costs() -> None:
    """MPS814 tells the price where the table has few places."""
    finding = only(scattering())
    low, high = finding.cost_per_step_ns
    assert low < 16.4e9 < high  # onto ten places on a Mac that the source does not name; 18.8 s on an M1 Pro
    assert finding.what == (
        "`scatter_add` adds 1,000,000 times to 10 places. Its additions wait for each other, which takes 100 % of the "
        "predicted step."
    )


def test_a_scatter_to_a_number_of_places_that_nobody_knows() -> None:
    """MPS814 says what may come where the table is large, and has no price; small scatters are no matter."""
    finding = only(scattering(places=1_000_000))
    assert finding.cost_ns == (0, 0)
    assert finding.what == (
        "`scatter_add` adds 1,000,000 times to 1,000,000 places. How many of these its indices name was not recorded, "
        "and all are assumed. With fewer, more additions wait for each other: up to 144 s a step, if all go to one "
        "place."
    )
    steps = Steps(torch_version="2.12.0", mac="M1 16GB", mac_details="")
    for _ in range(5):
        steps.product(4)
        steps.entry("aten::index_add_", 1000, inputs=("float32[100, 4]", "int64[8]", "float32[8, 4]"))
        steps.end()
    assert ids(steps.close()) == []
