"""Rules about copies that a step makes again and again: round trips, tensors made on the CPU, constants."""

from __future__ import annotations

import pytest

from anymps._text import duration, percent
from anymps.findings import Finding, Severity, Story, find
from anymps.findings._prices import cost_without, seldom_steps
from anymps.forecast import forecast
from anymps.record import Direction, Fate, Phase, Recording, RecordingBuilder, Site, Wait
from anymps.report import render_summary
from anymps.report.document import Prose
from anymps.report.run._waits import waits_section
from rule_loops import LIBRARY, META, Extra, ids, loop, only
from timed_steps import Steps

BUFFER = "In a module make it a buffer (`register_buffer`), which the module's `.to()` moves."


def round_trips(*operators: str, every: int = 1, file: str = "train.py", via: str = "", **meta: object) -> Extra:
    """A tensor of 1 MB that goes to the CPU and comes back, in every `every`-th step."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step % every == 0:
            back = builder.site(file, 9, "main", "x = x.to(device)", via)
            away = builder.site(file, 8, "main", "x = x.cpu()")
            builder.note(
                "round_trip", start_ns=time, site=back, other=away, moved_bytes=1_000_000, operators=list(operators)
            )

    return extra


def test_round_trip() -> None:
    """MPS403: both lines, how often, and twice the cost of a copy."""
    finding = only(loop(round_trips()))
    assert finding.site == Site("train.py", 9, "main", "x = x.to(device)")
    assert finding.related_sites == (Site("train.py", 8, "main", "x = x.cpu()"),)
    assert (finding.id, finding.count, finding.per_step) == ("MPS403", 10, 1.0)
    assert finding.what == (
        "A tensor that was copied to the CPU at train.py:8 came back once a step, and nothing had changed it."
    )
    assert finding.fix == "Leave the tensor on mps: drop `.cpu()` and `.to(device)`."
    # 20 copies at 210 to 570 us, and 20 MB at 40 to 75 GB/s
    assert finding.cost_ns == (round(20 * 100_000 + 2e7 / 75), round(20 * 480_000 + 2e7 / 40))


def test_round_trip_of_lengths() -> None:
    """MPS403: packed sequences need their lengths on the CPU, so that to leave them on mps would be refused."""
    packed = loop(round_trips("aten::sort", via="torch/nn/utils/rnn.py:pack_padded_sequence"))
    assert only(packed).fix == (
        "`pack_padded_sequence` takes lengths on the CPU only: keep a copy there, beside the one on mps."
    )


@pytest.mark.parametrize(("copies", "expected"), [(1, ["MPS403"]), (2, ["MPS403", "MPS204"])])
def test_the_way_to_the_cpu_of_a_round_trip(copies: int, expected: list[str]) -> None:
    """MPS403 tells of the copy to the CPU; MPS204 does not again, unless the line copies something else as well."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        round_trips()(builder, step, time)
        away = builder.site("train.py", 8, "main", "x = x.cpu()")
        for number in range(copies):
            builder.entry(
                "aten::_copy_from", start_ns=time + 1 + number, fate=Fate.COPY, site=away,
                wait=Wait.COPY_TO_CPU, direction=Direction.MPS_TO_CPU, moved_bytes=400,
            )  # fmt: skip

    assert ids(loop(extra)) == expected


def test_round_trip_for_operators_that_mps_has() -> None:
    """MPS403: what was done on the CPU is named; with an operator that MPS lacks there is no finding."""
    finding = only(loop(round_trips("aten::sort", "aten::exp")))
    assert finding.what.endswith("and only `aten::sort` and `aten::exp` had been applied to it.")
    assert finding.fix == "Leave it on mps: `aten::sort` and `aten::exp` run there too."
    assert only(loop(round_trips("aten::sort", "aten::sort"))).fix == "Leave it on mps: `aten::sort` runs there too."
    assert ids(loop(round_trips("aten::sort", "aten::_linalg_eigh"))) == []


def test_round_trip_in_another_release() -> None:
    """MPS403: which operators MPS has is asked of the recording's release: `linalg_qr` came with torch 2.12."""
    old, new = ({**META, "torch_version": version} for version in ("2.11.0", "2.13.0"))
    assert ids(loop(round_trips("aten::linalg_qr"), meta=old)) == []
    assert ids(loop(round_trips("aten::linalg_qr"), meta=new)) == ["MPS403"]
    assert ids(loop(round_trips("aten::linalg_qr"), meta={"torch_version": ""})) == []


