"""What ended a run: what a recording keeps of it, which finding it gives, and the one judgement of the run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from anymps.capture._endings import ending_of
from anymps.device import written_by_torch
from anymps.findings import RULES, Outcome, Severity, Story, find
from anymps.findings._endings import ending_refusal
from anymps.record import Recording, RecordingBuilder, RefusalKind, Site
from anymps.report._words import verdict
from recordings import META, SCRIPT
from rule_loops import only

PLACE: dict[str, object] = {"file": SCRIPT, "line": 9, "function": "main", "source": "values = loss.numpy()  # log"}


def caught(call: Callable[[], Any]) -> BaseException:
    """What a call raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class Device:
    """What has the device of a tensor on mps."""

    flag = True
    device = torch.device("mps:0")


def raises() -> None:
    """As a program does."""
    raise ValueError("no such option")


def test_the_exception_of_a_program() -> None:
    """The innermost line of the program's own is kept with its text, and that a `raise` of its own ended it."""
    facts = ending_of(caught(lambda: raises()))
    assert facts == {
        "status": 1,
        "exception": "ValueError",
        "message": "no such option",
        "raised_by": "program",
        "place": {
            "file": __file__,
            "line": raises.__code__.co_firstlineno + 2,
            "function": "raises",
            "source": 'raise ValueError("no such option")',
        },
    }


def test_the_exception_of_a_call() -> None:
    """What was raised without a `raise` in Python may be torch's C++; a package's lines are left for the caller's."""
    facts = ending_of(caught(lambda: operator.truediv(1, 0)))
    assert (facts["exception"], facts["raised_by"]) == ("ZeroDivisionError", "")
    facts = ending_of(caught(lambda: functools.reduce(raises, [1, 2])))  # type: ignore[arg-type]
    assert facts["place"]["function"] == "<lambda>"  # type: ignore[index]


def test_what_torch_compile_writes_is_no_line_of_the_program() -> None:
    """An error in a compiled model stands at the line that called it."""
    names: dict[str, Any] = {}
    exec(compile("def call():\n    return 1 / 0\n", written_by_torch()[0] + "ab/cab.py", "exec"), names)
    facts = ending_of(caught(lambda: names["call"]()))
    assert facts["place"]["function"] == "<lambda>"  # type: ignore[index]


def test_torch_raised() -> None:
    """A line of torch's own that raises is told from the program's, whose line is kept."""
    torch = pytest.importorskip("torch")
    facts = ending_of(caught(lambda: torch.nn.Linear(2, 2).load_state_dict({})))
    assert (facts["exception"], facts["raised_by"]) == ("RuntimeError", "torch")
    assert facts["place"]["file"] == __file__  # type: ignore[index]


def ended(exception: str, message: str, raised_by: str = "", **place: object) -> Recording:
    """A recording of a run that an exception ended, after something ran on mps."""
    facts = {"exception": exception, "message": message, "raised_by": raised_by, "place": {**PLACE, **place}}
    builder = RecordingBuilder(meta={**META, "ending": {"status": 1, **facts}})
    builder.entry("aten::relu", start_ns=0, duration_ns=5, site=builder.site(SCRIPT, 5, "main", "y = x.relu()"))
    return builder.close()


GENERATOR = "Expected a 'cpu' device type for generator but found 'mps'"
NUMPY = "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
IN_WORKER = (
    f"Caught TypeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  x\n{NUMPY}"
)


@pytest.mark.parametrize(
    ("exception", "message", "raised_by", "rule"),
    [
        ("RuntimeError", GENERATOR, "", "MPS108"),
        ("RuntimeError", "Expected a 'cpu' generator device but found 'mps:0'", "torch", "MPS108"),
        ("TypeError", NUMPY, "", "MPS109"),
        ("TypeError", NUMPY, "torch", "MPS109"),
        ("TypeError", IN_WORKER, "", "MPS109"),
        ("RuntimeError", "Only dense CPU tensors can be pinned", "", "MPS110"),
        ("RuntimeError", "cannot pin 'MPSFloatType' only dense CPU tensors can be pinned", "", "MPS110"),
        ("TypeError", "apply_ is only implemented on CPU tensors", "", "MPS111"),
        ("AttributeError", "module 'torch.mps' has no attribute 'current_device'", "torch", "MPS111"),
        ("NotImplementedError", "Returning max scores is not supported on CPU/MPS.", "torch", "MPS111"),
        ("RuntimeError", "_share_fd_: only available on CPU", "torch", "MPS806"),
        ("RuntimeError", "_share_filename_: only available on CPU", "torch", "MPS806"),
    ],
)
def test_an_exception_that_only_mps_has(exception: str, message: str, raised_by: str, rule: str) -> None:
    """It is an error at the line, with torch's words, and the verdict says that a Mac raises there."""
    recording = ended(exception, message, raised_by)
    finding = only(recording)
    assert (finding.id, finding.severity, finding.site.line) == (rule, Severity.ERROR, 9)
    first = message.partition("\n")[0]
    assert finding.what == f"torch raised {exception}: {first}"
    assert verdict(Story.of(recording), [finding]) == [
        f"Would not run on M3 Pro 18GB: train.py:9 raises {exception}.",
        f"1 error. Change first: train.py:9 ({rule}).",
    ]


