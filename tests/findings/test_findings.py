"""Each rule on a recording where it fires, and on one nearly the same where it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from anymps.findings import RULES, Severity, Story, find
from anymps.findings._model import _is_at
from anymps.findings.edits._placed import CodeChange
from anymps.record import Direction, Fate, Flag, Phase, Recording, RecordingBuilder, RefusalKind, Site, Wait
from anymps.report._notes import note
from rule_loops import ids, only

TORCH = {"torch_version": "2.13.0+cpu"}
ITEM, COPY = "aten::_local_scalar_dense", "aten::_copy_from"
STEP = 1_000_000

Extra = Callable[[RecordingBuilder, int, int], None]


def loop(extra: Extra | None = None, *, steps: int = 10, meta: Mapping[str, object] = TORCH) -> Recording:
    """A clean training loop; `extra(builder, step, time)` adds to each step, and once more, as -1, before the first.

    Clean: the batch is moved with a blocking copy, the loss is read every fifth step and printed after the loop.
    """
    builder = RecordingBuilder(meta=meta)
    move = builder.site("train.py", 20, "main", "x = x.to(device)")
    read = builder.site("train.py", 25, "main", "if step % 5 == 0: print(running.item())")
    last = builder.site("train.py", 30, "main", "print(running.item())")
    if extra is not None:
        extra(builder, -1, 0)
    for step in range(steps):
        t = step * STEP
        builder.entry(
            COPY, start_ns=t, fate=Fate.COPY, phase=Phase.MOVE, site=move, wait=Wait.COPY_TO_MPS,
            direction=Direction.CPU_TO_MPS, moved_bytes=4096,
        )  # fmt: skip
        builder.entry("aten::addmm", start_ns=t + 1, phase=Phase.FORWARD)
        builder.entry("aten::mm", start_ns=t + 2, phase=Phase.BACKWARD, flags=Flag.AUTOGRAD_THREAD)
        if step % 5 == 0:
            wait(builder, t + 3, read, Wait.ITEM)
        if extra is not None:
            extra(builder, step, t + 10)
        builder.end_step(t + STEP)
    wait(builder, steps * STEP, last, Wait.ITEM)
    return builder.close()


def wait(
    builder: RecordingBuilder,
    start_ns: int,
    site: int,
    kind: Wait,
    *,
    operator: str = "",
    phase: Phase = Phase.LOSS_READ,
) -> None:
    """One wait of a kind, by its usual operator."""
    operators = {Wait.ITEM: ITEM, Wait.COPY_TO_CPU: COPY, Wait.SYNCHRONIZE: "anymps::synchronize"}
    builder.entry(
        operator or operators.get(kind, f"anymps::{kind.label}"),
        start_ns=start_ns,
        fate=Fate.COPY if kind is Wait.COPY_TO_CPU else Fate.NATIVE,
        phase=phase,
        site=site,
        wait=kind,
        direction=Direction.MPS_TO_CPU if kind in (Wait.ITEM, Wait.COPY_TO_CPU) else Direction.NONE,
        moved_bytes=4 if kind is Wait.ITEM else 0,
    )


def waiting(
    source: str, kind: Wait, *, every: int = 1, via: str = "", operator: str = "", phase: Phase = Phase.LOSS_READ
) -> Extra:
    """Waits at one line in every `every`-th step."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step >= 0 and step % every == 0:
            site = builder.site("train.py", 22, "main", source, via)
            wait(builder, time, site, kind, operator=operator, phase=phase)

    return extra


def falling_back(
    operator: str = "aten::heaviside.out", *, every: int = 1, phase: Phase = Phase.FORWARD, fate: Fate = Fate.FALLBACK
) -> Extra:
    """A fallback at one line in every `every`-th step."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step >= 0 and step % every == 0:
            builder.entry(
                operator, start_ns=time, fate=fate, phase=phase, wait=Wait.FALLBACK, moved_bytes=6_000,
                site=builder.site("model.py", 7, "forward", "x = torch.heaviside(x, v)"),
            )  # fmt: skip

    return extra


@pytest.mark.parametrize(
    ("torch_version", "operator", "words"),
    [
        ("2.11.0", "aten::linalg_qr", "torch 2.12 has an MPS kernel for it."),
        ("2.13.0", "aten::linalg_svd", "torch 2.14 has an MPS kernel for it."),
        ("2.15.0", "aten::geqrf", RULES["MPS102"].fix),  # not what the recording's own release has
        ("", "aten::geqrf", "torch 2.14 has an MPS kernel for it."),
        ("2.13.0", "aten::mode", RULES["MPS102"].fix),
    ],
)
def test_release_with_a_kernel(torch_version: str, operator: str, words: str) -> None:
    """The first release with a kernel is named if it is newer than the recording's."""
    assert only(loop(falling_back(operator), meta={"torch_version": torch_version})).fix == words


