"""What findings say about memory: its limits, what held it, and what grows from step to step."""

from __future__ import annotations

import pytest

from anymps.findings import Story, find
from anymps.record import Phase, Recording, RecordingBuilder, RefusalKind, Role
from anymps.rules.variables import HIGH_WATERMARK, LOW_WATERMARK
from processes import ENABLE, run_with_torch
from rule_loops import only

GIB, MIB = 1 << 30, 1 << 20
FILE = "/p/train.py"
META = {"mac": "M1 8GB", "torch_version": "2.13.0"}
# M1 8GB, macOS 26.4: working set 5.33 GiB, largest buffer 4.00 GiB, allocator's limit 1.7 times as much: 9.07 GiB.


def holding(gib: float, **meta: object) -> RecordingBuilder:
    """One GiB of parameters and the rest of `gib` in one activation, which a backward frees."""
    builder = RecordingBuilder(meta={**META, **meta})
    make = builder.site(FILE, 3, "main", "model = Net().to(device)")
    forward = builder.site(FILE, 9, "main", "loss = model(x)")
    builder.allocation(GIB, "aten::empty_strided", site=make, role=Role.PARAMETER)
    kept = builder.allocation(round((gib - 1) * GIB), "aten::mm", site=forward, phase=Phase.FORWARD)
    builder.free(kept, phase=Phase.BACKWARD)
    return builder


def out_of_memory(size: str = "") -> Recording:
    """A run with 5 GiB in use that is refused 2 more, as the capture writes it down."""
    builder = RecordingBuilder(meta=META)
    make = builder.site(FILE, 3, "main", "model = Net().to(device)")
    forward = builder.site(FILE, 9, "main", "loss = model(x)")
    builder.allocation(GIB, "aten::empty_strided", site=make, role=Role.PARAMETER)
    kept = builder.allocation(4 * GIB, "aten::mm", site=forward, phase=Phase.FORWARD)
    builder.refusal(
        RefusalKind.MEMORY, "RuntimeError", size or "MPS backend out of memory (text).", operator="aten::relu",
        start_ns=0, site=builder.site(FILE, 12, "main", "y = relu(x)"), detail={"event": 2},
    )  # fmt: skip
    builder.free(kept, phase=Phase.BACKWARD)
    return builder.close()


def test_out_of_memory_tells_what_held_the_memory() -> None:
    """MPS501: the backend's words, what was held then by category and line, and the fix for what held most."""
    finding = only(out_of_memory())
    assert (finding.id, finding.site.line, [site.line for site in finding.related_sites]) == ("MPS501", 12, [9, 3])
    assert finding.what == (
        "`aten::relu` raised RuntimeError: MPS backend out of memory (text). Held then: 5.00 GiB (activations 4.00 GiB,"
        " parameters 1024.00 MiB); most of it: 4.00 GiB by `aten::mm` at train.py:9, 1024.00 MiB by"
        " `aten::empty_strided` at train.py:3."
    )
    assert finding.fix == (
        "Activations take the most memory: halve the batch and accumulate gradients over two, or use "
        "`torch.utils.checkpoint`."
    )


@pytest.mark.parametrize(("allowed", "lowered"), [("6.00 GiB", True), ("22.60 GiB", False)])
def test_a_limit_that_the_script_lowered(allowed: str, lowered: bool) -> None:
    """MPS501 says where to look if the limit is not the Mac's own."""
    fix = only(out_of_memory(f"MPS backend out of memory (max allowed: {allowed}). Tried to allocate 2.00 GiB.")).fix
    assert lowered is fix.startswith(
        "The script or a variable has lowered the limit: look for `torch.mps.set_per_process_memory_fraction` and "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO. Activations take the most memory"
    )


def test_out_of_memory_in_a_package_names_the_call() -> None:
    """The line is the package's own: what called it is told."""
    builder = RecordingBuilder(meta=META)
    builder.refusal(
        RefusalKind.MEMORY, "RuntimeError", "MPS backend out of memory (text).", operator="aten::empty", start_ns=0,
        site=builder.site("/v/site-packages/safetensors/torch.py", 360, "load_file", "return f.get_tensors()"),
        detail={"caller": "train.py:6"},
    )  # fmt: skip
    finding = only(builder.close())
    assert (finding.id, finding.site.line) == ("MPS501", 360)
    assert finding.what == (
        "`aten::empty` (called from train.py:6) raised RuntimeError: MPS backend out of memory (text)."
    )


KEPT = (
    "Results that the same lines make again and again stay alive, and take the most memory: a list or a running sum "
    "keeps them, and with them all that their backward would need. Keep numbers: `.item()` now and then, or "
    "`.detach().cpu()`. Use `torch.no_grad()` where nothing is trained."
)