@pytest.mark.parametrize(
    ("exception", "message", "raised_by"),
    [
        ("AttributeError", "module 'torch.mps' has no attribute 'max_memory_allocated'", ""),
        ("InvalidBackend", "Invalid backend: 'mps', see `torch._dynamo.list_backends()`", "torch"),
        ("RuntimeError", "Expected one of cpu, cuda, mps, meta device type at start of device string: gpu", ""),
        ("RuntimeError", 'Error(s) in loading state_dict for Net:\n\tMissing key(s): "mps.weight". ', "torch"),
        ("RuntimeError", "File runs/mps/model.pt cannot be opened.", "torch"),
    ],
)
def test_an_exception_that_names_mps_and_tells_nothing_of_it(exception: str, message: str, raised_by: str) -> None:
    """A mistaken name, key or file raises on every machine: no finding says to compute on the CPU."""
    assert only(ended(exception, message, raised_by)).id == "MPS003"


SEEN = torch.device("mps")


def refuses_by_name(x: Device) -> None:
    if x.device != SEEN:
        raise ValueError("wrong device")


def refuses_by_assert(x: Device) -> None:
    assert x.device == torch.device("mps")


def refuses_a_text(x: Device) -> None:
    if x.flag and str(x.device) != "cpu" and x.device != "mps":
        raise ValueError(
            "wrong device",
        )


def refuses_with_index(x: Device) -> None:
    if x.device != torch.device("mps:1"):
        raise ValueError("wrong device")


def refuses_something_else(x: Device) -> None:
    if x.device.type == "mps" and x.flag:
        raise ValueError("a flag")


@pytest.mark.parametrize(
    ("refuse", "compared"),
    [
        (refuses_by_name, "x.device != SEEN"),
        (refuses_by_assert, "x.device == torch.device('mps')"),
        (refuses_a_text, "x.device != 'mps'"),
        (refuses_with_index, None),
        (refuses_something_else, None),
    ],
)
def test_a_test_of_a_device_without_index(refuse: Callable[[Device], None], compared: str | None) -> None:
    """MPS003 says why a program that compares with `mps` refuses every tensor there."""
    facts = ending_of(caught(lambda: refuse(Device())))
    assert facts.get("compared") == compared
    builder = RecordingBuilder(meta={**META, "ending": facts})
    builder.entry("aten::relu", start_ns=0, duration_ns=5, site=builder.site(SCRIPT, 5, "main", "y = x.relu()"))
    (finding,) = find(builder.close())
    told = 'The device of a tensor on mps is `mps:0`, which does not equal `torch.device("mps")` in '
    assert (finding.id, finding.fix.startswith(f"{told}`{compared}`: ")) == ("MPS003", compared is not None)