@pytest.mark.parametrize(
    "extra",
    [
        round_trips(every=5),
        round_trips(file=LIBRARY),
        round_trips(via="torch/nn/modules/module.py:convert"),
    ],
    ids=["now and then", "library", "whole module"],
)
def test_round_trips_that_are_no_habit(extra: Extra) -> None:
    """MPS403 is silent about trips in a fifth of the steps, in a library, and of whole modules."""
    assert ids(loop(extra)) == []


def test_round_trips_without_a_loop() -> None:
    """MPS403: without training steps three trips make a routine, two do not."""
    for count, expected in ((2, []), (3, ["MPS403"])):
        builder = RecordingBuilder(meta=META)
        for number in range(count):
            round_trips()(builder, number, number)
        assert ids(builder.close()) == expected


def born(
    expression: str, *, generator: bool = False, every: int = 1, file: str = "model.py", module: str = ""
) -> Extra:
    """A copy to mps in every `every`-th step, of what `expression` made one line above."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site(file, 12, "forward", "mask = mask.to(x.device)")
        if step == 0:
            other = builder.site(file, 11, "forward", f"mask = {expression}")
            builder.note("born", start_ns=time, site=site, other=other, expression=expression, generator=generator)
        if step % every == 0:
            builder.entry(
                "aten::_copy_from", start_ns=time + 1, fate=Fate.COPY, phase=Phase.FORWARD, site=site,
                module=builder.module(module), wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=400,
            )  # fmt: skip

    return extra


def test_made_on_the_cpu() -> None:
    """MPS404: the line of the copy, the line that made the tensor, and the same call with a device."""
    finding = only(loop(born("torch.arange(n)")))
    assert (finding.id, finding.site.line, finding.count, finding.per_step) == ("MPS404", 12, 10, 1.0)
    assert [site.line for site in finding.related_sites] == [11]
    assert (
        finding.what
        == "The tensor that `torch.arange(n)` made on the CPU at model.py:11 was copied to mps once a step."
    )
    assert finding.fix == "Create it on the device (`device=x.device`)."
    assert finding.cost_ns == (round(10 * 100_000 + 4000 / 75), round(10 * 480_000 + 4000 / 40))


def test_made_and_moved_on_one_line() -> None:
    """MPS404: the device that the line moves to is named, and the move is not needed."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("model.py", 12, "forward", "mask = torch.ones(n).tril().to(x.device)")
        if step == 0:
            builder.note("born", start_ns=time, site=site, other=site, expression="torch.ones(n)", generator=False)
        builder.entry(
            "aten::_copy_from", start_ns=time + 1, fate=Fate.COPY, phase=Phase.FORWARD, site=site,
            wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=400,
        )  # fmt: skip

    finding = only(loop(extra))
    assert finding.fix == "Write `torch.ones(n, device=x.device).tril()`, which creates it on the device."
    assert finding.related_sites == ()  # the line itself is no other place


