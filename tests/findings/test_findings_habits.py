"""Rules about detours, loading, optimizers, precision and timing on hand-made recordings: numbers, words, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from anymps.findings import Finding, find
from anymps.record import Direction, Fate, Flag, Phase, Recording, RecordingBuilder, RoundKind, Site, Wait

META: dict[str, object] = {"torch_version": "2.13.0+cpu", "mac": "M3 Pro 18GB"}
STEP = 1_000_000
LIBRARY = "/opt/lib/python3.11/site-packages/trainer/loop.py"

Extra = Callable[[RecordingBuilder, int, int], None]


def loop(extra: Extra, *, steps: int = 10, meta: Mapping[str, object] = META) -> Recording:
    """A training loop of two operators a step; `extra(builder, step, time)` adds to each step."""
    builder = RecordingBuilder(meta=meta)
    for step in range(steps):
        builder.entry("aten::addmm", start_ns=step * STEP + 1, phase=Phase.FORWARD)
        builder.entry("aten::mm", start_ns=step * STEP + 2, phase=Phase.BACKWARD, flags=Flag.AUTOGRAD_THREAD)
        extra(builder, step, step * STEP + 10)
        builder.end_step((step + 1) * STEP)
    return builder.close()


def once(
    what: str, *, file: str = "train.py", times: int = 1, meta: Mapping[str, object] = META, **facts: object
) -> Recording:
    """Ten steps, with a mark in the first ones."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step < times:
            builder.note(what, start_ns=time, site=builder.site(file, 7, "main", "the line"), **facts)

    return loop(extra, meta=meta)


def only(recording: Recording) -> Finding:
    """The one finding of a recording."""
    (finding,) = find(recording)
    return finding


def ids(recording: Recording) -> list[str]:
    """The ids of all findings."""
    return [finding.id for finding in find(recording)]


