"""How a recording begins and ends, and what it leaves as it was: one at a time, killed, forked, compiled."""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import anymps
from anymps.record import Recording
from processes import ENABLE, run_with_torch
from recordings import rows

pytestmark = pytest.mark.usefixtures("virtual_device")


def test_one_recording_at_a_time() -> None:
    """A second recording is refused and the first goes on."""
    with anymps.record() as capture:
        with pytest.raises(anymps.EnableError) as refused, anymps.record():
            pass
        torch.ones(1, device="mps") + 1
    assert str(refused.value) == "anymps: a recording is already running in this process"
    assert capture.recording.entry_count > 0


def replaced(source: str) -> Iterator[object]:
    """What is replaced while a recording runs, of torch, of the clocks, and by an observer."""
    yield from (time.time, time.perf_counter, time.monotonic, time.time_ns, time.perf_counter_ns, time.monotonic_ns)
    yield from (timeit.default_timer, torch.compile, torch.autograd.backward, type(torch.backends.mps))
    yield from (torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__)
    yield from (torch.amp.GradScaler.__init__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__)
    if source == "observer":
        yield from (torch._C._mps_deviceSynchronize, torch._C._mps_emptyCache, torch._C._mps_acquireEvent)
        yield torch._C._accelerator_synchronizeDevice


@pytest.mark.parametrize("source", ["native", "observer"])
def test_everything_is_put_back(source: str) -> None:
    """After a recording all is as it was; a module's call is so all the time."""
    before, called = list(replaced(source)), nn.Module.__call__
    with anymps.record(source=source):
        assert all(now is not former for now, former in zip(replaced(source), before, strict=True))
        assert nn.Module.__call__ is called
        kept = time.perf_counter
        torch.ones(2, device="mps").to("cpu", non_blocking=True)
    assert (list(replaced(source)), nn.Module.__call__) == (before, called)
    assert kept() <= time.perf_counter()  # what a program keeps goes on working


@pytest.mark.parametrize("fullgraph", [True, False])
def test_torch_compile_sees_modules_as_they_are(fullgraph: bool, tmp_path: Path) -> None:
    """A compiled module is one graph while a recording runs, and is not compiled again after it."""
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    class Explicit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner.__call__(x) + 1

    model = nn.Sequential(nn.Linear(4, 4), Explicit()).to("mps")
    torch._dynamo.reset()
    x = torch.ones(2, 4, device="mps")
    with anymps.record(tmp_path / "run.anymps"):
        compiled = torch.compile(model, backend=backend, fullgraph=fullgraph)
        model(x), compiled(x), compiled(x)
    assert ("Sequential.0",) in rows(tmp_path / "run.anymps", "SELECT path FROM modules")
    compiled(x)
    assert len(graphs) == 1


def test_compiled_code_does_not_pull_the_recorder_in(tmp_path: Path) -> None:
    """A module first met in a frame of torch.compile's is noted by code that torch.compile leaves alone."""

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        return graph.forward

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return x + 1

    torch._dynamo.reset()
    torch._dynamo.convert_frame.input_codes.clear()
    with anymps.record(tmp_path / "run.anymps"):
        torch.compile(lambda model, x: model(x) * 2, backend=backend)(Broken(), torch.ones(2, 4, device="mps"))
    codes = [reference() for reference in torch._dynamo.convert_frame.input_codes.seen]
    own = str(Path(anymps.__file__).parent)
    assert {code.co_name for code in codes if code is not None} >= {"forward"}
    assert [code.co_name for code in codes if code is not None and code.co_filename.startswith(own)] == []
    assert rows(tmp_path / "run.anymps", "SELECT path FROM modules WHERE path = 'Broken'") == [("Broken",)]


def test_module_call_passes_everything_on() -> None:
    """Arguments, keywords, results, hooks and exceptions pass through the recorded module call unchanged."""

    class Echo(nn.Module):
        def forward(self, *args: object, **kwargs: object) -> object:
            if kwargs.get("fail"):
                raise KeyError("from forward")
            return args, kwargs

    echo = Echo()
    seen: list[object] = []
    echo.register_forward_pre_hook(lambda module, args: seen.append(args))
    with anymps.record():
        assert echo(1, 2, a=3) == ((1, 2), {"a": 3})
        assert echo() == ((), {})
        with pytest.raises(KeyError, match="from forward"):
            echo(fail=True)
    assert seen == [(1, 2), (), ()]


def test_without_the_device_it_is_refused() -> None:
    """record() before enable() says what to call first."""
    code = """
        import anymps
        try:
            with anymps.record():
                pass
        except anymps.EnableError as error:
            print(error)
    """
    assert run_with_torch(code).lines == ["anymps: nothing to record yet; call anymps.enable() first"]


def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    """A child process goes on without recording, and the parent's recording stays whole."""
    path = tmp_path / "parent.anymps"
    code = f"""
        {ENABLE.strip().replace(chr(10), "; ")}
        import os
        with anymps.record({str(path)!r}) as capture:
            torch.ones(2, device="mps") + 1
            child = os.fork()
            if child == 0:
                torch.ones(2) + 1
                os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            torch.ones(2, device="mps") + 1
    """
    assert run_with_torch(code).lines == ["7"]
    recording = Recording.open(path)
    assert recording.complete
    assert {use.name: use.count for use in recording.operators()}["aten::add.Tensor"] == 2


def test_meta_tells_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says which torch, Mac, settings and ending it is about; not where the core is kept."""
    monkeypatch.setenv("MTL_CAPTURE_ENABLED", "1")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    with anymps.record(tmp_path / "run.anymps", script="train.py", argv=["--fast"]):
        pass
    meta = Recording.open(tmp_path / "run.anymps").meta
    assert meta["torch_version"] == torch.__version__
    assert (meta["script"], meta["arguments"], meta["directory"]) == ("train.py", ["--fast"], os.getcwd())
    assert (meta["virtual"], meta["mac"], meta["fallback"]) == (True, "M3 Pro 18GB", False)
    assert meta["ending"] == {"status": 0}
    shown = {name for name in os.environ if name.startswith(("PYTORCH_", "ANYMPS_", "MTL_"))} - {"ANYMPS_CACHE_DIR"}
    assert meta["environment"] == {name: os.environ[name] for name in shown}
    assert "MTL_CAPTURE_ENABLED" in meta["environment"]
