"""Recording by a dispatch mode, as on a real Mac: what it must leave as it was, and what only it has to find out."""

from __future__ import annotations

import inspect
import sys
import threading
import time
import traceback
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import anymps
from anymps.capture.dispatch._refusals import kind_of
from anymps.commands._target import _without_watchers
from anymps.device._real_mac import mac_named
from anymps.mac import parse_mac
from anymps.record import Fate, Phase, RefusalKind, Wait
from anymps.rules.texts import SAME_GPU_CHECKS, float64_allocation, missing_operator, out_of_memory, tensor_on_cpu
from processes import run_python

pytestmark = pytest.mark.usefixtures("virtual_device")


def line_here(offset: int = 0) -> int:
    """The line that calls this, plus `offset`."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + offset


def test_everything_is_put_back() -> None:
    """After a recording torch and Python have their own functions again, and no mode is left."""

    def functions() -> list[object]:
        return [
            torch._C._mps_deviceSynchronize,
            torch._C._mps_emptyCache,
            torch._C._accelerator_synchronizeDevice,
            torch._tensor_str._str_intern,
            torch.compile,
            torch.nn.Module.__call__,
            torch.Tensor.numpy,
            threading.Thread.start,
            warnings.showwarning,
        ]

    before = functions()
    with anymps.record(source="dispatch"):
        assert functions() != before
        torch.ones(2, device="mps").to("cpu", non_blocking=True)
    assert functions() == before
    assert _get_current_dispatch_mode_stack() == []


def test_a_mode_of_the_script_is_left_alone() -> None:
    """A mode that the script has entered and not yet left stays, and ours under it does nothing any more."""

    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += 1
            return func(*args, **(kwargs or {}))

    capture = anymps.record(source="dispatch")
    capture.__enter__()
    counting = Counting()
    counting.__enter__()
    capture.close({"status": 0})
    try:
        torch.ones(2, device="mps") + 1
    finally:
        counting.__exit__(None, None, None)
        mode = _get_current_dispatch_mode_stack()[-1]
        mode.__exit__(None, None, None)
    assert counting.count > 0
    assert capture.recording.operators() == ()


def test_gradients_pass_through_operators_without_a_derivative() -> None:
    """Autograd passes through the fallback of svd, with a mode as without; and not into operators that have one."""
    torch.manual_seed(0)
    start = torch.randn(4, 4)
    gradients = []
    for source in ("native", "dispatch"):
        x = start.to("mps").requires_grad_()
        with anymps.record(source=source), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.linalg.svd(x)[1].sum().backward()
            torch.softmax(x, 0).pow(2).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)


def test_backward_has_the_line_and_module_of_its_forward() -> None:
    """On the autograd engine's thread too, where the mode goes along."""
    layer = torch.nn.Linear(3, 3).to("mps")
    with anymps.record(source="dispatch") as capture:
        layer(torch.ones(2, 3, device="mps")).tanh().sum().backward()
        line = line_here(-1)
    recording = capture.recording
    found = {
        name: (phase, site_line, module)
        for name, phase, site_line, module in recording._file._connection.execute(
            "SELECT o.name, e.phase, t.line, m.path FROM entries e JOIN signatures s ON s.id = e.signature "
            "JOIN operators o ON o.id = s.operator JOIN sites t ON t.id = e.site JOIN modules m ON m.id = e.module"
        )
    }
    assert found["aten::tanh_backward"] == (Phase.BACKWARD, line, "")
    assert found["aten::linear_backward"] == (Phase.BACKWARD, line, "Linear")


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
    with anymps.record(source="dispatch") as capture:
        answer = Doubled(torch.ones(2, device="mps")).to(torch.float16) * 3
    assert answer.tolist() == [6.0, 6.0]
    counts = {use.name: use.count for use in capture.recording.operators()}
    assert (counts["aten::mul.Tensor"], counts["aten::copy_"]) == (2, 1)


def test_threads_and_printing_are_seen() -> None:
    """A thread that starts while a recording runs is recorded, and so is what printing a tensor reads."""
    x = torch.ones(2, device="mps")
    with anymps.record(source="dispatch") as capture:
        thread = threading.Thread(target=lambda: x.exp())
        thread.start()
        thread.join()
        repr(x)
    assert "aten::exp" in {use.name for use in capture.recording.operators()}
    assert {wait.wait for wait in capture.recording.waits()} >= {Wait.COPY_TO_CPU}


def test_a_fallback_inside_a_kernel_is_told_by_its_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's warning of an operator that no call had is an entry of its own, and is shown all the same."""
    text = (
        "The operator 'aten::mode' is not currently supported on the MPS backend and will fall back to run on the CPU. "
        "This may have performance implications."
    )
    shown: list[str] = []

    def show(message: Warning | str, *_: object, **__: object) -> None:
        shown.append(str(message))

    monkeypatch.setattr(warnings, "showwarning", show)
    with anymps.record(source="dispatch") as capture:
        warnings.showwarning(UserWarning(text), UserWarning, __file__, 1)
    assert shown == [text]
    (fallback,) = capture.recording.fallbacks()
    assert (fallback.operator, fallback.fate) == ("aten::mode", Fate.FALLBACK)