# MPS403 to MPS405


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
    assert finding.cost_ns == (round(20 * 210_000 + 2e7 / 75), round(20 * 570_000 + 2e7 / 40))


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
    assert finding.what == "What `torch.arange(n)` made on the CPU at model.py:11 was copied to mps once a step."
    assert finding.fix == "Create it on the device of the tensors that it is used with: `device=`."
    assert finding.cost_ns == (round(10 * 210_000 + 4000 / 75), round(10 * 570_000 + 4000 / 40))


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

    assert only(loop(extra)).fix == "Write `torch.ones(n, device=x.device).tril()`, which creates it on the device."


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
            "Create it on the device of the tensors that it is used with: `device=`.",
        ),
        (
            "torch.zeros(3, **options)", False, "x + torch.zeros(3, **options).to(x.device)",
            "Create it on the device of the tensors that it is used with: `device=`.",
        ),
        (
            "torch.tensor([2.0])", False, "",
            "Create it once, before the loop or as a buffer of the module (`register_buffer`).",
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
    assert finding.fix == (
        'Write `self.register_buffer("mask", ..., persistent=False)` where the module makes it; `.to()` of the module '
        "then moves it, once."
    )
    assert finding.cost_ns == (2_100_009, 5_700_016)


def test_a_buffer_copied_in_every_step() -> None:
    """MPS406: what is a buffer already is not to become one; its module has to be on mps."""
    finding = only(loop(constants("self.mask", module="Net.masked", kept="buffer")))
    assert finding.fix == "It is a buffer of its module: move the module to mps once, before the loop."


def test_tensors_copied_in_every_step() -> None:
    """MPS406: several at one line are one finding; outside of a module they are copied before the loop."""
    finding = only(loop(constants("table", marks=2)))
    assert (finding.count, finding.per_step) == (20, 2.0)
    assert finding.what == "`table` and another one were copied to mps from the CPU in every step, and had not changed."
    assert finding.fix == "Copy `table` to mps once, before the loop."  # no `device` in the line


def test_a_copy_that_most_steps_do_not_have() -> None:
    """It is told with the number of steps: half of them are not every one."""
    finding = only(loop(constants("table", every=2)))
    assert finding.what == "`table` was copied to mps from the CPU in 5 of 10 steps, and had not changed."


def test_copies_that_are_no_constants() -> None:
    """MPS406 is silent where the copy is no routine, in a package, and where it was made just before (MPS404)."""
    assert ids(loop(constants("self.mask", every=5))) == []
    assert ids(loop(constants("self.mask", file=LIBRARY))) == []
    assert ids(loop(constants("self.mask", marks=0))) == []


# MPS407


@pytest.mark.parametrize(
    ("error", "expected"), [("AssertionError: Torch not compiled with CUDA enabled", ["MPS407"]), ("", [])]
)
def test_cuda_asked_for(error: str, expected: list[str]) -> None:
    """MPS407: what asks for CUDA and ends the run; a program that catches the error knows what to do."""
    builder = RecordingBuilder(meta={**META, "ending": {"kind": "exception", "error": error}})
    builder.note("cuda", start_ns=0, site=builder.site("train.py", 7, "main", "model.cuda()"))
    findings = find(builder.close())
    assert [finding.id for finding in findings] == expected
    if expected:
        assert (
            findings[0].what == "This line needs CUDA and raised AssertionError: Torch not compiled with CUDA enabled"
        )
        assert findings[0].site.line == 7


# MPS811, MPS812


def zeroing(gradients: int, via: str = "torch/optim/optimizer.py:zero_grad") -> Extra:
    """Fills of gradients in every step."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 5, "main", "optimizer.zero_grad(set_to_none=False)", via)
        for number in range(gradients):
            builder.entry("aten::zero_", start_ns=time + number, site=site, phase=Phase.OTHER)

    return extra


def test_zero_filled_gradients() -> None:
    """MPS811: fills by zero_grad count from 50 a step on; fills of the program's own never do."""
    finding = only(loop(zeroing(50)))
    assert (finding.id, finding.count, finding.per_step) == ("MPS811", 500, 50.0)
    assert finding.what == "`zero_grad(set_to_none=False)` filled 50 gradients with zeros a step."
    assert finding.cost_ns == (500 * 1_200, 500 * 20_000)
    assert ids(loop(zeroing(49))) == []
    assert ids(loop(zeroing(50, via=""))) == []


OPTIMIZER: dict[str, object] = {
    "name": "AdamW", "torch": True, "tensors": 10, "on_mps": 10, "dtypes": ["float32"], "fused": ["None"],
    "foreach": ["None"], "differentiable": ["False"], "eps": ["1e-08"],
}  # fmt: skip


def stepping(
    kernels: int, *, count: int = 1, file: str = "train.py", made: tuple[str, str] | None = None, **facts: object
) -> Extra:
    """`count` optimizers, whose steps run `kernels` operators in all; `made`: by which file and line."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for number in range(count if step == 0 else 0):
            site = builder.site(file, 30 + number, "main", "optimizer.step()")
            other = builder.site(made[0], 7, "main", made[1]) if made is not None else 0
            known = {**OPTIMIZER, **facts}
            builder.note("optimizer", start_ns=time, site=site, other=other, phase=Phase.OPTIMIZER, **known)
        for number in range(kernels):
            builder.entry("aten::addcdiv_", start_ns=time + number, phase=Phase.OPTIMIZER)

    return extra


def test_unfused_optimizer() -> None:
    """MPS812: the step's kernels, and what starting them costs; at its line where no other is known."""
    finding = only(loop(stepping(140)))
    assert (finding.id, finding.site.line, finding.count, finding.per_step) == ("MPS812", 30, 10, 1.0)
    assert finding.what == "`AdamW` ran 140 kernels a step for 10 parameters, 99% of all kernels of the step."
    assert finding.fix == "Pass `fused=True` to the optimizer."
    assert finding.related_sites == ()
    assert finding.cost_ns == (1400 * 1_200, 1400 * 20_000)


@pytest.mark.parametrize(("version", "expected"), [("2.12.0", []), ("2.13.0", ["MPS812"]), ("", [])])
def test_unfused_optimizer_under_a_scaler(version: str, expected: list[str]) -> None:
    """MPS812 is silent where the fused kernel would ignore the GradScaler (MPS691), or where that is not known."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(140)(builder, step, time)
        if step == 0:
            builder.note("grad_scaler", start_ns=time, site=builder.site("train.py", 3, "main", "scaler"), device="mps")

    assert ids(loop(extra, meta={**META, "torch_version": version})) == expected


FUSED = "Give it a fused optimizer, which looks at that on the device: `AdamW(..., fused=True)`."
EMULATED = "float32 needs no GradScaler; nor does bfloat16, but this chip emulates it (MPS305)."
OTHER_DTYPE = "Train in bfloat16 or float32, which need no GradScaler."


@pytest.mark.parametrize(
    ("meta", "facts", "fix"),
    [
        ({}, {}, FUSED),
        ({}, {"torch": False, "name": "Lion"}, OTHER_DTYPE),
        ({"torch_version": "2.12.0"}, {}, OTHER_DTYPE),
        ({"torch_version": "2.12.0", "mac": "M2 16GB"}, {}, EMULATED),
        ({"mac": ""}, {"name": "Adagrad"}, OTHER_DTYPE),
    ],
)
def test_the_read_of_a_scaler(meta: dict[str, object], facts: dict[str, object], fix: str) -> None:
    """MPS201: a fused optimizer needs no read where it heeds the scaler; else another dtype that the chip has."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(0, **facts)(builder, step, time)
        site = builder.site("train.py", 30, "main", "scaler.step(optimizer)", "torch/amp/grad_scaler.py:<genexpr>")
        builder.entry("aten::_local_scalar_dense", start_ns=time + 1, phase=Phase.OPTIMIZER, site=site, wait=Wait.ITEM)

    finding = only(loop(extra, meta={**META, **meta}))
    assert (finding.id, finding.what) == ("MPS201", "GradScaler read whether a gradient was infinite once a step.")
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("source", "facts", "fix"),
    [
        (
            "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)", {},
            "Write `torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)`.",
        ),
        (
            "return {'optimizer': AdamW(self.parameters(), foreach=True, fused=None)}", {"foreach": ["True"]},
            "Write `AdamW(self.parameters(), fused=True)`, in place of `foreach=True`.",
        ),
        (
            "optimizer = torch.optim.AdamW(groups, lr=1e-3, **extra_args)", {},
            "Have `extra_args` hold `fused=True`.",
        ),
        ("optimizer = torch.optim.AdamW(", {}, "Pass `fused=True` to the optimizer."),
        ("optimizer = KINDS[name](net.parameters())", {}, "Pass `fused=True` to the optimizer."),
    ],
)  # fmt: skip
def test_unfused_optimizer_where_it_is_made(source: str, facts: dict[str, object], fix: str) -> None:
    """MPS812 stands at the line to change, and writes it anew where that holds the whole call."""
    finding = only(loop(stepping(140, made=("model.py", source), **facts)))
    assert (finding.site.file, finding.site.line, finding.fix) == ("model.py", 7, fix)
    assert [site.line for site in finding.related_sites] == [30]