@pytest.mark.parametrize(
    ("message", "raised_by", "source", "fix"),
    [
        ("'dict' object has no attribute 'to'", "", 'batch = batch.to("mps")',
         "Move each tensor of the dictionary: `{name: x.to(device) for name, x in batch.items()}`."),
        ("metal_capture() missing 1 required positional argument: 'fname'", "", "with metal_capture():",
         'Pass the name of the trace file: `torch.mps.profiler.metal_capture("step")`.'),
        ("module 'torch.backends.mps' has no attribute 'empty_cache'", "", "torch.backends.mps.empty_cache()",
         "It is a function of `torch.mps`: `torch.mps.empty_cache`."),
        ("'NoneType' object has no attribute 'split'", "", "MAJOR = int(torch.version.cuda.split('.')[0])",
         "`torch.version.cuda` is None in a torch without CUDA, such as that for macOS: write `(torch.version.cuda or "
         '"0.0")`.'),
        ("mat1 and mat2 must have the same dtype, but got Half and Float", "", "y = model(x)",
         "The input and the weights have different dtypes, and no autocast casts them here: convert one to the dtype "
         "of the other, or compute under an autocast that is switched on for mps."),
    ],
)  # fmt: skip
def test_a_mistake_that_is_often_made(message: str, raised_by: str, source: str, fix: str) -> None:
    """MPS003 is a warning with the way out, where the words are known."""
    finding = only(ended("TypeError", message, raised_by, source=source))
    assert (finding.id, finding.severity, finding.fix) == ("MPS003", Severity.WARNING, fix)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "SyntaxError: failed to compile \n    kernel void generated_kernel(\n with program_source:797:17: error: "
            "number of constant buffers exceeds maximum supported (31)\n    kernel void generated_kernel(\n",
            "number of constant buffers exceeds maximum supported (31)",
        ),
        (
            "program_source:1:9: error: no 'buffer' resource location available for 'data31'\n",
            "no 'buffer' resource location available for 'data31'",
        ),
        (
            "RuntimeError: Failed to created pipeline state object, error: Threadgroup memory size (36864) exceeds the "
            "maximum threadgroup memory allowed (32768)",
            "Threadgroup memory size (36864) exceeds the maximum threadgroup memory allowed (32768)",
        ),
    ],
)
def test_a_kernel_over_a_limit(message: str, said: str) -> None:
    """MPS836 finds Metal's words in the long text of torch.compile's error."""
    recording = ended("InductorError", message, "torch")
    finding = only(recording)
    assert (finding.id, finding.severity, finding.site.line) == ("MPS836", Severity.ERROR, 9)
    assert finding.what == f"Metal refused a kernel: {said}."
    assert (
        verdict(Story.of(recording), [finding])[0] == "Would not run on M3 Pro 18GB: train.py:9 raises InductorError."
    )


def test_a_batch_that_a_worker_could_not_send() -> None:
    """The loop is told by the worker; the data set is what has to change."""
    message = (
        "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        "RuntimeError: _share_fd_: only available on CPU (a Mac prints this in the worker alone)"
    )
    finding = only(ended("RuntimeError", message, "torch"))
    assert finding.id == "MPS806"
    assert finding.what == (
        "A worker of the DataLoader gave a batch on mps: torch raised RuntimeError: _share_fd_: only available on CPU"
    )
    assert finding.fix == "Keep the data set on the CPU, and move each batch in the loop: `x.to(device)`."


def test_a_model_that_a_process_is_given() -> None:
    """It is no tensor that a line sends: the arguments of the process are what has to change."""
    finding = only(ended("RuntimeError", "_share_filename_: only available on CPU", "torch", source="p.start()"))
    assert finding.fix == "Pass CPU tensors and modules to the process, and move them inside it: `x.to(device)`."


def test_a_tensor_that_a_queue_could_not_send() -> None:
    """It stands at the line that put it there; that nothing came is then no riddle of its own."""
    builder = RecordingBuilder(
        meta={**META, "ending": {"status": 1, "exception": "Empty", "message": "", "raised_by": "", "place": PLACE}}
    )
    builder.note("sent", start_ns=5, site=builder.site(SCRIPT, 4, "main", "queue.put(x)"))
    finding = only(builder.close())
    assert (finding.id, finding.site.line, finding.severity) == ("MPS806", 4, Severity.ERROR)
    assert finding.what == (
        "A queue was given a tensor on mps. Its own thread sends it and prints the error that torch raises there, "
        "RuntimeError: "
        "_share_filename_: only available on CPU. Whatever waits for the tensor waits forever."
    )


@pytest.mark.parametrize(
    ("message", "source", "fix"),
    [
        (NUMPY, PLACE["source"], "Copy the tensor to the CPU first: `values = loss.cpu().numpy()`."),
        (
            NUMPY,
            "plt.plot(losses)",
            "Copy the tensor to the CPU first: `.cpu().numpy()`, with `.detach()` before it if it requires a gradient.",
        ),
        (
            "module 'torch.mps' has no attribute 'current_device'",
            'state = torch.load(path, map_location="cuda")',
            'Load to the CPU, `map_location="cpu"`, then move it: `.to(device)`.',
        ),
    ],
)
def test_the_fix_is_the_line_mended(message: str, source: str, fix: str) -> None:
    """Where the line itself can be mended, it is shown."""
    assert only(ended("AttributeError", message, "torch", source=source)).fix == fix