@pytest.mark.parametrize("backward", [False, True])
def test_out_of_memory_by_results_that_a_loop_keeps(backward: bool) -> None:
    """MPS501: what a function's list keeps is freed by the error's way out, as temporary results are."""
    builder = RecordingBuilder(meta=META)
    forward = builder.site(FILE, 9, "main", "losses.append(model(x))")
    net = builder.module("net")
    if backward:
        builder.allocation(MIB, "aten::mm", site=forward, phase=Phase.BACKWARD)
    kept = [builder.allocation(GIB, "aten::mm", site=forward, phase=Phase.FORWARD, module=net) for _ in range(4)]
    builder.refusal(
        RefusalKind.MEMORY, "RuntimeError", "MPS backend out of memory (text).", operator="aten::mm",
        start_ns=0, site=forward, detail={"event": 4 + backward},
    )  # fmt: skip
    for one in kept:
        builder.free(one)
    finding = only(builder.close())
    assert "(temporaries 4.00 GiB" in finding.what
    temporary = (
        "Temporary results take the most memory: split the work at the lines that hold most, or halve the batch."
    )
    assert finding.fix == (temporary if backward else KEPT)


def test_out_of_memory_where_a_model_is_moved() -> None:
    """MPS501: what the refused line itself moves is not "held by your code"."""
    builder = RecordingBuilder(meta=META)
    make = builder.site(FILE, 3, "main", "model = Net().to(device)")
    for _ in range(5):
        builder.allocation(GIB, "aten::copy_", site=make, phase=Phase.MOVE)
    builder.refusal(
        RefusalKind.MEMORY, "RuntimeError", "MPS backend out of memory (text).", operator="aten::copy_",
        start_ns=0, site=make, detail={"event": 5},
    )  # fmt: skip
    assert only(builder.close()).fix == (
        "The data that this line moves to the device takes the most memory: move less, or use a smaller dtype."
    )


def test_a_tensor_above_the_largest_buffer_is_another_matter() -> None:
    """MPS504: one buffer that is too large, however much is free; not MPS501."""
    finding = only(out_of_memory("Invalid buffer size: 32.00 GiB"))
    assert (finding.id, finding.what) == (
        "MPS504",
        "`aten::relu` raised RuntimeError: Invalid buffer size: 32.00 GiB; one buffer on M1 8GB must stay below "
        "4.00 GiB.",
    )


def test_more_than_the_working_set() -> None:
    """MPS502: above the recommended working set, with the numbers; below it nothing is found."""
    finding = only(holding(6).close())
    assert (finding.id, finding.site.line) == ("MPS502", 9)
    assert finding.what == (
        "At its peak the run held 6.00 GiB, 112 % of the 5.33 GiB that Metal recommends on M1 8GB: activations 5.00 "
        "GiB, parameters 1024.00 MiB; most of it: 5.00 GiB by `aten::mm` at train.py:9, 1024.00 MiB by"
        " `aten::empty_strided` at train.py:3."
    )
    assert find(holding(5.3).close()) == []


def test_close_to_the_allocators_limit() -> None:
    """MPS503: above nine tenths of the high watermark; the working set, long passed, is not told as well."""
    finding = only(holding(8.5).close())
    assert finding.id == "MPS503"
    assert finding.what.startswith(
        "At its peak the run held 8.50 GiB, 94 % of the 9.07 GiB at which the allocator stops on M1 8GB: activations"
    )
    assert only(holding(8).close()).id == "MPS502"


def test_limits_are_those_of_the_recorded_mac() -> None:
    """The macOS and a raised limit come from the details; a Mac of which nothing is known has no limits."""
    raised = (
        "Apple M1 (8-core GPU), 8 GB, macOS 15.4: working set 7.00 GiB (iogpu.wired_limit_mb=7168), "
        "largest buffer 4.00 GiB, 68.25 GB/s, bfloat16 emulated"
    )
    assert find(holding(6, mac_details=raised).close()) == []
    assert only(holding(7.1, mac_details=raised).close()).id == "MPS502"
    assert find(holding(6, mac="some other computer").close()) == []


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        (
            {HIGH_WATERMARK: "off"},
            f"{HIGH_WATERMARK}=off: not a number: C's strtod makes 0 of it, so the limit is off.",
        ),
        ({HIGH_WATERMARK: "0.0"}, f"{HIGH_WATERMARK}=0.0: no upper limit: macOS may run out of memory."),
        (
            {HIGH_WATERMARK: "1.2"},
            f"{HIGH_WATERMARK}=1.2: the first allocation raises RuntimeError: invalid low watermark ratio 1.4; "
            f"set {LOW_WATERMARK} to 1.2 or less as well.",
        ),
        (
            {LOW_WATERMARK: "low"},
            f"{LOW_WATERMARK}=low: not a number: C's strtod makes 0 of it, so the limit is off.",
        ),
    ],
)
def test_watermark_variables_that_are_mistakes(variables: dict[str, str], what: str) -> None:
    """MPS508: text that is no number, no limit at all, a ratio below the low one; at the first allocation."""
    finding = only(holding(2, environment=variables).close())
    assert (finding.id, finding.site.line, finding.what) == ("MPS508", 3, what)