def test_unfused_optimizer_made_in_a_package() -> None:
    """MPS812 then stands at the step, and is silent where that is in a package, too."""
    made = (LIBRARY, "self.optimizer = AdamW(parameters)")
    assert only(loop(stepping(140, made=made))).site.line == 30
    assert ids(loop(stepping(140, made=made, file=LIBRARY))) == []


def test_foreach_optimizer() -> None:
    """MPS812: `foreach=True` is named, as it brings nothing on mps."""
    finding = only(loop(stepping(140, foreach=["True"])))
    assert finding.what == (
        "`AdamW`, with `foreach=True`, ran 140 kernels a step for 10 parameters, 99% of all kernels of the step."
    )
    assert finding.fix == "Pass `fused=True` to the optimizer, in place of `foreach=True`."


@pytest.mark.parametrize(
    "extra",
    [
        stepping(49),
        stepping(140, fused=["True"]),
        stepping(140, name="RMSprop"),
        stepping(140, torch=False),
        stepping(140, on_mps=9),
        stepping(140, dtypes=["complex64"]),
        stepping(140, differentiable=["True"]),
        stepping(140, file=LIBRARY),
        stepping(140, count=2),
    ],
    ids=["few", "fused", "no kernel", "own class", "on the CPU", "complex", "differentiable", "library", "whose"],
)
def test_optimizers_that_are_as_they_should_be(extra: Extra) -> None:
    """MPS812 is silent where the fused kernel is used, is not there, or would save little."""
    assert ids(loop(extra)) == []