def test_torch_raised_something_of_any_device() -> None:
    """Where the words do not tell, the finding does not blame MPS, and says how to find out."""
    recording = ended("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x3 and 8x3)")
    finding = only(recording)
    assert (finding.id, finding.severity) == ("MPS003", Severity.WARNING)
    assert finding.what == (
        "torch raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x3 and 8x3). "
        "Nothing in this message is about mps."
    )
    assert finding.fix == (
        'Run the script with `device = "cpu"`: if it raises there too, the bug is in the script. If it raises only on '
        "mps, run this call on the CPU."
    )
    assert verdict(Story.of(recording), [finding])[0] == "The script ended with RuntimeError at train.py:9."


def test_a_message_that_ends_with_a_full_stop() -> None:
    """It is one sentence, and its first line."""
    finding = only(ended("AttributeError", "module 'numpy' has no attribute 'int'.\nIt was an alias.", "program"))
    assert finding.what == (
        "The script ended with AttributeError: module 'numpy' has no attribute 'int'. MPS did not raise it."
    )


@pytest.mark.parametrize(
    ("exception", "message", "raised_by"),
    [
        ("ValueError", "no such option: mps", "program"),
        ("KeyError", "'mps'", ""),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'best.pt'", "torch"),
    ],
)
def test_an_exception_of_the_program(exception: str, message: str, raised_by: str) -> None:
    """What the program raises is a note that the report holds up to there, not a fault of MPS."""
    recording = ended(exception, message, raised_by)
    finding = only(recording)
    assert (finding.id, finding.severity) == ("MPS003", Severity.INFO)
    assert finding.what == f"The script ended with {exception}: {message}. MPS did not raise it."
    assert Story.of(recording).judge([finding]).outcome is Outcome.FAILED


def test_a_refusal_explains_its_own_exception() -> None:
    """The exception that MPS raised as it refused a call is told once, by the refusal's rule."""
    builder = RecordingBuilder(
        meta={**META, "ending": {"status": 1, "exception": "TypeError", "message": "no", "place": PLACE}}
    )
    site = builder.site(SCRIPT, 9, "main", "x.double()")
    builder.refusal(RefusalKind.FLOAT64, "TypeError", "no", operator="aten::_to_copy", start_ns=0, site=site)
    recording = builder.close()
    assert only(recording).id == "MPS301"
    assert Story.of(recording).judge(find(recording)).outcome is Outcome.RAISES


@pytest.mark.parametrize(("kind", "ended_it"), [("memory", True), ("determinism", True), ("index", False)])
def test_a_refusal_that_ended_the_run(kind: str, ended_it: bool) -> None:
    """The last one, by its error; a bad index that no wait has raised has ended nothing."""
    builder = RecordingBuilder(meta={**META, "ending": {"status": 1, "exception": "RuntimeError", "message": "no"}})
    builder.refusal(RefusalKind(kind), "RuntimeError", "no", operator="aten::mm", start_ns=0)
    assert (ending_refusal(builder.close()) is not None) is ended_it


def loader(ending: dict[str, object] | None = None, **facts: object) -> Recording:
    """A run with a DataLoader."""
    builder = RecordingBuilder(meta={**META, "ending": ending or {"status": 0}})
    site = builder.site(SCRIPT, 12, "main", "for x in loader:")
    builder.note("loader", start_ns=0, site=site, pin_memory=False, persistent=True, workers=2, **facts)
    builder.entry("aten::relu", start_ns=0, duration_ns=5, site=site)
    return builder.close()


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("MPS802", {"guarded": False}),
        ("MPS803", {"guarded": True, "unpicklable": "collate_fn"}),
        ("MPS805", {"guarded": True, "on_mps": "dataset.tensors[0]"}),
    ],
)
def test_what_stops_a_script_on_macos_and_would_run_exclude_each_other(rule: str, facts: dict[str, object]) -> None:
    """The verdict follows from the findings, however well the script ran here."""
    recording = loader(**facts)
    findings = find(recording)
    assert [finding.id for finding in findings] == [rule]
    assert verdict(Story.of(recording), findings)[0] == f"Would not run on M3 Pro 18GB: train.py:12 stops it ({rule})."
    assert verdict(Story.of(recording), [])[0] == "Would run on M3 Pro 18GB."  # where the project has left it out