@pytest.mark.parametrize(
    ("expression", "number", "moved_by", "fix"),
    [
        (
            "torch.tensor(x.shape[-1], device=x.device)", True, "x / torch.tensor(x.shape[-1], device=x.device)",
            "Write `torch.full((), x.shape[-1], device=x.device)`, which creates it on the device.",
        ),
        (
            "torch.tensor(2.0, dtype=torch.float16)", True, "x * torch.tensor(2.0, dtype=torch.float16).to(x.device)",
            "Write `torch.full((), 2.0, dtype=torch.float16, device=x.device)`, which creates it on the device.",
        ),
        (
            "x.sum().new_tensor(self.scale, dtype=torch.int64)", True, "",
            (
                "Create it on the device with `full` or `new_full`, which copies nothing. Most calls also take a plain "
                "number."
            ),
        ),
        (
            "t.tensor(2.0)", True, "x * t.tensor(2.0).to(x.device)",
            "Write `t.full((), 2.0, device=x.device)`, which creates it on the device.",
        ),
        (
            'torch.zeros(3, device="cpu")', False, 'x + torch.zeros(3, device="cpu").to(x.device)',
            "Create it on the device (`device=x.device`).",
        ),
        (
            "torch.zeros(3, **options)", False, "x + torch.zeros(3, **options).to(x.device)",
            "Create it on the device (`device=x.device`).",
        ),
        (
            "torch.tensor([2.0])", False, "",
            f"Create it once, before the loop. {BUFFER}",
        ),
        (
            "torch.tensor([t])", False, "",
            f"If its values never change, create it once, before the loop. {BUFFER}",
        ),
    ],
)  # fmt: skip
def test_made_of_python_numbers(expression: str, number: bool, moved_by: str, fix: str) -> None:
    """MPS404: a tensor of one number is filled on the device, one of several is to be made once."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("model.py", 12, "forward", moved_by)
        if step == 0:
            facts = {"expression": expression, "generator": False, "number": number}
            builder.note("born", start_ns=time, site=site, other=site, **facts)
        builder.entry(
            "aten::_copy_from", start_ns=time + 1, fate=Fate.COPY, phase=Phase.FORWARD, site=site,
            wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=4,
        )  # fmt: skip

    assert only(loop(extra)).fix == fix


def test_random_numbers_of_a_cpu_generator() -> None:
    """MPS405: numbers that are the same on every machine are worth knowing about, no more."""
    finding = only(loop(born("torch.randn(4, generator=g)", generator=True)))
    assert (finding.id, finding.severity.label) == ("MPS405", "info")


def test_made_up_data() -> None:
    """MPS404 takes random numbers that the loop itself draws for a stand-in of data; those of a module are none."""
    assert ids(loop(born("torch.rand(32, 8)"))) == []
    assert ids(loop(born("torch.rand(32, 8)", module="Net.noise"))) == ["MPS404"]
    assert ids(loop(born("torch.rand(real.shape[0], 1)"))) == ["MPS404"]


def test_a_random_order_is_no_data() -> None:
    """MPS404: it is an index, which is to be drawn on the device."""
    finding = only(loop(born("torch.randperm(n)")))
    assert (finding.id, finding.fix) == ("MPS404", "Create it on the device: `torch.randperm(n, device=device)`.")
    assert ids(loop(born("torch.ones(32, 1)"))) == ["MPS404"]


def test_copies_that_are_no_habit() -> None:
    """MPS404 is silent about a copy in a fifth of the steps, and in a library."""
    assert ids(loop(born("torch.arange(n)", every=5))) == []
    assert ids(loop(born("torch.arange(n)", file=LIBRARY))) == []


# MPS406


def constants(
    name: str, *, every: int = 1, file: str = "model.py", module: str = "", marks: int = 1, kept: str = ""
) -> Extra:
    """Two copies of 64 bytes at one line in every `every`-th step, and marks that so many of them are the same."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site(file, 9, "forward", "x = x * self.mask.to(x.device)")
        for number in range(2 if step % every == 0 else 0):
            builder.entry(
                "aten::copy_", start_ns=time + number, fate=Fate.COPY, phase=Phase.FORWARD, wait=Wait.COPY_TO_MPS,
                direction=Direction.CPU_TO_MPS, moved_bytes=64, site=site,
                module=builder.module(module, "Masked") if module else 0,
            )  # fmt: skip
        for number in range(marks if step == 2 else 0):
            builder.note("constant", start_ns=time + number, site=site, name=name, kept=kept, bytes=64)

    return extra


def test_a_tensor_copied_in_every_step() -> None:
    """MPS406: its name, one copy a step for each tensor, and a buffer where a module keeps it."""
    finding = only(loop(constants("self.mask", module="Net.masked")))
    assert (finding.id, finding.count, finding.per_step) == ("MPS406", 10, 1.0)
    assert finding.what == "`self.mask` was copied to mps from the CPU in every step, and had not changed."
    assert finding.fix == (f'{BUFFER} Write `self.register_buffer("mask", ..., persistent=False)` where it is made.')
    assert finding.cost_ns == (1_000_009, 4_800_016)


def test_a_buffer_copied_in_every_step() -> None:
    """MPS406: what is a buffer already is not to become one; its module has to be on mps."""
    finding = only(loop(constants("self.mask", module="Net.masked", kept="buffer")))
    assert finding.fix == "It is a buffer of its module: move the module to mps once, before the loop."


def test_a_copy_that_most_steps_do_not_have() -> None:
    """It is told with the number of steps: half of them are not every one."""
    finding = only(loop(constants("table", every=2)))
    assert finding.what == "`table` was copied to mps from the CPU in 5 of 10 steps, and had not changed."


def test_copies_that_are_no_constants() -> None:
    """MPS406 is silent where the copy is no routine, in a package, and where it was made just before (MPS404)."""
    assert ids(loop(constants("self.mask", every=5))) == []
    assert ids(loop(constants("self.mask", file=LIBRARY))) == []
    assert ids(loop(constants("self.mask", marks=0))) == []


# MPS412

LOOP = """for start in range(0, 512, 64):
    x = images[start : start + 64].to(device)
    y = labels[start : start + 64].to(device)
    rewards = batch.rewards.to(device)
    ended = batch.ended.to(device)
"""


