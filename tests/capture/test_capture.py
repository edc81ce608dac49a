"""Recording on the virtual device: steps, phases, modules, lines forward and backward, waits, copies and refusals."""

from __future__ import annotations

import copy
import itertools
import threading
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import anymps
from anymps.record import Call, Category, Direction, Fate, Phase, Recording, RefusalKind, Wait
from anymps.rules import device_checks
from noted import line_of
from processes import run_python
from recordings import rows

pytestmark = pytest.mark.usefixtures("virtual_device")

HERE = __file__


class Inner(nn.Module):
    """A layer and a function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))  # tanh and, through torch's module, linear


class Net(nn.Module):
    """Two of them in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Inner(), Inner())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x).exp()


def train(steps: int, *, read: bool = False) -> None:
    """A plain training loop on mps with a data loader."""
    torch.manual_seed(0)
    model = Net().to("mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(4 * steps, 4), batch_size=4)
    for batch in data:
        loss = model(batch.to("mps")).sum()  # forward of the step
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if read:
            loss.item()


def calls_of(recording: Recording) -> list[tuple[str, Call]]:
    """The calls with the names of their operators."""
    return [(recording.signature(call.signature).operator, call) for call in recording.calls()]


@pytest.mark.parametrize("source", ["native", "observer"])
def test_no_phase_is_left_where_a_recording_ends_in_a_step(source: str) -> None:
    """A recording that ends inside of an optimizer's step, or of its closure, leaves the next one as it should be."""
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def closure() -> torch.Tensor:
        capture.__exit__(None, None, None)
        return weight.sum()

    capture = anymps.record(source=source).__enter__()
    optimizer.step(closure)
    with anymps.record(source=source) as after:
        torch.ones(2).to("mps")
    assert [call.phase for name, call in calls_of(after.recording) if name == "aten::copy_"] == [Phase.MOVE]


def test_phases_of_a_step() -> None:
    """Batch, move, forward, backward, optimizer and the read of the loss are told apart."""
    with anymps.record() as capture:
        train(4, read=True)
    by_phase: dict[Phase, set[str]] = {}
    for operator, call in calls_of(capture.recording):
        if call.step == 2:
            by_phase.setdefault(Phase(call.phase), set()).add(operator)
    assert by_phase[Phase.BATCH] == {"anymps::dataloader"}
    assert by_phase[Phase.MOVE] == {"aten::copy_"}
    assert {"aten::linear", "aten::tanh", "aten::exp", "aten::sum.dim_IntList"} <= by_phase[Phase.FORWARD]
    assert {"aten::linear_backward", "aten::tanh_backward"} <= by_phase[Phase.BACKWARD]
    assert by_phase[Phase.OPTIMIZER] == {"aten::add_.Tensor"}
    assert by_phase[Phase.LOSS_READ] == {"aten::_local_scalar_dense"}


def test_module_paths_and_lines_of_forward_and_backward() -> None:
    """A backward operator has module and line of its forward, though it runs on the engine's own thread."""
    with anymps.record() as capture:
        train(2)
    recording = capture.recording
    found = {
        (name, recording.module(call.module), recording.site(call.site).file_line)
        for name, call in calls_of(recording)
        if name.startswith(("aten::linear", "aten::tanh"))
    }
    line = line_of(Inner.forward, "tanh and, through torch's module, linear")
    blocks = ("Net.blocks.0", "Net.blocks.1")
    made_by = {"linear": ".layer", "linear_backward": ".layer", "tanh": "", "tanh_backward": ""}
    assert found == {
        (f"aten::{name}", f"{block}{inner}", (HERE, line)) for name, inner in made_by.items() for block in blocks
    }


def test_a_gradient_of_a_gradient_has_the_lines_of_the_forward() -> None:
    """What `create_graph=True` puts into the graph runs in a later backward, at the line that it belongs to."""
    x = torch.ones(3, device="mps", requires_grad=True)
    with anymps.record() as capture:
        y = x.tanh().sum()  # forward
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        first.sum().backward()
    recording = capture.recording
    lines = {recording.site(call.site).line for name, call in calls_of(recording) if name == "aten::tanh_backward"}
    made = {recording.site(call.site).line for name, call in calls_of(recording) if name == "aten::mul.Tensor"}
    assert lines == made == {line_of(test_a_gradient_of_a_gradient_has_the_lines_of_the_forward, "forward")}


def in_a_thread(function: Callable[[], None]) -> None:
    """Run it in a thread of its own, to the end."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_graphs_of_two_threads_keep_their_lines() -> None:
    """Two graphs whose nodes have the same numbers, as new threads count from zero: a checkpoint's is built so too."""
    losses: dict[str, torch.Tensor] = {}

    def build(name: str, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        losses[name] = call(torch.ones(3, device="mps", requires_grad=True))

    with anymps.record() as capture:
        in_a_thread(lambda: build("tanh", lambda x: x.tanh()))  # first
        in_a_thread(lambda: build("sigmoid", lambda x: x.sigmoid()))  # second
        assert losses["tanh"].grad_fn._sequence_nr() == losses["sigmoid"].grad_fn._sequence_nr()
        for loss in losses.values():
            loss.backward(torch.ones(3, device="mps"))
    recording = capture.recording
    found = {name: recording.site(call.site).line for name, call in calls_of(recording) if name.endswith("_backward")}
    here = test_graphs_of_two_threads_keep_their_lines
    assert found == {
        "aten::tanh_backward": line_of(here, "first"),
        "aten::sigmoid_backward": line_of(here, "second"),
    }


class Twice(nn.Module):
    """One layer, called on two lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)  # once
        return self.layer(x)  # again


@pytest.mark.parametrize("source", ["native", "observer"])
def test_a_module_called_twice_has_the_line_of_each_call(source: str) -> None:
    """Within another module and outside of all, in the first step and in later ones, which look no line up."""
    inner, outer = Twice().to("mps"), nn.Linear(4, 4).to("mps")
    optimizer = torch.optim.SGD(inner.parameters())
    x = torch.ones(2, 4, device="mps")
    with anymps.record(source=source) as recorder:
        for _ in range(3):
            inner(x)
            outer(x)  # here
            outer(x)  # there
            optimizer.step()
    lines = {
        line_of(Twice.forward, "once"),
        line_of(Twice.forward, "again"),
        line_of(test_a_module_called_twice_has_the_line_of_each_call, "here"),
        line_of(test_a_module_called_twice_has_the_line_of_each_call, "there"),
    }
    counted = {line.line: line.on_mps for line in recorder.recording.lines() if line.file == HERE and line.on_mps}
    assert counted == dict.fromkeys(lines, 3)


@pytest.mark.parametrize("source", ["native", "observer"])
def test_a_deep_copy_is_at_the_line_that_asks_for_it(source: str) -> None:
    """Python's copy module lies between the line and torch, and is nobody's own code."""
    layer = torch.nn.Linear(2, 2).to("mps")
    with anymps.record(source=source) as capture:
        copy.deepcopy(layer)  # here
    line = line_of(test_a_deep_copy_is_at_the_line_that_asks_for_it, "here")
    assert [(each.file, each.line) for each in capture.recording.lines() if each.on_mps] == [(HERE, line)]


def test_bare_allocations_have_the_line_that_made_them(tmp_path: Path) -> None:
    """No operator of theirs is on the tape; the next one, on another line, does not take their buffers over."""
    with anymps.record(tmp_path / "run") as recorder:
        kept = [
            torch.empty(1000, device="mps"),  # plain
            torch.empty_strided((10, 200), (200, 1), device="mps"),  # strided
            torch.empty_like(torch.ones(3000, device="mps")),  # like
        ]
        kept.append(torch.zeros(4000, device="mps"))  # filled
        kept.append(torch.empty(5000, device="mps"))  # last
    here = test_bare_allocations_have_the_line_that_made_them
    expected = {
        4000: ("plain", "aten::empty.memory_format"),
        8000: ("strided", "aten::empty_strided"),
        12000: ("like", "aten::empty_strided"),
        16000: ("filled", "aten::zero_"),  # composed of both: the kernel that fills it, as before
        20000: ("last", "aten::empty.memory_format"),
    }
    made = {
        one.requested: (one.site.line, one.operator)
        for one in recorder.recording.memory_story.allocations
        if one.died is None
    }
    assert made == {size: (line_of(here, remark), operator) for size, (remark, operator) in expected.items()}
    assert len(kept) == len(expected)


def test_copies_and_waits() -> None:
    """Each copy has its direction and bytes; a blocking one is a wait, a non-blocking one is not."""
    source = torch.zeros(256)
    with anymps.record() as capture:
        there = source.to("mps")
        there.cpu()
        source.to("mps", non_blocking=True)
        there.sum().item()
        torch.mps.synchronize()
    copies = [(copy.direction.label, copy.wait, copy.blocking, copy.moved_bytes) for copy in capture.recording.copies()]
    assert sorted(copies) == [
        ("cpu to mps", Wait.NONE, False, 1024),
        ("cpu to mps", Wait.COPY_TO_MPS, True, 1024),
        ("mps to cpu", Wait.ITEM, True, 4),
        ("mps to cpu", Wait.COPY_TO_CPU, True, 1024),
    ]
    assert {wait.wait for wait in capture.recording.waits()} == {
        Wait.COPY_TO_MPS,
        Wait.COPY_TO_CPU,
        Wait.ITEM,
        Wait.SYNCHRONIZE,
    }


@pytest.mark.parametrize("source", ["native", "observer"])
def test_copies_of_both_directions_have_their_own_signatures(source: str) -> None:
    """Of equal sizes and dtypes, which tensor lies on the CPU is that of each copy."""
    with anymps.record(source=source) as capture:
        there = torch.zeros(256).to("mps")
        there.cpu()
    calls, signature = calls_of(capture.recording), capture.recording.signature
    copies = [(call.direction, signature(call.signature).inputs) for name, call in calls if name == "aten::copy_"]
    on_cpu, on_mps = "float32[256] on cpu", "float32[256]"
    assert copies == [(Direction.CPU_TO_MPS, (on_cpu, on_mps)), (Direction.MPS_TO_CPU, (on_mps, on_cpu))]


def test_operators_that_wait_inside() -> None:
    """nonzero and what is built on it read a size back; the line that calls them is known."""
    x = torch.tensor([1.0, 0.0, 2.0], device="mps")
    with anymps.record() as capture:
        x[x > 0]  # mask
        torch.nonzero(x)  # nonzero
        torch.unique(x)  # unique
    waits = [wait for wait in capture.recording.waits() if wait.wait is Wait.INSIDE_OPERATOR]
    lines = {wait.site.line for wait in waits}
    assert {line_of(test_operators_that_wait_inside, text) for text in ("mask", "nonzero", "unique")} == lines


@dataclass
class Pair:
    """Python writes its comparison, in a file that it calls `<string>`."""

    first: torch.Tensor
    second: float


@pytest.mark.parametrize("source", ["native", "observer"])
def test_a_wait_in_generated_code_stands_at_its_caller(source: str) -> None:
    """What a dataclass's own method or an `exec` reads is told where the program calls it."""
    one, other = Pair(torch.ones(1, device="mps"), 1.0), Pair(torch.ones(1, device="mps"), 1.0)
    with anymps.record(source=source) as capture:
        assert one == other  # compares
        exec("one.first.item()")  # executes
    this = test_a_wait_in_generated_code_stands_at_its_caller
    waits = [(wait.site.file, wait.site.line) for wait in capture.recording.waits()]
    assert waits == [(HERE, line_of(this, "compares")), (HERE, line_of(this, "executes"))]


def test_a_wait_in_a_program_without_a_file(tmp_path: Path) -> None:
    """Where nothing further out is the program's, as in `python -c`, the line of the text itself is told."""
    answer = run_python(
        """
        import torch, anymps
        anymps.enable(quiet=True)
        with anymps.record() as capture:
            torch.ones(1, device="mps").item()
        (wait,) = capture.recording.waits()
        print(wait.site.file, wait.site.line)
        """
    )
    assert answer.lines == ["<string> 5"]


@pytest.mark.parametrize("source", ["native", "observer"])
def test_a_wait_in_an_assertion_of_unittest_stands_at_its_caller(source: str) -> None:
    """The line is the test's; that an assertion read the value is kept beside it."""
    assert_greater, small = unittest.TestCase().assertGreater, torch.ones(1, device="mps")
    with anymps.record(source=source) as capture:
        assert_greater(small, 0)  # asserts
    (wait,) = capture.recording.waits()
    this = test_a_wait_in_an_assertion_of_unittest_stands_at_its_caller
    assert (wait.site.file, wait.site.line) == (HERE, line_of(this, "asserts"))
    assert wait.site.via == "unittest/case.py:assertGreater"


def test_missing_operator_is_noted() -> None:
    """An operator without a kernel leaves a refusal with the real text, also when the script catches it."""
    x = torch.ones(2, device="mps")
    with anymps.record() as capture, pytest.raises(NotImplementedError) as raised:
        torch.mode(x)
    (refusal,) = capture.recording.refusals()
    assert (refusal.kind.value, refusal.operator, refusal.message) == ("missing", "aten::mode", str(raised.value))


def test_entries_beyond_the_limit_are_counted() -> None:
    """Past the detail limit operators only count, waits keep their detail, and the recording says what was dropped."""
    from anymps.capture._recorder import Capture

    x = torch.ones(2, device="mps")
    with Capture(detail_limit=10) as capture:
        for _ in range(30):
            x + 1
        x.sum().item()
    recording = capture.recording
    uses = {use.name: use.count for use in recording.operators() if use.fate is Fate.NATIVE}
    assert uses["aten::add.Tensor"] == 30
    assert recording.dropped > 0
    assert [wait.wait for wait in recording.waits()] == [Wait.ITEM]


def test_buffers_beyond_the_limit_leave_the_part_before_them_whole() -> None:
    """What was there when the limit was reached is kept, a model above all, and later buffers are not."""
    from anymps.capture._recorder import Capture

    with Capture(allocation_limit=10) as capture:
        held = torch.ones(1000, device="mps")
        for _ in range(30):
            held + 1
        del held
        late = torch.ones(5000, device="mps")
    story = capture.recording.memory_story
    assert story.dropped
    assert story.peak is not None
    assert [one.requested for one in story.peak.alive] == [4000, 4000]
    assert story.peak.by_category[Category.BEFORE] == 0
    assert late.numel() not in [one.requested // 4 for one in story.allocations]


def test_a_bad_index_is_recorded_with_both_lines() -> None:
    """A delayed error has the line of the bad call and the line where it came out; a second one has no such line."""
    x, bad = torch.ones(3, device="mps"), torch.tensor([7], device="mps")

    def use() -> None:
        x[bad]  # bad
        x[bad]  # lost
        x.sum().item()  # late

    with anymps.record() as capture, pytest.raises(torch.AcceleratorError):
        use()
    first, second = capture.recording.refusals()
    assert (RefusalKind.INDEX, "AcceleratorError", "aten::index.Tensor") == (first.kind, first.error, first.operator)
    assert (line_of(use, "bad"), line_of(use, "late")) == (first.site.line, first.origin.line)
    assert (line_of(use, "lost"), False) == (second.site.line, second.origin.known)
    assert 2 == sum(used.count for used in capture.recording.operators() if used.name == "aten::index.Tensor")


@pytest.mark.parametrize(
    ("call", "kind", "operator"),
    [
        (
            lambda: torch.linalg.lu_factor(torch.eye(2, device="mps"), pivot=False),
            RefusalKind.ARGUMENT,
            "aten::linalg_lu_factor_ex",
        ),
        (
            lambda: nn.functional.adaptive_avg_pool2d(torch.ones(1, 1, 5, 5, device="mps"), 3),
            RefusalKind.ARGUMENT,
            "aten::_adaptive_avg_pool2d",
        ),
        (
            lambda: nn.functional.embedding(torch.tensor([7], device="mps"), torch.ones(3, 2, device="mps")),
            RefusalKind.ARGUMENT if device_checks(torch.__version__)["index_select"][1] == "" else RefusalKind.INDEX,
            "aten::index_select",
        ),
    ],
)
def test_limits_of_operators_are_recorded(call: Callable[[], object], kind: RefusalKind, operator: str) -> None:
    """What a kernel refuses for its arguments is a refusal like any other, with its line and one entry."""
    with anymps.record() as capture:
        try:
            call()
            torch.mps.synchronize()  # a bad index comes out here, not in another test
        except (RuntimeError, IndexError):
            pass
    (refusal,) = capture.recording.refusals()
    assert (kind, operator, HERE) == (refusal.kind, refusal.operator, refusal.site.file)


def test_threads_are_told_apart(tmp_path: Path) -> None:
    """Several threads may record at once; no entry is lost, and each carries its thread."""
    x = torch.ones(8, device="mps")

    def work() -> None:
        for _ in range(200):
            x * 2

    with anymps.record(tmp_path / "run.anymps"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = rows(tmp_path / "run.anymps", "SELECT thread, count(*) FROM entries GROUP BY thread")
    assert sorted(count for _, count in counts) == [200, 200, 200, 200]


def test_no_two_threads_write_into_one_piece_of_the_tape(tmp_path: Path) -> None:
    """A full one that was read may be another thread's next: in what is read, entries of a thread stay together."""
    turn, over = threading.Event(), threading.Event()
    x, y = (torch.ones(1, device="mps") for _ in range(2))

    def other() -> None:
        for _ in range(3):
            turn.wait()
            turn.clear()
            torch.abs(y)
            over.set()

    thread = threading.Thread(target=other)
    with anymps.record(tmp_path / "run.anymps", source="native") as capture, capture._lock:  # nothing else reads it
        core = capture.core
        core.tape_drain(0)
        torch.abs(x)
        while core.tape_pending() % 4096:
            torch.abs(x)
        core.tape_drain(0)
        thread.start()
        for _ in range(3):
            turn.set()
            over.wait()
            over.clear()
            torch.abs(x)
        packed, *_ = core.tape_drain(0)
        thread.join()
    writers = [int.from_bytes(packed[start + 48 : start + 52], "little") for start in range(0, len(packed), 64)]
    assert len(writers) == 6
    assert [len([*run]) for _, run in itertools.groupby(writers)] == [3, 3]


def test_a_machine_without_room_for_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is recorded is written at the end."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with anymps.record(tmp_path / "run.anymps"):
        torch.ones(8, device="mps") * 2
    assert rows(tmp_path / "run.anymps", "SELECT count(*) FROM entries") == [(2,)]