@pytest.mark.parametrize(
    ("facts", "exception", "message", "ids"),
    [
        ({"guarded": False}, "RuntimeError", "DataLoader worker (pid(s) 7, 8) exited unexpectedly", ["MPS802"]),
        (
            {"guarded": True, "unpicklable": "collate_fn"},
            "PicklingError",
            "Can't pickle <function <lambda> at 0x7f>: attribute lookup <lambda> on __main__ failed",
            ["MPS803"],
        ),
        (
            {"guarded": True, "unpicklable": "collate_fn"},
            "AttributeError",
            "Can't get local object 'main.<locals>.<lambda>'",  # Python 3.12 and later; before it says pickle
            ["MPS803"],
        ),
        ({"guarded": False}, "RuntimeError", "stack expects each tensor to be equal size", ["MPS003", "MPS802"]),
        ({"guarded": True}, "RuntimeError", "DataLoader worker (pid(s) 7) exited unexpectedly", ["MPS003"]),
        (
            {"guarded": False, "start_method": "fork"},
            "RuntimeError",
            "DataLoader worker (pid(s) 7) exited unexpectedly",
            ["MPS003"],
        ),
    ],
)
def test_workers_that_did_not_start_are_told_once(
    facts: dict[str, object], exception: str, message: str, ids: list[str]
) -> None:
    """Where macOS cannot start the workers, the finding stands for the exception; any other is told beside it."""
    place = {**PLACE, "line": 12, "source": "for x in loader:"}
    recording = loader({"status": 1, "exception": exception, "message": message, "place": place}, **facts)
    findings = find(recording)
    assert sorted(finding.id for finding in findings) == ids
    assert Story.of(recording).judge(findings).outcome is (Outcome.FAILED if ids == ["MPS003"] else Outcome.STOPS)


@pytest.mark.parametrize(
    ("facts", "exception", "message", "line", "ids"),
    [
        ({"guarded": False}, "BrokenProcessPool", "A process in the process pool was terminated", 9, ["MPS807"]),
        ({"guarded": False}, "EOFError", "", 12, ["MPS807"]),  # of a manager, whose process is gone
        ({"guarded": False}, "EOFError", "", 9, ["MPS003", "MPS807"]),
        ({"guarded": False}, "EOFError", "", 15, ["MPS003", "MPS807"]),
        (
            {"guarded": True, "unpicklable": "target"},
            "PicklingError",
            "Can't pickle <function <lambda> at 0x7f>: attribute lookup <lambda> on __main__ failed",
            12,
            ["MPS808"],
        ),
        ({"guarded": False, "start_method": "fork"}, "BrokenProcessPool", "", 9, ["MPS003"]),
        ({"guarded": None}, "BrokenProcessPool", "", 9, ["MPS003"]),
    ],
)
def test_processes_that_did_not_start_are_told_once(
    facts: dict[str, object], exception: str, message: str, line: int, ids: list[str]
) -> None:
    """What the parent of such a process is told belongs to the finding; any other exception is told beside it."""
    place = {**PLACE, "line": line}
    ending = {"status": 1, "exception": exception, "message": message, "place": place}
    builder = RecordingBuilder(meta={**META, "ending": ending})
    builder.note("process", start_ns=0, site=builder.site(SCRIPT, 12, "main", "worker.start()"), **facts)
    recording = builder.close()
    findings = find(recording)
    assert sorted(finding.id for finding in findings) == ids
    assert Story.of(recording).judge(findings).outcome is (Outcome.FAILED if ids == ["MPS003"] else Outcome.STOPS)


def test_wrong_results_are_in_the_verdict() -> None:
    """A known bug of the backend that changes results is told with the verdict."""
    builder = RecordingBuilder(meta=META)
    site = builder.site(SCRIPT, 7, "main", "y = x.cpu().to(torch.float16)")
    builder.entry("aten::relu", start_ns=0, duration_ns=5, site=site)
    recording = builder.close()
    wrong = RULES["MPS601"].finding(Site(SCRIPT, 7, "main"), what="", count=1)
    assert (
        verdict(Story.of(recording), [wrong])[0] == "Would run on M3 Pro 18GB, with wrong results: train.py:7 (MPS601)."
    )