def test_two_optimizers() -> None:
    """MPS812 tells each by the line that steps it, and is silent of those that share one."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        lines = {"optimizer_g.step()": (30, 112), "optimizer_d.step()": (40, 63), "other.step()": (50, 25)}
        for source, (line, kernels) in lines.items():
            site = builder.site("train.py", line, "main", source)
            for count in range((step == 0) * (2 if line == 50 else 1)):
                builder.note("optimizer", start_ns=time, site=site, phase=Phase.OPTIMIZER, **OPTIMIZER, number=count)
            for number in range(kernels):
                builder.entry("aten::addcdiv_", start_ns=time + line * 10 + number, site=site, phase=Phase.OPTIMIZER)

    found = list(find(loop(extra)))
    assert [(finding.id, finding.site.line) for finding in found] == [("MPS812", 30), ("MPS812", 40)]
    assert [finding.what for finding in found] == [
        "`AdamW` ran 112 kernels a step for 10 parameters, 55% of all kernels of the step.",
        "`AdamW` ran 63 kernels a step for 10 parameters, 31% of all kernels of the step.",
    ]


def test_an_optimizer_that_steps_several_times_a_step() -> None:
    """MPS812 tells the kernels of one update, and how many there are for each of the other optimizer."""
    critic, generator = ("optimizer_d.step()", 30, 70), ("optimizer_g.step()", 40, 60)

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for source, line, _ in (critic, generator) if step == 0 else ():
            site = builder.site("train.py", line, "main", source)
            builder.note("optimizer", start_ns=time, site=site, phase=Phase.OPTIMIZER, **OPTIMIZER)
        for source, line, kernels in (*[critic] * 5, generator):
            site = builder.site("train.py", line, "main", source)
            for number in range(kernels):
                builder.entry("aten::addcdiv_", start_ns=time + number, site=site, phase=Phase.OPTIMIZER)
            time += 100
            builder.round(RoundKind.OPTIMIZER, start_ns=time - 99, end_ns=time - 1, site=site, key=line)

    found = list(find(loop(extra)))
    assert [(finding.site.line, finding.count, finding.per_step) for finding in found] == [(30, 50, 5.0), (40, 10, 1.0)]
    assert [finding.what for finding in found] == [
        "`AdamW` ran 70 kernels 5 times a step for 10 parameters, 85% of all kernels of the step.",
        "`AdamW` ran 60 kernels a step for 10 parameters, 15% of all kernels of the step.",
    ]


@pytest.mark.parametrize(("forward", "expected"), [(558, ["MPS812"]), (560, [])])
def test_unfused_optimizer_of_a_long_step(forward: int, expected: list[str]) -> None:
    """MPS812 is silent where the optimizer's kernels are less than a fifth of the step's: 140 of 700."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        stepping(140)(builder, step, time)
        for number in range(forward):
            builder.entry("aten::gelu", start_ns=time + 200 + number, phase=Phase.FORWARD)

    assert ids(loop(extra)) == expected


def test_unfused_optimizer_needs_a_loop() -> None:
    """MPS812 needs three steps."""
    assert ids(loop(stepping(140), steps=2)) == []


# MPS305 to MPS307, MPS82x


