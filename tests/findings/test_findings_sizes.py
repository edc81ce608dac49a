"""MPS120: sizes that change from step to step, on hand-made recordings."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, find
from anymps.record import Phase, Recording, RecordingBuilder

SCRIPT = "/home/me/project/train.py"


def loop(sizes: list[int], *, operator: str = "aten::convolution_overrideable") -> Recording:
    """One step for each size: a convolution, and a product of which the size stays."""
    builder = RecordingBuilder(meta={"directory": "/home/me/project", "torch_version": "2.13.0"})
    line = builder.site(SCRIPT, 12, "main", "features = self.stem(images)")
    head = builder.site(SCRIPT, 13, "main", "loss = self.head(features.mean((2, 3)))")
    for step, size in enumerate(sizes):
        t = step * 1000
        builder.entry(
            operator, start_ns=t, duration_ns=10, phase=Phase.FORWARD, site=line,
            inputs=[f"float32[1, 3, {size}, {size}]"], outputs=[f"float32[1, 8, {size}, {size}]"],
        )  # fmt: skip
        builder.entry(
            "aten::addmm", start_ns=t + 20, duration_ns=10, phase=Phase.FORWARD, site=head,
            inputs=["float32[1, 8]"], outputs=["float32[1, 2]"],
        )  # fmt: skip
        builder.end_step(t + 1000)
    return builder.close()


def found(recording: Recording) -> list[Finding]:
    """The findings of this rule alone."""
    return [finding for finding in find(recording) if finding.id == "MPS120"]


def test_a_new_size_in_every_step() -> None:
    """One finding at the line that meets them, with the number of sizes by operator and of graphs in all."""
    (finding,) = found(loop(list(range(60))))
    assert (finding.site.line, finding.count, finding.per_step) == (12, 60, 1.0)
    assert finding.what == (
        "Different sizes in 60 steps, by operator: `aten::convolution_overrideable` 60. "
        "A Mac compiles 60 graphs for this line; they may keep 3.15 MiB to 48.64 MiB that no counter of torch shows."
    )


@pytest.mark.parametrize(
    ("source", "grows"),
    [
        ("keys = torch.cat([keys, key], dim=1)", True),
        ("self.k[i] = torch.cat([self.k[i], key], dim=1)", True),
        ("keys = torch.cat([past_key, key], dim=1)", True),
        ("q = torch.cat(Q.split(dim, 2), 0)", False),
        ("x = torch.cat([x1, x2, x3], dim=-1)", False),
    ],
)
def test_a_cache_that_grows(source: str, grows: bool) -> None:
    """Where tensors are joined to those of before, what grows is made in full beforehand; images are not cropped."""
    builder = RecordingBuilder(meta={"directory": "/home/me/project", "torch_version": "2.13.0"})
    join = builder.site(SCRIPT, 20, "attend", source)
    product = builder.site(SCRIPT, 21, "attend", "scores = query @ keys.mT")
    for step in range(30):
        t = step * 1000
        builder.entry(
            "aten::cat", start_ns=t, duration_ns=10, phase=Phase.FORWARD, site=join,
            inputs=[f"float32[1, {step + 1}, 64]", "float32[1, 1, 64]"], outputs=[f"float32[1, {step + 2}, 64]"],
        )  # fmt: skip
        builder.entry(
            "aten::bmm", start_ns=t + 20, duration_ns=10, phase=Phase.FORWARD, site=product,
            inputs=["float32[1, 1, 64]", f"float32[1, 64, {step + 2}]"], outputs=[f"float32[1, 1, {step + 2}]"],
        )  # fmt: skip
        builder.end_step(t + 1000)
    (finding,) = found(builder.close())
    assert (finding.site.line, [site.line for site in finding.related_sites]) == (21, [20] if grows else [])
    assert finding.fix == (
        "Tensors grow where they are joined, at train.py:20. Allocate the full length before the loop, write each "
        "new part into its place, and mask the rest."
        if grows
        else "Bring inputs to a few fixed sizes: resize or crop images, pad sequences to a multiple of 64, sort by "
        "length."
    )


@pytest.mark.parametrize(
    "recording",
    [
        loop([step % 7 for step in range(60)]),
        loop([step % 20 for step in range(200)]),
        loop([*range(60)], operator="aten::add.Tensor"),
    ],
    ids=["a few buckets", "nine of ten steps find their graph", "a kernel of Metal takes any size"],
)
def test_sizes_that_are_no_finding(recording: Recording) -> None:
    """Few are compiled, or none."""
    assert found(recording) == []


def test_many_sizes_in_one_step_are_no_finding() -> None:
    """A text that is generated now and then grows by a token a call: the steps themselves keep their sizes."""
    builder = RecordingBuilder(meta={"directory": "/home/me/project", "torch_version": "2.13.0"})
    line = builder.site(SCRIPT, 12, "forward", "return self.feed(x)")
    for step in range(12):
        for call, length in enumerate([16, *(range(20, 40) if step == 6 else ())]):
            builder.entry(
                "aten::linear", start_ns=step * 1000 + 10 * call, duration_ns=5, phase=Phase.FORWARD, site=line,
                inputs=[f"float32[1, {length}, 8]"], outputs=[f"float32[1, {length}, 8]"],
            )  # fmt: skip
        builder.end_step(step * 1000 + 1000)
    assert found(builder.close()) == []


@pytest.mark.parametrize("steps", [4, 6])
def test_a_short_run_shows_no_change(steps: int) -> None:
    """Whatever the line is called with: as few steps may be a few buckets, or end with a smaller batch."""
    builder = RecordingBuilder(meta={"directory": "/home/me/project", "torch_version": "2.13.0"})
    line = builder.site(SCRIPT, 12, "forward", "return self.conv(x)")
    for step in range(steps):
        for call, size in enumerate((64, 32, 16, 8, 4)):
            shape = f"float32[{16 - step}, 3, {size}, {size}]"
            builder.entry(
                "aten::convolution_overrideable", start_ns=step * 1000 + 10 * call, duration_ns=5, phase=Phase.FORWARD,
                site=line, inputs=[shape], outputs=[shape],
            )  # fmt: skip
        builder.end_step(step * 1000 + 1000)
    assert found(builder.close()) == []