def copying(
    *sizes: int, products: int = 20, times: int = 1, sets: tuple[tuple[str, int], ...] = (), kind: str = "training"
) -> Recording:
    """Five steps that copy so many bytes at one line each, and then multiply matrices for 4.6 ms times 20."""
    steps = Steps(torch_version="2.13.0", loop=kind)
    lines = LOOP.splitlines()
    sites = [
        steps.builder.site("train.py", number + 2, "main", lines[number + 1].strip(), text=LOOP)
        for number in range(len(sizes))
    ]
    for step in range(5):
        for site, size in zip(sites, sizes, strict=True):
            for _ in range(times):
                steps.entry(
                    "aten::_copy_from", 1000, fate=Fate.COPY, phase=Phase.MOVE, site=site, wait=Wait.COPY_TO_MPS,
                    direction=Direction.CPU_TO_MPS, moved_bytes=size,
                )  # fmt: skip
        if step == 2:
            for site, (name, whole) in zip(sites, sets, strict=False):
                steps.builder.note("data_set", start_ns=steps.clock, site=site, name=name, bytes=whole)
        steps.product(products)
        steps.end()
    return steps.close()


def test_batches_of_a_data_set_on_the_host() -> None:
    """MPS412: one finding for both lines, with the lines that keep the tensors on mps."""
    recording = copying(1 << 20, 512, products=1, sets=(("images", 1 << 23), ("labels", 4096)))
    finding = only(recording)
    assert (finding.id, finding.severity, finding.count, finding.per_step) == ("MPS412", Severity.WARNING, 10, 2.0)
    assert [finding.site.line, *(site.line for site in finding.related_sites)] == [2, 3]
    time = forecast(recording).time
    share, step = percent(finding.cost_per_step_ns[1] / (1e9 * time.high)), duration(1e9 * time.seconds)
    assert finding.what == (
        "Tensors were copied to mps twice a step, 1.00 MiB in all. "
        f"These copies take about {share} of a step of {step}."
    )
    assert finding.fix == (
        "Keep `images` (8.00 MiB) and `labels` (4.00 KiB) on mps, and index them there: "
        "`images = images.to(device)` and `labels = labels.to(device)` where they are made."
    )
    assert {place.site.line for place in Story.of(recording).needless([finding])} == {2, 3}


def test_a_data_set_that_does_not_fit() -> None:
    """MPS412: what mps has no room for stays on the host; its batches count as any others."""
    assert ids(copying(1 << 20, 512, products=1, sets=(("images", 1 << 40), ("labels", 1 << 40)))) == []


def test_large_batches() -> None:
    """MPS412: a note where the bytes are a tenth of the step, though not that the host waits for small ones."""
    finding = only(copying(1 << 26, 512, products=3))
    assert (finding.id, finding.severity, finding.site.line) == ("MPS412", Severity.INFO, 2)
    assert finding.fix == (
        "If it fits, keep the data set on mps and take the batch there. Otherwise copy a smaller type, such as "
        "`uint8` for images, and convert it on mps."
    )
    assert ids(copying(1 << 26, 512, products=40)) == []
    assert ids(copying(512, 512, products=1)) == []


def test_many_copies() -> None:
    """MPS412: from four a step on they could be one."""
    finding = only(copying(512, products=1, times=4))
    assert (finding.id, finding.severity, finding.per_step) == ("MPS412", Severity.WARNING, 4.0)
    assert finding.fix == (
        "Make one tensor on the CPU of those with the same shape and dtype (`torch.stack`) and copy that; `unbind` "
        "takes it apart on mps. If it fits, keep the data set on mps and take the batch there."
    )
    assert ids(copying(512, products=1, times=3)) == []
    finding = only(copying(*[512] * 4, products=1))  # at one line each
    assert (finding.site.line, finding.per_step, len(finding.related_sites)) == (2, 4.0, 3)
    assert ids(copying(*[512] * 3, products=1)) == []


def test_copies_that_bound_a_step_without_a_finding() -> None:
    """A batch that comes from elsewhere has to be copied; the report says what that takes, and calls it not fine."""
    recording = copying(*[512] * 3, products=1)
    assert ids(recording) == []
    (section,) = waits_section(Story.of(recording))
    time = forecast(recording).time
    share = percent(sum(wait.seconds for wait in time.waits) / time.seconds)
    why = "copy to mps, the loop's data on its way to the device"
    (remarks,) = section.blocks
    assert isinstance(remarks, Prose)
    assert remarks.sentences == (
        f"These waits take about {share} of a predicted step, and no finding is about that: train.py:2 ({why}); "
        f"train.py:3 ({why}); train.py:4 ({why}). A larger batch makes them rarer. Data that fits can stay on mps. "
        "`non_blocking=True` spares the wait if the script keeps the CPU tensor unchanged until the next wait (MPS701, "
        "MPS702).",
    )
    assert section.remark == ""
    assert "A larger batch makes them rarer." in render_summary(Story.of(recording), []).replace("\n", " ")


