"""Recording by an observer, as on a real Mac: what it must leave as it was, and what only it has to find out."""

from __future__ import annotations

import inspect
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode

import anymps
from anymps.capture.observer import kind_of
from anymps.commands._target import _without_watchers
from anymps.device._real_mac import mac_named
from anymps.mac import parse_mac
from anymps.record import RefusalKind, Wait
from anymps.rules.texts import SAME_GPU_CHECKS, float64_allocation, missing_operator, tensor_on_cpu
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")


def line_here(offset: int = 0) -> int:
    """The line that calls this, plus `offset`."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + offset


def test_what_a_mode_of_the_script_calls_again_is_one_call() -> None:
    """A dispatch mode is asked first, and what it calls in turn reaches the device: each operator is written once."""

    class Counting(TorchDispatchMode):
        names: ClassVar[list[str]] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, device="mps")
    with anymps.record(source="observer") as capture, Counting():
        torch.tanh(x) + 1
    counts = {use.name: use.count for use in capture.recording.operators()}
    assert counts == {"aten::tanh": 1, "aten::add.Tensor": 1}
    assert Counting.names == ["aten::tanh", "aten::add.Tensor"]


def test_what_the_dispatcher_in_python_hands_on_is_one_call() -> None:
    """Python may pick a kernel itself, as Inductor does when it folds constants, or call another operator."""
    x = torch.ones(2, device="mps")
    with anymps.record(source="observer") as capture, enable_python_dispatcher():
        torch.tanh(x)[0].item()
        torch.nn.functional.linear(x, x)
    with anymps.record() as native, enable_python_dispatcher():
        torch.tanh(x)[0].item()
        torch.nn.functional.linear(x, x)
    counts, own = ({use.name: use.count for use in told.recording.operators()} for told in (capture, native))
    assert counts == own
    assert {"aten::tanh", "aten::_local_scalar_dense"} <= counts.keys()


def test_gradients_pass_through_operators_without_a_derivative() -> None:
    """Autograd passes through the fallback of svd, and not into operators that have a derivative."""
    torch.manual_seed(0)
    start = torch.randn(4, 4)
    gradients = []
    for source in ("native", "observer"):
        x = start.to("mps").requires_grad_()
        with anymps.record(source=source), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.linalg.svd(x)[1].sum().backward()
            torch.softmax(x, 0).pow(2).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)


class Doubled(torch.Tensor):
    """A tensor that holds another one, copies itself in its own way, and knows no other operator but `mul`."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Doubled:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten._to_copy.default:
            return cls(args[0].inner.to(kwargs["dtype"]))
        if func is torch.ops.aten.mul.Tensor:
            return args[0].inner * args[1] * 2
        raise AssertionError(f"{func} was not asked for")


def test_tensors_with_a_dispatch_of_their_own() -> None:
    """They are asked for what the script calls, not for the parts of it, and what they call in turn is seen."""
    with anymps.record(source="observer") as capture:
        answer = Doubled(torch.ones(2, device="mps")).to(torch.float16) * 3
    assert answer.tolist() == [6.0, 6.0]
    counts = {use.name: use.count for use in capture.recording.operators()}
    assert (counts["aten::mul.Tensor"], counts["aten::copy_"]) == (2, 1)


def test_threads_and_printing_are_seen() -> None:
    """Every thread is recorded, one that ran before the recording began too, and so is what printing reads."""
    x = torch.ones(2, device="mps")
    go = threading.Event()

    def wait_and_run() -> None:
        go.wait()
        x.cos()

    older = threading.Thread(target=wait_and_run)
    older.start()
    with anymps.record(source="observer") as capture:
        thread = threading.Thread(target=lambda: x.exp())
        thread.start()
        go.set()
        for each in (thread, older):
            each.join()
        repr(x)
    assert {"aten::exp", "aten::cos"} <= {use.name for use in capture.recording.operators()}
    assert {wait.wait for wait in capture.recording.waits()} >= {Wait.COPY_TO_CPU}


def test_a_late_error_of_two_possible_calls_stays_at_the_wait() -> None:
    """Two lines gave the device indices since the last wait: the recording does not guess which of them was wrong."""
    x, bad = torch.ones(3, device="mps"), torch.tensor([7], device="mps")
    with anymps.record(source="observer") as capture, pytest.raises(torch.AcceleratorError):
        x[bad]
        x[bad - 6]
        torch.mps.synchronize()
    (refusal,) = capture.recording.refusals()
    assert (refusal.kind, refusal.operator) == (RefusalKind.INDEX, "anymps::wait")
    assert refusal.site.line == refusal.origin.line == line_here(-3)


def test_the_peak_is_that_of_the_books() -> None:
    """The sampled peak is what the allocator itself says, though `torch.mps` reports none."""
    core = anymps.device.native()
    with anymps.record(source="observer") as capture:
        core.reset_peak_memory()
        x = torch.ones(1 << 20, device="mps")
        for _ in range(3):
            x = (x * 2).exp()
        del x
        peak = core.memory_statistics()["allocated"][1]
    assert capture.recording.memory_story.peak.allocated == peak


def test_a_buffer_freed_while_the_tape_is_off_is_kept() -> None:
    """During a pause, and between the end of the tape and that of the file: each with its death."""
    with anymps.record(source="observer") as capture:
        held = {size: torch.empty(size, dtype=torch.uint8, device="mps") for size in (1000, 2000, 3000)}
        capture.core.tape_pause(True)
        del held[1000]
        capture.core.tape_pause(False)
        stop = capture.core.tape_stop

        def stop_and_free() -> None:
            stop()
            del held[2000]

        capture.core.tape_stop = stop_and_free
    story = capture.recording.memory_story
    assert {one.requested: bool(one.died) for one in story.allocations} == {1000: True, 2000: True, 3000: False}