def products(dtype: str, *, phase: Phase = Phase.FORWARD, operator: str = "aten::mm", every: int = 1) -> Extra:
    """Two matrix products in every `every`-th step, under an autocast of the first one."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        site = builder.site("train.py", 15, "main", "with torch.autocast('mps'):")
        if step == 0:
            builder.note("autocast", start_ns=time, site=site, device="mps", dtype=dtype)
        line = builder.site("model.py", 4, "forward", "x = x @ w")
        for number in range(2 if step % every == 0 else 0):
            builder.entry(
                operator, start_ns=time + number, phase=phase, site=line, inputs=[f"{dtype}[2, 2]", f"{dtype}[2, 2]"]
            )

    return extra


@pytest.mark.parametrize(("mac", "expected"), [("M1 16GB", 1), ("M2 Max 32GB", 1), ("M3 Pro 18GB", 0), ("M4 16GB", 0)])
def test_bfloat16_by_chip(mac: str, expected: int) -> None:
    """MPS305: on chips of the apple7 and apple8 families, at the line that chose bfloat16."""
    findings = find(loop(products("bfloat16"), meta={**META, "mac": mac}))
    assert [finding.id for finding in findings] == ["MPS305"] * expected
    for finding in findings:
        assert (finding.site.line, finding.count, finding.per_step) == (15, 20, 2.0)
        assert ": 2 a step." in finding.what


def test_the_autocast_that_chose_bfloat16() -> None:
    """MPS305 stands at the one of this dtype on mps, whichever others there were before."""

    def others(builder: RecordingBuilder, step: int, time: int) -> None:
        for line, dtype, device in ((8, "float16", "mps"), (9, "bfloat16", "cpu")):
            site = builder.site("train.py", line, "main", "with torch.autocast(kind):")
            builder.note("autocast", start_ns=time, site=site, device=device, dtype=dtype)
        products("bfloat16")(builder, step, time)

    findings = find(loop(others, meta={**META, "mac": "M1 8GB"}))
    assert [finding.site.line for finding in findings if finding.id == "MPS305"] == [15]


def test_bfloat16_of_no_known_mac() -> None:
    """MPS305 is silent where the recording names no Mac, and about operators that are no matrix products."""
    assert ids(loop(products("bfloat16"), meta={"torch_version": "2.13.0"})) == []
    assert ids(loop(products("bfloat16", operator="aten::relu"), meta={**META, "mac": "M1 8GB"})) == []


def test_float16_gradients_without_a_scaler() -> None:
    """MPS306: backward in float16 in every step, and nothing that looks for infinite gradients."""
    finding = only(loop(products("float16", phase=Phase.BACKWARD)))
    assert (finding.id, finding.site.line, finding.count, finding.per_step) == ("MPS306", 15, 20, 2.0)
    assert finding.what == "Backward computed with 2 operators in float16 a step, and no gradient was scaled."


def test_float16_that_is_no_mistake() -> None:
    """MPS306 is silent with a GradScaler, in forward alone, in bfloat16, and in a fifth of the steps."""

    def scaled(builder: RecordingBuilder, step: int, time: int) -> None:
        products("float16", phase=Phase.BACKWARD)(builder, step, time)
        builder.entry("aten::_amp_foreach_non_finite_check_and_unscale_", start_ns=time + 5, phase=Phase.OPTIMIZER)

    assert ids(loop(scaled)) == []
    assert ids(loop(products("float16"))) == []
    assert ids(loop(products("bfloat16", phase=Phase.BACKWARD))) == []
    assert ids(loop(products("float16", phase=Phase.BACKWARD, every=5))) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"dtypes": ["float16"]}, ["MPS307"]),
        ({"dtypes": ["float16"], "eps": ["2e-08"]}, ["MPS307"]),
        ({"dtypes": ["float16"], "eps": ["3e-08"]}, []),  # rounds up to the least number
        ({"dtypes": ["float16"], "fused": ["True"]}, []),
        ({"dtypes": ["float16"], "name": "SGD", "eps": []}, []),
        ({"dtypes": ["bfloat16"]}, []),
    ],
)
def test_eps_that_is_zero(facts: dict[str, object], expected: list[str]) -> None:
    """MPS307: float16 parameters, an optimizer that divides, and an eps that rounds to zero."""
    assert ids(once("optimizer", **{**OPTIMIZER, **facts})) == expected


@pytest.mark.parametrize(
    ("what", "facts", "expected"),
    [
        ("autocast", {"device": "cuda", "dtype": "float16"}, ["MPS821"]),
        ("autocast", {"device": "cpu", "dtype": "bfloat16", "refused": False}, ["MPS821"]),
        ("autocast", {"device": "mps", "dtype": "float16"}, []),
        ("autocast", {"device": "mps", "dtype": "float16", "refused": False}, []),
        ("autocast", {"device": "mps", "dtype": "float64", "refused": True}, ["MPS824"]),
        ("grad_scaler", {"device": "cuda"}, ["MPS822"]),
        ("grad_scaler", {"device": "mps"}, []),
        ("backward", {"autocast": "float16"}, ["MPS823"]),
        ("compile", {"backend": "mps", "mode": ""}, ["MPS831"]),
        ("compile", {"backend": "inductor", "mode": "max-autotune"}, ["MPS832"]),
        ("compile", {"backend": "eager", "mode": "max-autotune"}, []),
        ("compile", {"backend": "inductor", "mode": ""}, []),
    ],
)
def test_what_is_asked_of_torch(what: str, facts: dict[str, object], expected: list[str]) -> None:
    """MPS82x and MPS83x: each by its facts, at the program's own lines and not at those of a library."""
    assert ids(once(what, **facts)) == expected
    assert ids(once(what, file=LIBRARY, **facts)) == []