@pytest.mark.parametrize(
    ("operator", "every", "ways"),
    [
        (
            "aten::channel_shuffle",
            1,
            "(1) rewrite: `x.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2)` for `F.channel_shuffle(x, g)`. "
            "(2) accept the CPU: 2 ms. (3) upgrade: no torch up to 2.15 has a kernel. "
            "(4) other dtype: none has a kernel.",
        ),
        (
            "aten::linalg_svd",
            1,
            "(1) upgrade: torch 2.14 has a kernel. (2) accept the CPU: 2 ms. (3) rewrite: none is known that MPS "
            "computes alone. (4) other dtype: none helps before; that kernel is not known to refuse any.",
        ),
        (
            "aten::linalg_svd",
            3,
            "(1) accept the CPU: 2 ms. (2) upgrade: torch 2.14 has a kernel. (3) rewrite: none is known that MPS "
            "computes alone. (4) other dtype: none helps before; that kernel is not known to refuse any.",
        ),
    ],
)
def test_four_ways_out(operator: str, every: int, ways: str) -> None:
    """MPS102 and MPS103: rewrite, upgrade, other dtype or the CPU with its cost; those that there are come first."""
    finding = only(loop(falling_back(operator, every=every), meta={"torch_version": "2.13.0"}))
    assert dict(note("", finding, "", cost="2 ms").facts)["ways"] == ways


def test_fallback_in_backward() -> None:
    """MPS102: a fallback of the backward pass says so, and is told apart from the forward one at the same line."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        falling_back("aten::take")(builder, step, time)
        falling_back("aten::put_", phase=Phase.BACKWARD)(builder, step, time + 1)

    assert [finding.what for finding in find(loop(extra))] == [
        "`aten::put_` of the backward pass ran on the CPU once a step: 2 device switches a step.",
        "`aten::take` ran on the CPU once a step: 2 device switches a step.",
    ]


@pytest.mark.parametrize(("every", "fallback", "read"), [(2, ["MPS102"], ["MPS201"]), (3, ["MPS103"], [])])
def test_what_half_of_the_steps_do(every: int, fallback: list[str], read: list[str]) -> None:
    """MPS102 and MPS201 fire from half of the steps on; a rarer fallback is MPS103."""
    assert ids(loop(falling_back(every=every))) == fallback
    assert ids(loop(waiting("total += loss.item()", Wait.ITEM, every=every))) == read


def test_fallback_in_set_up() -> None:
    """MPS103: a fallback before the loop is worth knowing, no more."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step < 0:
            falling_back("aten::linalg_svd", fate=Fate.ALWAYS_FALLBACK)(builder, 0, time)

    finding = only(loop(extra))
    assert (finding.id, finding.severity, finding.count) == ("MPS103", Severity.INFO, 1)
    assert finding.what == "`aten::linalg_svd` ran on the CPU once, regardless of PYTORCH_ENABLE_MPS_FALLBACK."
    assert finding.fix == "Nothing, unless it moves into the loop."


def test_fallback_in_a_short_recording() -> None:
    """MPS103: with too few steps nobody can tell whether the fallback is in the loop, and the finding says so."""
    finding = only(loop(falling_back("aten::mode"), steps=2))
    assert finding.id == "MPS103"
    assert finding.what == (
        "`aten::mode` ran on the CPU twice. The recording is too short to tell whether this happens in the loop."
    )


# MPS2xx


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("total += loss.item()", "`.item()` made the host wait once a step."),
        ("history.append(float(loss))", "`float()` of a tensor made the host wait once a step."),
        ("n = int(mask.sum())  # print(n)", "`int()` of a tensor made the host wait once a step."),
        ("ok = bool(loss > 3)", "`bool()` of a tensor made the host wait once a step."),
        ("if loss > best:", "A test of a tensor's truth made the host wait once a step."),
        ("if loss.item() > best:", "`.item()` made the host wait once a step."),
        ("", "Reading a value made the host wait once a step."),
    ],
)
def test_value_read_in_every_step(source: str, what: str) -> None:
    """MPS201: a read of one value in the loop, named as the script writes it."""
    finding = only(loop(waiting(source, Wait.ITEM)))
    assert (finding.id, finding.what) == ("MPS201", what)
    assert (finding.site.line, finding.count, finding.per_step) == (22, 10, 1.0)
    assert finding.cost_ns == (1_000_000, 4_500_000)