def test_a_wait_lasts_as_long_as_the_host_was_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of `synchronize` is the call's own: on a Mac, what the host waited for the device."""

    def slow() -> None:
        time.sleep(0.01)

    monkeypatch.setattr(torch._C, "_mps_deviceSynchronize", slow)
    with anymps.record(source="observer") as capture:
        torch.mps.synchronize()
    (wait,) = capture.recording.waits()
    assert (wait.wait, wait.count) == (Wait.SYNCHRONIZE, 1)
    assert wait.duration_ns >= 10_000_000


def test_what_a_script_measures_of_the_device_is_kept() -> None:
    """The answers of `elapsed_time` are the only numbers of the device's own: kept with both lines, and no others."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    x = torch.ones(64, 64, device="mps")
    with anymps.record(source="observer") as capture:
        start.record()
        x @ x
        end.record()
        torch.mps.synchronize()
        milliseconds = start.elapsed_time(end)
    (noted,) = capture.recording.noted("device_time")
    assert noted.occurrence.duration_ns == round(milliseconds * 1e6)
    assert (noted.occurrence.site.line, noted.other.line) == (line_here(-3), line_here(-7))


def test_kinds_of_refusals() -> None:
    """The backend's texts tell the kind; an error of any device is none, words of MPS in no table are an argument's."""
    texts = {
        missing_operator("aten::eig", "abc").text: RefusalKind.MISSING,
        float64_allocation().text: RefusalKind.FLOAT64,
        "MPS backend out of memory (MPS allocated: 1 bytes, other allocations: 1 bytes)": RefusalKind.MEMORY,
        "Placeholder storage has not been allocated on MPS device!": RefusalKind.DEVICE,
        "Input type (MPSFloatType) and weight type (MPSHalfType) should be the same": RefusalKind.DTYPE,
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same": RefusalKind.DEVICE,
        "frobnicate: something on MPS is not to its liking": RefusalKind.ARGUMENT,
        "mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)": None,
    }
    same_gpu = tensor_on_cpu(SAME_GPU_CHECKS["mm"], ["mat2"])
    assert same_gpu is not None
    texts[same_gpu.text] = RefusalKind.DEVICE
    assert {text: kind_of(RuntimeError(text)) for text in texts} == texts
    assert kind_of(TypeError(float64_allocation().text), wide_complex=True) is RefusalKind.COMPLEX128


def test_a_traceback_without_the_recording() -> None:
    """What the script sees is the exception itself; what is printed has no frame of the recording."""
    with anymps.record(source="observer"), pytest.raises(RuntimeError) as raised:
        torch.nn.Linear(3, 3).to("mps")(torch.ones(2, 4, device="mps"))
    shown = _without_watchers(raised.value.__traceback__)
    files = [frame.filename for frame in traceback.extract_tb(shown)]
    assert files[0] == __file__
    assert not [file for file in files if "anymps/record" in file]


def test_unknown_source() -> None:
    """A source that there is not is refused by name."""
    with pytest.raises(anymps.EnableError) as raised, anymps.record(source="tape"):
        pass
    assert str(raised.value) == "anymps: source must be 'native' or 'observer', not 'tape'"


def test_a_mac_by_what_it_says_of_itself() -> None:
    """Chip, bytes of memory and macOS are those of the table; one that was never sold is not guessed."""
    assert mac_named("M3 Pro", 18 << 30, "15.4.1") == parse_mac("M3 Pro 18GB, macOS 15.4")
    assert mac_named("M3 Pro", 17 << 30, "15.4") is None
    assert mac_named("", 0, "") is None


def test_a_recording_without_a_device_of_ours() -> None:
    """The recorder is loaded without the virtual device, torch stays as it was (it refuses mps), one source is left."""
    code = """
    import torch, anymps
    from anymps.device import _enable
    _enable._state = _enable.State(False, None, False, torch.__version__)  # what `enable` answers on a Mac
    with anymps.record() as capture:
        x = torch.ones(1, 2, requires_grad=True)
        torch.nn.Linear(2, 2)(x).sum().backward()
        try:
            torch.ones(2, device="mps")
        except Exception as error:
            raised = type(error).__name__
    recording = capture.recording
    print(raised, torch.backends.mps.is_available(), recording.meta["source"], recording.meta["virtual"])
    print([use.name for use in recording.operators()], recording.memory_story.allocations)
    try:
        anymps.record(source="native").__enter__()
    except anymps.EnableError as error:
        print(error)
    """
    first, second, third = run_with_torch(code).lines
    assert first == "NotImplementedError False observer False"
    assert second == "['aten::empty.memory_format'] ()"
    assert third == "anymps: source='native' needs the virtual device; a Mac's own is recorded by 'observer'"


def test_a_mac_without_a_compiler_is_told_how_to_get_one(tmp_path: Path) -> None:
    """A recording there needs the native core."""
    code = """
    import sys, torch, anymps
    from anymps.device import _build, _enable
    _enable._state = _enable.State(False, None, False, torch.__version__)
    _build.find_compiler = lambda: None
    _build.sys = type(sys)("sys")
    _build.sys.platform = "darwin"
    try:
        anymps.record().__enter__()
    except anymps.BuildError as error:
        print(error)
    """
    assert run_with_torch(code, {"ANYMPS_CACHE_DIR": str(tmp_path)}).lines == [
        "no C++ compiler was found to build the native core with: install the command line tools (xcode-select "
        "--install), or name a compiler in CXX"
    ]