def test_a_ratio_that_ends_the_run() -> None:
    """MPS508: the first allocation raised, so it is the only finding, at the line that ended the run."""
    end = {
        "exception": "RuntimeError",
        "message": "invalid low watermark ratio 1.4",
        "raised_by": "torch",
        "place": {"file": FILE, "line": 2, "function": "<module>", "source": 'x = torch.ones(3, device="mps")'},
    }
    meta = {**META, "environment": {HIGH_WATERMARK: "0.5"}, "ending": end}
    finding = only(RecordingBuilder(meta=meta).close())
    assert (finding.id, finding.site.line) == ("MPS508", 2)
    assert finding.fix == f"Set {LOW_WATERMARK} to 0.5 or less as well, or unset {HIGH_WATERMARK}."
    (unknown,) = find(RecordingBuilder(meta={**META, "ending": end}).close())
    assert unknown.id == "MPS003"  # who set the ratio is not recorded


@pytest.mark.parametrize(
    "variables",
    [{HIGH_WATERMARK: "1.5"}, {HIGH_WATERMARK: "1.2", LOW_WATERMARK: "1.0"}, {LOW_WATERMARK: "0"}, {"OTHER": "off"}],
)
def test_watermark_variables_that_are_none(variables: dict[str, str]) -> None:
    """Ratios that torch takes, and a low watermark that is switched off, are left alone."""
    assert find(holding(2, environment=variables).close()) == []


def growing(
    size: int,
    *,
    steps: int = 4,
    kept: bool = True,
    chain: bool = False,
    sizes: tuple[int, ...] = (),
    requested: int | None = None,
    keeper: dict[str, object] | None = None,
) -> Recording:
    """Steps that each leave a buffer of `size` (`kept`), and its forward's others (`chain`), or free one of `sizes`."""
    builder = RecordingBuilder(meta=META)
    line = builder.site(FILE, 20, "main", "total += loss")
    forward = builder.site(FILE, 8, "forward", "return self.head(x)")
    reserved = 8 * MIB
    if keeper is not None:
        builder.note("keeps", start_ns=0, site=builder.site(FILE, 31, "main", "total = total + loss"), **keeper)
    for step in range(steps + 1):  # the last is not complete: what the one before left is seen then
        buffers = [builder.allocation(size, "aten::add.Tensor", site=line, phase=Phase.FORWARD, requested=requested)]
        if chain:
            builder.allocation(4 * size, "aten::addmm", site=forward, phase=Phase.FORWARD)
        if sizes:
            reserved += sizes[step]
            buffers.append(
                builder.allocation(sizes[step], "aten::bmm", site=forward, reserved=reserved, phase=Phase.FORWARD)
            )
        for buffer in buffers[kept:]:
            builder.free(buffer, phase=Phase.BACKWARD)
        if step < steps:
            builder.end_step((step + 1) * 1000)
    return builder.close()