def test_reads_in_too_few_steps() -> None:
    """Two steps do not make a routine; a note says what is needed."""
    recording = loop(waiting("total += loss.item()", Wait.ITEM), steps=2)
    assert find(recording) == []
    assert list(Story.of(recording).notes) == [
        "The rules about the training loop (such as MPS201 and MPS404) were not applied: they need 3 "
        "complete training steps, and the recording has 2. A training step ends with `optimizer.step()`, or is a round "
        "with a `backward()`."
    ]
    assert Story.of(loop(steps=3)).notes == ()


def test_read_by_the_optimizer() -> None:
    """MPS201: a read inside the optimizer's step is mended by the fused optimizer."""
    finding = only(loop(waiting("optimizer.step()", Wait.ITEM, phase=Phase.OPTIMIZER)))
    assert (finding.id, finding.what) == ("MPS201", "The optimizer read a value back once a step.")
    assert finding.fix == "Pass `fused=True` to the optimizer, and the learning rate as a Python number."


@pytest.mark.parametrize(
    ("source", "via"),
    [
        ("print(loss)", "torch/_tensor_str.py:_str_intern"),
        ("text = f'{loss:.3f}'", "torch/_tensor.py:__format__"),
        ("print('loss', loss.item())", ""),
        ("logger.info('loss %f', loss.item())", ""),
        ("wandb.log({'loss': loss.item()})", ""),
        ("bar.set_postfix(loss=float(loss))", ""),
    ],
)
def test_tensor_printed_in_every_step(source: str, via: str) -> None:
    """MPS202: showing a tensor, told by the torch function that reads it or by the line's own words."""
    finding = only(loop(waiting(source, Wait.ITEM, via=via)))
    assert (finding.id, finding.what) == ("MPS202", "Showing a tensor made the host wait once a step.")


@pytest.mark.parametrize("source", ["log.append(loss.item())", "x = torch.log(loss.item())", "blueprint(loss.item())"])
def test_lines_that_only_look_like_logging(source: str) -> None:
    """MPS202 does not fire for words that merely resemble a log."""
    assert ids(loop(waiting(source, Wait.ITEM))) == ["MPS201"]


def test_printing_is_one_finding_a_line() -> None:
    """MPS202: printing reads in several ways at once, which is one finding."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for via, kind in (
            ("_str_intern", Wait.COPY_TO_CPU),
            ("__init__", Wait.INSIDE_OPERATOR),
            ("__init__", Wait.ITEM),
        ):
            waiting("print(x)", kind, via=f"torch/_tensor_str.py:{via}")(builder, step, time)

    finding = only(loop(extra))
    assert (finding.id, finding.count, finding.per_step) == ("MPS202", 30, 3.0)


def test_operator_that_reads_back_inside() -> None:
    """MPS203: why the operator waits comes from the rules of the recorded torch, the fix from the operator."""
    source = "x = x[mask]"
    extra = waiting(source, Wait.INSIDE_OPERATOR, operator="aten::nonzero", phase=Phase.FORWARD)
    finding = only(loop(extra))
    assert finding.id == "MPS203"
    assert finding.what == (
        "`aten::nonzero` made the host wait (the number of non-zero elements sizes the result) once a step."
    )
    assert finding.fix == (
        "Keep the mask instead of indexing: a sum is `torch.where(mask, x, 0).sum()`, a mean is that divided by "
        "`mask.sum()`."
    )
    assert find(loop(extra, meta={}))[0].what == "`aten::nonzero` made the host wait once a step."
    rare = waiting(source, Wait.INSIDE_OPERATOR, operator="aten::nonzero", every=5)
    assert find(loop(rare)) == []


def test_copy_to_cpu_in_every_step() -> None:
    """MPS204: a blocking copy to the CPU in the loop; one that does not block is none."""
    finding = only(loop(waiting("out.append(y.cpu())", Wait.COPY_TO_CPU)))
    assert (finding.id, finding.cost_ns) == ("MPS204", (1_000_000, 4_800_000))
    assert finding.what == "A blocking copy to the CPU of 0 bytes on average made the host wait once a step."

    def non_blocking(builder: RecordingBuilder, step: int, time: int) -> None:
        builder.entry(
            COPY, start_ns=time, fate=Fate.COPY, direction=Direction.MPS_TO_CPU, flags=Flag.NON_BLOCKING,
            site=builder.site("train.py", 22, "main", "out.append(y.to('cpu', non_blocking=True))"),
        )  # fmt: skip

    assert find(loop(non_blocking)) == []


def test_event_and_empty_cache_in_every_step() -> None:
    """MPS206: an event or an emptied cache in the loop, each with its own words."""
    event = only(loop(waiting("start.elapsed_time(end)", Wait.EVENT)))
    cache = only(loop(waiting("torch.mps.empty_cache()", Wait.EMPTY_CACHE)))
    assert (event.id, event.what) == ("MPS206", "Waiting for an event made the host wait once a step.")
    assert (cache.id, cache.what) == ("MPS206", "empty_cache() made the host wait once a step.")
    assert event.fix != cache.fix
    assert find(loop(waiting("torch.mps.empty_cache()", Wait.EMPTY_CACHE, every=4))) == []


def test_different_waits_at_one_line() -> None:
    """A line with two kinds of wait has a finding of each."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        waiting("y = x.cpu(); z = x.sum().item()", Wait.ITEM)(builder, step, time)
        waiting("y = x.cpu(); z = x.sum().item()", Wait.COPY_TO_CPU)(builder, step, time + 1)

    assert ids(loop(extra)) == ["MPS204", "MPS201"]