def test_copies_of_an_inference() -> None:
    """MPS412 goes by its rounds as by the steps of a training; the rules about values that are read do not."""
    recording = copying(512, products=1, times=4, kind="inference")
    finding = only(recording)
    assert (finding.id, finding.severity, finding.per_step) == ("MPS412", Severity.WARNING, 4.0)
    (note,) = Story.of(recording).notes
    assert note.startswith("The rules about the training loop (such as MPS201) were not applied: they need 3 complete")
    sets = (("images", 1 << 23), ("labels", 4096))
    assert ids(copying(1 << 20, 512, products=1, sets=sets, kind="inference")) == ["MPS412"]
    assert ids(copying(512, products=1, kind="inference")) == []


def validating(rounds: int, near: int, *, name: str = "") -> Recording:
    """Twenty steps that copy nothing; after each fifth come `rounds` batches of a validation, `near` copies to each."""
    steps = Steps(torch_version="2.13.0", loop="training")
    lines = LOOP.splitlines()
    sites = [
        steps.builder.site("train.py", number + 2, "validate", lines[number + 1].strip(), text=LOOP)
        for number in range(2)
    ]
    for step in range(20):
        for _ in range(rounds if step % 5 == 1 else 0):
            for site in (sites[0], *[sites[1]] * near):
                steps.entry(
                    "aten::_copy_from", 1000, fate=Fate.COPY, phase=Phase.MOVE, site=site, wait=Wait.COPY_TO_MPS,
                    direction=Direction.CPU_TO_MPS, moved_bytes=512,
                )  # fmt: skip
            steps.small(8)
        if name and step == 7:
            steps.builder.note("data_set", start_ns=steps.clock, site=sites[0], name=name, bytes=4096)
        steps.small(8)
        steps.end()
    return steps.close()


def of_copies(recording: Recording) -> list[Finding]:
    """Its findings of MPS412: each has one about its uneven steps, too."""
    return [finding for finding in find(recording) if finding.id == "MPS412"]


def test_batches_of_a_validation() -> None:
    """Copies that few steps have are not fine where they make these steps longer."""
    recording = validating(8, 1)
    findings = find(recording)
    assert [finding.id for finding in findings] == ["MPS903"]
    (section,) = waits_section(Story.of(recording), findings)
    (remarks,) = section.blocks
    assert isinstance(remarks, Prose)
    assert remarks.sentences == (
        "Copies to the device wait too; the findings say how to avoid that: train.py:2 (MPS903), train.py:3 (MPS903).",
    )


def test_a_data_set_that_a_validation_copies() -> None:
    """MPS412: its cost is that of the whole run, as the typical step has none of it."""
    recording = validating(8, 1, name="images")
    (finding,) = of_copies(recording)
    assert (finding.id, finding.count, finding.per_step, finding.site.line) == ("MPS412", 32, 0.0, 2)
    (seldom,) = seldom_steps(recording)
    places = [wait.place for wait in seldom.step.waits if wait.place.line == 2]
    cost = cost_without(seldom.step, places, 8)
    assert cost is not None
    share = percent(seldom.part * cost[1] / (1e9 * seldom.step.time.high))
    assert finding.what == (
        "Tensors were copied to mps 8 times a step in 4 of 20 steps, 4.00 KiB in all. "
        f"These copies take about {share} of the predicted time of all steps."
    )
    assert finding.fix == (
        "Keep `images` (4.00 KiB) on mps, and index it there: `images = images.to(device)` where it is made."
    )


def test_many_copies_of_a_validation() -> None:
    """MPS412: of each batch, not of the whole validation."""
    (finding,) = of_copies(validating(8, 4))
    assert (finding.id, finding.site.line, finding.related_sites) == ("MPS412", 3, ())
    assert finding.what.startswith("Tensors were copied to mps 32 times a step in 4 of 20 steps, 16.00 KiB in all.")
    assert of_copies(validating(8, 3)) == []
    assert seldom_steps(validating(1, 1)) == ()  # what comes once now and then