def test_small_tensors_that_are_charged_too_much() -> None:
    """MPS505 is silent where the tensors asked for less than half a MiB a step, whatever the allocator charged."""
    assert find(growing(2 * MIB, requested=MIB // 2 - 1)) == []
    assert [finding.id for finding in find(growing(2 * MIB, requested=MIB // 2))] == ["MPS505"]


def test_memory_that_every_step_leaves() -> None:
    """MPS505: how much each step leaves, and the line and operator that hold it."""
    finding = only(growing(2 * MIB))
    assert (finding.id, finding.site.line, finding.per_step) == ("MPS505", 20, 1.0)
    assert finding.what == (
        "After each step 2.00 MiB more are left: 2.00 MiB after step 1, 8.00 MiB after step 4. "
        "Left by steps 2 to 4: 6.00 MiB by `aten::add.Tensor` at train.py:20."
    )
    assert finding.fix.startswith("Keep numbers: ")


def test_a_loss_added_up_with_its_graph() -> None:
    """MPS505: when results of several operators of the forward outlive their step, the graph is what is kept."""
    finding = only(growing(2 * MIB, chain=True))
    assert (finding.id, finding.site.line, [site.line for site in finding.related_sites]) == ("MPS505", 8, [20])
    assert finding.what.endswith("Results of 2 operators of the forward outlive their step: their graph is kept.")
    assert "`total = total + loss.detach()`" in finding.fix


@pytest.mark.parametrize(
    ("graph", "begins", "fix"),
    [
        (
            True, "`total` keeps the graph of every step. After each step",
            "Keep tensors without their graph in `total`, as by `total = total + loss.detach()`, or compute them under "
            "`torch.no_grad()`.",
        ),
        (
            False, "`total` keeps more tensors with every step. After each step",
            "Keep numbers in `total`: `.item()` now and then, or `.detach().cpu()`.",
        ),
    ],
)  # fmt: skip
def test_the_line_that_keeps(graph: bool, begins: str, fix: str) -> None:
    """MPS505 stands at the line that keeps the tensors where it is known; the lines that made them are related."""
    finding = only(growing(2 * MIB, chain=True, keeper={"name": "total", "graph": graph}))
    assert (finding.site.line, finding.fix, finding.what.startswith(begins)) == (31, fix, True)
    assert ([site.line for site in finding.related_sites], finding.related_as) == ([8, 20], "made at")


@pytest.mark.parametrize("recording", [growing(256), growing(2 * MIB, kept=False), growing(2 * MIB, steps=2)])
def test_memory_that_is_not_left_behind(recording: Recording) -> None:
    """Losses of a few bytes kept in a list, buffers freed in their step, and too few steps are no growth."""
    assert find(recording) == []


def test_growth_per_step() -> None:
    """The mean of what each step leaves more; none unless every step does, or where steps are too few to tell."""
    recordings = (growing(2 * MIB), growing(256), growing(2 * MIB, kept=False), growing(2 * MIB, steps=2))
    assert [Story.of(recording).growth_per_step for recording in recordings] == [2 * MIB, 256, 0, 0]


def test_a_cache_that_grows_with_changing_sizes() -> None:
    """MPS506: heaps grow from step to step, tensors do not, and one line asks for other sizes."""
    finding = only(growing(MIB, kept=False, sizes=(100 * MIB, 101 * MIB, 102 * MIB, 103 * MIB, 104 * MIB)))
    assert (finding.id, finding.site.line) == ("MPS506", 8)
    assert finding.what == (
        "The allocator took 306.00 MiB more from step 1 to step 4, 414.00 MiB in all, while tensors never held more "
        "than 104.00 MiB: `aten::bmm` asked for 4 different sizes, 100.00 MiB to 103.00 MiB."
    )


def test_heaps_that_grow_otherwise_are_not_the_cache() -> None:
    """The same sizes in every step, or a peak that grows with them, are not told as changing shapes."""
    assert find(growing(MIB, kept=False, sizes=(100 * MIB,) * 5)) == []
    assert find(growing(MIB, kept=False, sizes=(100 * MIB, 200 * MIB, 400 * MIB, 700 * MIB, 999 * MIB))) == []


def validated(buffers: int, *, emptied: bool = False, size: int = MIB) -> Recording:
    """Three training steps that take 4 GiB and free it, then a validation that takes a few small buffers."""
    builder = RecordingBuilder(meta={**META, "loop": "training"})
    forward, after = builder.site(FILE, 9, "main", "loss = model(x)"), builder.site(FILE, 20, "main", "y = model(x)")
    for step in range(3):
        builder.free(builder.allocation(4 * GIB, "aten::mm", site=forward, phase=Phase.FORWARD))
        builder.end_step((step + 1) * 1000)
    for _ in range(buffers):
        reserved = size if emptied else 4 * GIB
        builder.free(builder.allocation(size, "aten::mm", site=after, phase=Phase.FORWARD, reserved=reserved))
    return builder.close()


def test_a_cache_that_a_validation_does_not_need() -> None:
    """MPS509: what the allocator keeps after the last training step, and where to give it back."""
    finding = only(validated(20))
    assert (finding.id, finding.site.line) == ("MPS509", 20)
    assert finding.what == (
        "After the last training step tensors never held more than 1024.00 KiB, and the allocator kept 4.00 GiB, 75 % "
        "of the working set of M1 8GB."
    )
    assert find(validated(19)) == []  # the end of the script
    assert find(validated(20, emptied=True)) == []
    assert find(validated(20, size=5 * GIB // 2)) == []


TRAINING = """
from anymps.findings import find
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).to("mps")
optimizer = torch.optim.AdamW(model.parameters())
def train(keep):
    total = 0.0
    for _ in range(5):
        x = torch.rand(512, 256).to("mps")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += keep(model(x).mean())
for keep in (lambda loss: loss, torch.Tensor.detach):
    with anymps.record() as capture:
        train(keep)
    print([(finding.id, "their graph is kept" in finding.what) for finding in find(capture.recording)])
"""


def test_a_real_loss_added_up_with_its_graph() -> None:
    """MPS505 on the device: a second loss that is added up without a backward; not if it is detached."""
    assert run_with_torch(ENABLE + TRAINING).lines == ["[('MPS505', True)]", "[]"]
