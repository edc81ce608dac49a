"""The memory of a run in the reports: its peak, what held it, how it grew; and what its story costs to read."""

from __future__ import annotations

import json

from anymps.findings import Story, find
from anymps.record import Phase, Recording, RecordingBuilder, Role
from anymps.report import report_pieces
from recordings import META, MODEL, SCRIPT

MIB = 1 << 20


def run() -> Recording:
    """Four steps on 64 MiB of parameters: activations of 256 MiB each, and 16 MiB that every step leaves."""
    builder = RecordingBuilder(meta=META)
    make = builder.site(SCRIPT, 20, "main", "model = Net().to(device)")
    layer = builder.site(MODEL, 18, "forward", "x = torch.relu(self.conv1(x))")
    keep = builder.site(SCRIPT, 36, "main", "outputs.append(output)")
    builder.allocation(64 * MIB, "aten::empty_strided", site=make, role=Role.PARAMETER, reserved=1024 * MIB)
    for step in range(5):
        t = step * 1000
        kept = builder.allocation(256 * MIB, "aten::relu", time_ns=t + 1, site=layer, phase=Phase.FORWARD)
        builder.allocation(16 * MIB, "aten::clone", time_ns=t + 2, site=keep, phase=Phase.FORWARD)
        builder.free(kept, time_ns=t + 3, phase=Phase.BACKWARD)
        if step < 4:
            builder.end_step(t + 1000)
    return builder.close()


def rendered(form: str) -> str:
    """The whole report."""
    recording = run()
    return "".join(report_pieces(form, Story.of(recording), find(recording)))


def test_terminal_has_the_peak_and_what_held_it() -> None:
    """The section in the terminal: peak, share of the working set, heaps, growth, categories and lines."""
    section = rendered("terminal").partition("\nMemory\n")[2].partition("\nYour script")[0]
    assert section == (
        "\n"
        "  Peak 400 MiB in tensors (step 5, forward), 3 % of the working set of 13.3 GiB; the allocator took\n"
        "  up to 1 GiB in heaps.\n"
        "  Each step leaves 16 MiB more than the one before.\n"
        "\n"
        "  held by                 size  share\n"
        "  activations          256 MiB   64 %\n"
        "  held by the script    80 MiB   20 %\n"
        "  parameters            64 MiB   16 %\n"
        "  unused heaps: cache  624 MiB\n"
        "\n"
        "     size  requested  buffers  what                operator             where\n"
        "  256 MiB    256 MiB        1  activations         aten::relu           nets/model.py:18\n"
        "   80 MiB     80 MiB        5  held by the script  aten::clone          train.py:36\n"
        "   64 MiB     64 MiB        1  parameters          aten::empty_strided  train.py:20\n"
    )


def test_json_has_the_peak() -> None:
    """The JSON form has the same in bytes."""
    peak = json.loads(rendered("json"))["memory_peak"]
    assert (peak["allocated_bytes"], peak["most_heap_bytes"]) == (400 * MIB, 1024 * MIB)
    assert (peak["step"], peak["phase"], peak["growth_per_step_bytes"]) == (4, "forward", 16 * MIB)
    assert {name: size // MIB for name, size in peak["by_category"].items() if size} == {
        "parameters": 64, "activations": 256, "held by the script": 80,
    }  # fmt: skip
    assert [(line["bytes"] // MIB, line["buffers"], line["site"]["line"]) for line in peak["lines"]] == [
        (256, 1, 18), (80, 5, 36), (64, 1, 20),
    ]  # fmt: skip


def test_page_stacks_the_categories() -> None:
    """The page draws a band for each category that held something, and has both tables."""
    page = rendered("html")
    names = ("parameters, at most 64 MiB", "activations, at most 256 MiB", "held by the script, at most 80 MiB")
    assert [f"<title>{name}</title>" in page for name in names] == [True, True, True]
    assert "gradients, at most" not in page
    assert '<table id="memory-categories">' in page
    assert '<td class="path">nets/<wbr>model.py:18</td>' in page


def test_rounding_is_told_apart() -> None:
    """A gradient that got a larger buffer of the cache: what it asked for, the rounding, and a sentence on both."""
    builder = RecordingBuilder(meta=META)
    line = builder.site(SCRIPT, 30, "main", "loss.backward()")
    builder.allocation(19 * MIB, "aten::mm", requested=3 * MIB, reserved=32 * MIB, site=line, phase=Phase.BACKWARD)
    builder.end_step(1000)
    recording = builder.close()
    section = (
        "".join(report_pieces("terminal", Story.of(recording), ()))
        .partition("\nMemory\n")[2]
        .partition("\nYour script")[0]
    )
    assert section == (
        "\n"
        "  Peak 19 MiB in tensors (step 1, backward), <1 % of the working set of 13.3 GiB; the allocator took\n"
        "  up to 32 MiB in heaps.\n"
        "  16 MiB of the peak was not requested: the allocator rounds sizes up, and gives a buffer of its\n"
        "  cache as a whole.\n"
        "\n"
        "  held by                     size  share\n"
        "  gradients                 19 MiB  100 %\n"
        "  rounding, included above  16 MiB   84 %\n"
        "  unused heaps: cache       13 MiB\n"
        "\n"
        "    size  requested  buffers  what       operator  where\n"
        "  19 MiB      3 MiB        1  gradients  aten::mm  train.py:30\n"
    )
    peak = json.loads("".join(report_pieces("json", Story.of(recording), ())))["memory_peak"]
    assert (peak["allocated_bytes"], peak["rounding_bytes"]) == (19 * MIB, 16 * MIB)
    assert [(line["bytes"], line["requested_bytes"]) for line in peak["lines"]] == [(19 * MIB, 3 * MIB)]