@pytest.mark.parametrize("file", ["train.py", LIBRARY])
def test_an_autocast_island_for_another_device(file: str) -> None:
    """MPS825 names both lines, at a line of a library too: its results are the program's."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            island = builder.site(file, 9, "attention", 'with torch.autocast("cuda", enabled=False):')
            outer = builder.site("train.py", 5, "main", 'with torch.autocast("mps"):')
            builder.note("autocast_island", start_ns=time, site=island, other=outer, device="cuda", dtype="float16")

    finding = only(loop(extra))
    assert (finding.id, finding.site.file, finding.site.line) == ("MPS825", file, 9)
    assert finding.what == "Autocast was switched off for cuda, while autocast to float16 was on for mps."
    assert finding.fix == (
        "Switch it off for mps where there is one: "
        '`with torch.autocast("mps" if torch.backends.mps.is_available() else "cuda", enabled=False):`.'
    )
    assert [(site.file, site.line) for site in finding.related_sites] == [("train.py", 5)]
    assert finding.related_as == "switched on at"


BNB = "bitsandbytes has no counterpart on a Mac; use float16 or bfloat16 weights and an optimizer of torch.optim"


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ({"status": 0}, []),
        ({"status": 1, "exception": "ValueError", "message": "no such option"}, []),
        ({"status": 1, "exception": "ModuleNotFoundError", "message": f"anymps: {BNB}"}, ["MPS410"]),
        ({"status": 1, "exception": "RuntimeError", "message": "8-bit Adam needs bitsandbytes"}, ["MPS410"]),
    ],
)
def test_a_guarded_import_of_a_cuda_library(ending: dict[str, object], expected: list[str]) -> None:
    """MPS410 is about a refusal that ended the run, not one that the program caught."""
    found = ids(once("cuda_refused", sentence=BNB, meta={**META, "ending": ending}))
    assert [identity for identity in found if identity == "MPS410"] == expected


def test_a_process_that_a_refusal_ended() -> None:
    """MPS410: of a joined recording, the ending of each process counts."""
    part = {"name": "worker", "begin_ns": 0, "complete": True, "ending": {"status": 1, "message": f"anymps: {BNB}"}}
    found = ids(once("cuda_refused", sentence=BNB, meta={**META, "ending": {"status": 0}, "parts": [part]}))
    assert "MPS410" in found


def test_other_devices_without_mps() -> None:
    """MPS821 and MPS822 are silent in a program that computes nothing on mps."""
    builder = RecordingBuilder(meta=META)
    builder.note("autocast", start_ns=0, site=builder.site("a.py", 1), device="cuda", dtype="float16")
    assert ids(builder.close()) == []


# MPS80x


LOADER: dict[str, object] = {
    "workers": 2, "pin_memory": False, "persistent": True, "start_method": "", "guarded": True, "unpicklable": "",
    "on_mps": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "times", "expected"),
    [
        ({}, 5, []),
        ({"pin_memory": True}, 1, ["MPS801"]),
        ({"guarded": False}, 1, ["MPS802"]),
        ({"guarded": None}, 1, []),
        ({"guarded": False, "start_method": "fork"}, 1, []),
        ({"guarded": False, "start_method": "spawn"}, 1, ["MPS802"]),
        ({"guarded": False, "workers": 0}, 1, []),
        ({"unpicklable": "collate_fn"}, 1, ["MPS803"]),
        ({"on_mps": "dataset.tensors[0]"}, 1, ["MPS805"]),
        ({"on_mps": "dataset.tensors[0]", "start_method": "fork"}, 1, ["MPS805"]),
        ({"persistent": False}, 3, ["MPS804"]),
        ({"persistent": False}, 2, []),
        ({"persistent": False, "guarded": False}, 5, ["MPS802"]),  # its workers come to the loader, too
        ({"persistent": False, "workers": 0}, 3, []),
    ],
)
def test_loaders(facts: dict[str, object], times: int, expected: list[str]) -> None:
    """MPS80x: each setting by itself; a script that asks for fork gets no finding about spawning."""
    assert ids(once("loader", times=times, **{**LOADER, **facts})) == expected
    assert ids(once("loader", times=times, file=LIBRARY, **{**LOADER, **facts})) == []


def test_a_loader_is_told_where_it_is_made() -> None:
    """MPS801, MPS803 to MPS805 stand at the line to change; two loops over one loader are one finding."""
    for facts, times in (
        ({"pin_memory": True}, 1), ({"unpicklable": "collate_fn"}, 1), ({"on_mps": "dataset"}, 1),
        ({"persistent": False}, 3),
    ):  # fmt: skip
        builder = RecordingBuilder(meta=META)
        made = builder.site("data.py", 4, "loaders", "return DataLoader(data, **options)")
        for epoch in range(times):
            loop_of = builder.site("train.py", 7, "main", "for x in loader:")
            builder.note("loader", start_ns=epoch, site=loop_of, other=made, **{**LOADER, **facts})
        finding = only(builder.close())
        assert (finding.site.file, finding.site.line) == ("data.py", 4)
    builder = RecordingBuilder(meta=META)
    made = builder.site("data.py", 4, "loaders", "return DataLoader(data, pin_memory=True)")
    for line in (7, 19):
        site = builder.site("train.py", line, "main", "for x in loader:")
        builder.note("loader", start_ns=line, site=site, other=made, **{**LOADER, "pin_memory": True})
    pinned = only(builder.close())
    assert (pinned.count, [site.line for site in pinned.related_sites], pinned.related_as) == (2, [7, 19], "used at")


def test_words_about_workers() -> None:
    """MPS80x: one worker or several, and what cannot be sent to them."""
    assert only(once("loader", **{**LOADER, "guarded": False})).what == (
        'A DataLoader with 2 workers, and no `if __name__ == "__main__"` around what runs it.'
    )
    assert only(once("loader", **{**LOADER, "workers": 1, "unpicklable": "dataset.transform"})).what == (
        "`dataset.transform` of a DataLoader with 1 worker is a lambda or a local one, which cannot be sent to them."
    )
    assert only(once("loader", **{**LOADER, "on_mps": "dataset.tensors[0]"})).what == (
        "`dataset.tensors[0]` of a DataLoader with 2 workers is on mps."
    )
    restarted = only(once("loader", times=4, **{**LOADER, "persistent": False}))
    assert (restarted.what, restarted.count) == ("2 workers started 4 times, once an epoch.", 4)


# MPS90x


def timed(
    *between: Wait,
    start: str = "t = time.perf_counter()",
    end: str = "took = time.perf_counter() - t",
    file: str = "b.py",
) -> Recording:
    """Ten equal operators between two clock reads, and one before them; then the waits."""
    builder = RecordingBuilder(meta=META)
    builder.entry("aten::mm", start_ns=0)
    builder.note("clock", start_ns=1, site=builder.site(file, 3, "main", start))
    for number in range(10):
        builder.entry("aten::mm", start_ns=2 + number)
    for number, kind in enumerate(between):
        builder.entry("anymps::synchronize", start_ns=20 + number, fate=Fate.WAIT, wait=kind)
    builder.note("clock", start_ns=30, site=builder.site(file, 9, "main", end))
    return builder.close()


def test_timed_without_a_wait() -> None:
    """MPS901: at the second read, with the line of the first and how much was pending."""
    finding = only(timed())
    assert (finding.id, finding.site.line, finding.count) == ("MPS901", 9, 1)
    assert [site.line for site in finding.related_sites] == [3]
    assert finding.what == (
        "The clock was read once, and 10 of the 10 operators on mps since b.py:3 had not been waited for."
    )
    assert finding.fix == (
        "Call `torch.mps.synchronize()` before each of the two clock reads, or use `anymps.train.timing`."
    )
    assert ids(timed(Wait.SYNCHRONIZE)) == []
    assert ids(timed(Wait.ITEM)) == []


def test_every_step_timed_without_a_wait() -> None:
    """MPS901: the remedy is no wait in each step, which would be another finding."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        builder.note("clock", start_ns=time, site=builder.site("b.py", 3, "main", "start = time.time()"))
        builder.entry("aten::mm", start_ns=time + 1)
        builder.note("clock", start_ns=time + 2, site=builder.site("b.py", 9, "main", "took = time.time() - start"))

    finding = only(loop(extra))
    assert (finding.id, finding.count, finding.fix) == (
        "MPS901",
        10,
        "Time many steps together: one `torch.mps.synchronize()` before the first clock read, one before the last, "
        "none in each step (MPS205). `anymps bench` does it for a script as it is.",
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("start = time.time()", "end = time.time()", ["MPS901"]),
        ("self.start = perf_counter()", "return perf_counter() - self.start", ["MPS901"]),
        ("last = time.time()", "if time.time() - last > 60:", []),
        ("last = time.time()", "while time.time() - last < 60:", []),
        ("row['time'] = time.time()", "row['time'] = time.time()", []),
        ("t = time.time()", "log(step, time.time())", []),
        ("end = time.time()", "data_time.update(time.time() - end)", []),
        ("t = time.time()", "load_seconds += time.time() - t", []),
        ("end = time.time()", "batch_time.update(time.time() - end)", ["MPS901"]),
    ],
)
def test_what_is_a_timing(start: str, end: str, expected: list[str]) -> None:
    """MPS901 wants a difference, or two reads kept under names; time limits and time stamps are none."""
    assert ids(timed(start=start, end=end)) == expected
    assert ids(timed(start=start, end=end, file=LIBRARY)) == []