def test_waits_without_a_line() -> None:
    """Waits whose line is unknown are told by operator, without a place."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for kind in (Wait.ITEM, Wait.SYNCHRONIZE):
            wait(builder, time, 0, kind)

    findings = find(loop(extra))
    assert [(finding.id, finding.site.known) for finding in findings] == [("MPS201", False), ("MPS205", False)]


# MPS3xx


def drawing(*phases: Phase, operator: str = "aten::bernoulli_.float", backward_line: int = 9) -> Extra:
    """A draw in certain phases of every step, at line 9, in backward at `backward_line`."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        for phase in phases if step >= 0 else ():
            line = backward_line if phase is Phase.BACKWARD else 9
            builder.entry(
                operator, start_ns=time, phase=phase, module=builder.module("net.drop", "Dropout"),
                site=builder.site("model.py", line, "block", "return self.drop(self.a(x))"),
            )  # fmt: skip

    return extra


@pytest.mark.parametrize("operator", ["aten::bernoulli_.float", "aten::native_dropout", "aten::uniform_"])
def test_checkpoint_that_draws_again(operator: str) -> None:
    """MPS663: a line that draws in the forward pass and in backward is a checkpoint's recomputation."""
    finding = only(loop(drawing(Phase.FORWARD, Phase.BACKWARD, operator=operator)))
    assert (finding.id, finding.severity, finding.site.line, finding.count) == ("MPS663", Severity.WARNING, 9, 20)
    assert finding.what == (
        f"`{operator}` in module net.drop drew in the forward pass and again, different numbers, in backward "
        "(20 times in all)."
    )


def test_draws_that_no_checkpoint_makes() -> None:
    """Draws in one of the two phases, or at different lines, or of operators that draw nothing, are no finding."""
    both = (Phase.FORWARD, Phase.BACKWARD)
    for extra in (
        drawing(Phase.FORWARD),
        drawing(Phase.BACKWARD),
        drawing(*both, backward_line=30),
        drawing(*both, operator="aten::add.Tensor"),
    ):
        assert ids(loop(extra)) == []


# order and registry