def test_a_late_error_of_two_possible_calls_stays_at_the_wait() -> None:
    """Two lines gave the device indices since the last wait: the recording does not guess which of them was wrong."""
    x, bad = torch.ones(3, device="mps"), torch.tensor([7], device="mps")
    with anymps.record(source="dispatch") as capture, pytest.raises(torch.AcceleratorError):
        x[bad]
        x[bad - 6]
        torch.mps.synchronize()
    (refusal,) = capture.recording.refusals()
    assert (refusal.kind, refusal.operator) == (RefusalKind.INDEX, "anymps::wait")
    assert refusal.site.line == refusal.origin.line == line_here(-3)


def test_the_peak_is_that_of_the_books() -> None:
    """The sampled peak is what the allocator itself says, though `torch.mps` reports none."""
    core = anymps.device.native()
    with anymps.record(source="dispatch") as capture:
        core.reset_peak_memory()
        x = torch.ones(1 << 20, device="mps")
        for _ in range(3):
            x = (x * 2).exp()
        del x
        peak = core.memory_statistics()["allocated"][1]
    assert capture.recording.memory_story.peak.allocated == peak


def test_a_buffer_freed_while_the_tape_is_off_is_kept() -> None:
    """During a pause, and between the end of the tape and that of the file: each with its death."""
    with anymps.record(source="dispatch") as capture:
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
    with anymps.record(source="dispatch") as capture:
        torch.mps.synchronize()
    (wait,) = capture.recording.waits()
    assert (wait.wait, wait.count) == (Wait.SYNCHRONIZE, 1)
    assert wait.duration_ns >= 10_000_000


def test_what_a_script_measures_of_the_device_is_kept() -> None:
    """The answers of `elapsed_time` are the only numbers of the device's own: kept with both lines, and no others."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    x = torch.ones(64, 64, device="mps")
    with anymps.record(source="dispatch") as capture:
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
    version = torch.__version__
    texts = {
        missing_operator("aten::eig", "abc").text: RefusalKind.MISSING,
        float64_allocation().text: RefusalKind.FLOAT64,
        out_of_memory(version, allocated=1, other=1, requested=1, limit=1).text: RefusalKind.MEMORY,
        "Placeholder storage has not been allocated on MPS device!": RefusalKind.DEVICE,
        "Input type (MPSFloatType) and weight type (MPSHalfType) should be the same": RefusalKind.DTYPE,
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same": RefusalKind.DEVICE,
        "frobnicate: something on MPS is not to its liking": RefusalKind.ARGUMENT,
        "mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)": None,
    }
    same_gpu = tensor_on_cpu(SAME_GPU_CHECKS["mm"], ["mat2"])
    assert same_gpu is not None
    texts[same_gpu.text] = RefusalKind.DEVICE
    assert {text: kind_of(RuntimeError(text), ()) for text in texts} == texts
    assert kind_of(TypeError(float64_allocation().text), (torch.complex128,)) is RefusalKind.COMPLEX128


def test_a_traceback_without_the_recording() -> None:
    """What the script sees is the exception itself; what is printed has no frame of the recording."""
    with anymps.record(source="dispatch"), pytest.raises(RuntimeError) as raised:
        torch.nn.Linear(3, 3).to("mps")(torch.ones(2, 4, device="mps"))
    shown = _without_watchers(raised.value.__traceback__)
    files = [frame.filename for frame in traceback.extract_tb(shown)]
    assert files[0] == __file__
    assert not [file for file in files if "anymps/record" in file]


def test_unknown_source() -> None:
    """A source that there is not is refused by name."""
    with pytest.raises(anymps.EnableError) as raised, anymps.record(source="tape"):
        pass
    assert str(raised.value) == "anymps: source must be 'native' or 'dispatch', not 'tape'"


def test_a_mac_by_what_it_says_of_itself() -> None:
    """Chip, bytes of memory and macOS are those of the table; one that was never sold is not guessed."""
    assert mac_named("M3 Pro", 18 << 30, "15.4.1") == parse_mac("M3 Pro 18GB, macOS 15.4")
    assert mac_named("M3 Pro", 17 << 30, "15.4") is None
    assert mac_named("", 0, "") is None


@pytest.mark.skipif(sys.platform == "win32", reason="asks for a module that torch imports elsewhere")
def test_the_compiler_is_not_imported() -> None:
    """A recording does not import torch.compile, which takes seconds."""
    code = """
    import sys, torch, anymps
    anymps.enable(quiet=True)
    with anymps.record(source="dispatch"):
        torch.ones(2, device="mps") + 1
    print("torch._dynamo" in sys.modules)
    """
    assert run_python(code).lines[-1] == "False"