def test_most_of_the_work_waited_for() -> None:
    """MPS901: a loop that waits in every step and is timed as a whole leaves its last step pending, which is little."""
    builder = RecordingBuilder(meta=META)
    builder.entry("aten::mm", start_ns=0)
    builder.note("clock", start_ns=1, site=builder.site("b.py", 3, "main", "t = time.time()"))
    for number in range(20):
        builder.entry("aten::mm", start_ns=10 * number + 2)
        if number < 18:
            builder.entry("anymps::synchronize", start_ns=10 * number + 5, fate=Fate.WAIT, wait=Wait.SYNCHRONIZE)
    builder.note("clock", start_ns=500, site=builder.site("b.py", 9, "main", "print(time.time() - t)"))
    assert ids(builder.close()) == []


def test_a_time_that_holds_a_batch_only() -> None:
    """MPS901 is silent where the device did nothing but prepare the batch: the time is that of the loading."""
    for phase, expected in ((Phase.BATCH, []), (Phase.MOVE, []), (Phase.FORWARD, ["MPS901"])):
        builder = RecordingBuilder(meta=META)
        builder.note("clock", start_ns=1, site=builder.site("b.py", 3, "main", "t = time.time()"))
        builder.entry("aten::div", start_ns=2, phase=phase)
        builder.note("clock", start_ns=30, site=builder.site("b.py", 9, "main", "took = time.time() - t"))
        assert ids(builder.close()) == expected


def test_first_call_timed() -> None:
    """MPS902: more than half of what was timed ran for the first time, once; fills of new tensors do not count."""
    for kinds, expected in ((1, []), (2, ["MPS902"])):
        builder = RecordingBuilder(meta=META)
        builder.note("clock", start_ns=1, site=builder.site("b.py", 3, "main", "t = time.time()"))
        builder.entry("aten::uniform_", start_ns=2)
        for number in range(3):
            builder.entry(f"aten::kind{number % kinds}", start_ns=3 + number)
        builder.entry("anymps::synchronize", start_ns=20, fate=Fate.WAIT, wait=Wait.SYNCHRONIZE)
        builder.note("clock", start_ns=30, site=builder.site("b.py", 9, "main", "took = time.time() - t"))
        recording = builder.close()
        assert ids(recording) == expected
        for finding in find(recording):
            assert finding.what == (
                "2 of the 3 operators on mps since the clock's read at b.py:3 ran for the first time."
            )