def test_order_of_findings() -> None:
    """Errors first, then the costliest; the finding without cost of its severity last."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        waiting("total += loss.item()", Wait.ITEM)(builder, step, time)
        falling_back()(builder, step, time + 1)
        if step < 0:
            falling_back("aten::mode")(builder, 0, 0)
            builder.refusal(RefusalKind.DTYPE, "TypeError", "no", operator="aten::mm", start_ns=0)

    assert ids(loop(extra)) == ["MPS302", "MPS102", "MPS201", "MPS103"]


# MPS7xx


def unsafe(finding: str, operator: str, *, site: int, copy: int, wait: int, times: int = 1) -> Recording:
    """A recording whose copies were touched too early, `times` times; lines of train.py, 0 for none."""
    builder = RecordingBuilder(meta={"torch_version": "2.12.0"})

    def line(number: int) -> int:
        return builder.site("train.py", number, "main", f"line {number}") if number else 0

    for start in range(times):
        builder.entry(
            f"anymps::copy.{finding} {operator}", start_ns=start, fate=Fate.MARK, flags=Flag.UNSAFE_COPY,
            site=line(site), sequence=line(wait) << 32 | line(copy),
        )  # fmt: skip
    return builder.close()


def test_a_source_changed_unseen() -> None:
    """MPS701 stands at the copy where no operator changed its source, and says if nothing waited."""
    finding = only(unsafe("MPS701", "", site=10, copy=10, wait=0))
    assert (finding.site.line, finding.related_sites) == (10, ())
    assert finding.what == ("The source of this copy was changed once outside of torch's operators, before any wait.")


def test_a_freed_source() -> None:
    """MPS702 stands at the copy; it holds up to torch 2.12 only."""
    finding = only(unsafe("MPS702", "", site=10, copy=10, wait=14))
    assert (finding.id, finding.site.line) == ("MPS702", 10)
    assert finding.what == "The source of this copy was freed once before the next wait, at train.py:14."
    assert not RULES["MPS702"].applies("2.13.0")


@pytest.mark.parametrize(
    ("file", "line", "is_at"), [("a.py", 7, True), ("a.py", 6, True), ("a.py", 8, False), ("b.py", 7, False)]
)
def test_a_change_elsewhere_is_told_as_such(file: str, line: int, is_at: bool) -> None:
    """A fix says "write this" of the finding's own statement alone, which may begin above its line."""
    assert _is_at(CodeChange(file, line, 1, "x", "y"), Site("a.py", 7)) is is_at
    assert not _is_at(None, Site("a.py", 7))


@pytest.mark.parametrize(
    ("torch", "names", "what", "fix"),
    [
        (
            "2.13.0", ("PYTORCH_MPS_LOG_LEVEL",),
            "`PYTORCH_MPS_LOG_LEVEL` is set, but no release of torch up to 2.15 reads this variable.",
            "Leave it out.",
        ),
        (
            "2.13.0", ("PYTORCH_ENABLE_MPS_F16_CONV",),
            "`PYTORCH_ENABLE_MPS_F16_CONV` is set, but no release of torch up to 2.15 reads this variable.",
            "Leave it out.",
        ),
        (
            "2.13.0", ("PYTORCH_MPS_FALLBACK", "PYTORCH_MPS_HIGH_WATERMARK"),
            "`PYTORCH_MPS_FALLBACK` is set, but no release of torch up to 2.15 reads this variable; "
            "`PYTORCH_MPS_HIGH_WATERMARK` is set, but no release of torch up to 2.15 reads this variable.",
            "Write `PYTORCH_ENABLE_MPS_FALLBACK` for `PYTORCH_MPS_FALLBACK` and `PYTORCH_MPS_HIGH_WATERMARK_RATIO` for "
            "`PYTORCH_MPS_HIGH_WATERMARK`, if you meant that, or leave it out.",
        ),
        (
            "2.13.0", ("PYTORCH_MPS_METAL_VERSION", "PYTORCH_MPS_FAST_MATH"),
            "`PYTORCH_MPS_METAL_VERSION` is set, but torch reads it from 2.15 on.",
            "Leave it out.",
        ),
    ],
)  # fmt: skip
def test_variables_that_torch_does_not_read(torch: str, names: tuple[str, ...], what: str, fix: str) -> None:
    """MPS413: one finding for all, with the names that are like theirs."""
    finding = only(loop(meta={"torch_version": torch, "environment": dict.fromkeys(names, "1")}))
    assert (finding.id, finding.site.known, finding.what, finding.fix) == ("MPS413", False, what, fix)


@pytest.mark.parametrize("name", ["PYTORCH_MPS_FAST_MATH", "PYTORCH_ALLOC_CONF"])
def test_variables_that_are_read_or_are_not_of_mps(name: str) -> None:
    """MPS413 is silent about them."""
    assert ids(loop(meta={**TORCH, "environment": {name: "1"}})) == []


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("benchmark", "Leave it out."),
        (
            "deterministic",
            "Leave it out. On mps, `torch.manual_seed` seeds, and a few operators go by "
            "`torch.use_deterministic_algorithms(True)`.",
        ),
    ],
)
def test_settings_that_the_backend_does_not_have(name: str, fix: str) -> None:
    """MPS414 stands at the line that sets one."""

    def extra(builder: RecordingBuilder, step: int, time: int) -> None:
        if step == 0:
            line = builder.site("train.py", 5, "main", f"torch.backends.mps.{name} = True")
            builder.note("backend_attribute", start_ns=time, site=line, name=name)

    finding = only(loop(extra))
    assert (finding.id, finding.site.line, finding.fix) == ("MPS414", 5, fix)
    assert finding.what == f"`torch.backends.mps.{name}` is set, and torch has no such setting."
