"""Every setting once, as a row: type, default, flag, variable, key, help, the faces that take it.

The options of the commands and of `pytest --mps`, `%%mps`, the arguments of `anymps.enable`, the variables that child
processes inherit and the tables of docs/settings.md are made from these rows. A face fills one object of its class and
hands that on. A new setting is a field of a class here, and what acts on it.
"""

from __future__ import annotations

# ruff: noqa: RUF009 - `row` makes a field anew at each call
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from anymps._errors import EnableError
from anymps._setting_row import Row, row

_S = TypeVar("_S", bound="Settings")

_DEVICE: Final = ("run", "bench", "compare", "fix")
_JUDGED: Final = ("run", "report")


@dataclass(frozen=True)
class Settings:
    """What several faces take. What is None was not asked for; the environment, or the project, may say more."""

    mac: str | None = row(
        "text", help='The Mac to act as: "M3 Pro 18GB", "M1 8GB, macOS 14.5".', metavar="MAC", commands=_DEVICE,
        helps={"bench": "The Mac that the virtual device acts as; its speed is not simulated."},
        pytest="the Mac that the virtual device acts as, such as 'M1 8GB'; default: ANYMPS_MAC, else an M3 Pro 18GB",
        variable="ANYMPS_MAC", key="mac", enable=True, notebook=True,
        page="the Mac, if the command line names none; overrides `pyproject.toml`. The default is an M3 Pro with 18 GB",
    )  # fmt: skip
    torch: str = row(
        "text", "", "Predict times for this release, such as 2.11; the calls stay those of the installed release.",
        metavar="RELEASE", commands=("run", "bench", "plan"),
    )  # fmt: skip
    substrate: str | None = row(
        "word", help="Where tensors live and are computed: host, this machine's CPU (the default), or cuda, an NVIDIA "
        "card (ANYMPS_SUBSTRATE).", words=("host", "cuda"), commands=_DEVICE,
        pytest="where tensors live and are computed: host, this machine's CPU (the default), or cuda, an NVIDIA card",
        variable="ANYMPS_SUBSTRATE", key="substrate", enable=True, notebook=True,
        page="what computes: `host` (the default), this machine's CPU, or `cuda`, an NVIDIA card",
    )  # fmt: skip
    require: str | None = row(
        "word", help="Run only on an Apple GPU, or only on the virtual device.", words=("real", "virtual"),
        commands=("run",), enable=True,
        pytest="stop (exit code 4) unless the device is of this kind: real (a Mac's own) or virtual",
    )  # fmt: skip
    fallback: bool | None = row(
        "switch", help="Run operators without an MPS kernel on the CPU, or raise (PYTORCH_ENABLE_MPS_FALLBACK). "
        "Default: the environment's setting.", commands=(*_DEVICE, "plan"),
        pytest="PYTORCH_ENABLE_MPS_FALLBACK, on or off", variable="PYTORCH_ENABLE_MPS_FALLBACK", enable=True,
        page="as on a Mac: operators without an MPS kernel run on the CPU",
    )  # fmt: skip
    kernels: str | None = row(
        "word", help="Compute on this machine's CPU, or with PyTorch's own Metal kernels where their launches are "
        "known, after `anymps kernels add`: those of the installed torch (real) or of another release "
        "(ANYMPS_KERNELS).", words=("cpu", "real"), releases=True, commands=("run", "compare"),
        pytest="real, or a release: compute with PyTorch's own Metal kernels where their launches are known",
        variable="ANYMPS_KERNELS", enable=True, notebook=True,
        page="with `real`, or a release such as `2.15`, PyTorch's own kernels compute the operators whose launches are "
        "known ([Kernels]"
        "(kernels.md#running-programs-on-them))",
    )  # fmt: skip
    cuda_as_mps: bool | None = row(
        "flag", help='Let mps answer for CUDA: torch.cuda, .cuda() and "cuda" (ANYMPS_CUDA_AS_MPS=1).',
        commands=("run", "compare", "plan", "fix"), pytest="mps answers for CUDA: torch.cuda, .cuda() and 'cuda'",
        variable="ANYMPS_CUDA_AS_MPS", enable=True, notebook=True, page="mps answers for CUDA "
        "([CUDA](cuda.md))",
    )  # fmt: skip
    alone: bool = row(
        "flag", False, "Run one process of a script that needs several: NCCL and its transfers are skipped and "
        "reported (ANYMPS_ALONE=1).", commands=("run",), variable="ANYMPS_ALONE",
        page="a script for many GPUs runs as the only process of its group ([CUDA](cuda.md#a-script-for-many-gpus))",
    )  # fmt: skip
    check_shaders: bool = row(
        "flag", False, "Check Metal kernels for data races, out-of-bounds accesses and similar bugs; slow "
        "(ANYMPS_CHECK_SHADERS=1).", commands=("run",),
        pytest="a test fails if a Metal kernel has a data race or an out-of-bounds access",
        variable="ANYMPS_CHECK_SHADERS",
        page="Metal kernels are checked for data races, out-of-bounds accesses and similar bugs ([Checking kernels]"
        "(metal.md#checking-kernels))",
    )  # fmt: skip
    check_numbers: str | None = row(
        "word", help="Compare operators' results with the CPU's, computed in float64: the first three calls of each "
        "signature, then calls at growing intervals; or all of them (ANYMPS_CHECK_NUMBERS=some or all).",
        words=("some", "all"), bare="some", commands=("run",),
        pytest="a test fails if an operator's result differs from the CPU's", variable="ANYMPS_CHECK_NUMBERS",
        notebook=True,
        page="with `some` or `all`, operators' results are compared with the CPU's ([Numbers](numbers.md))",
    )  # fmt: skip
    strict_copies: bool = row(
        "flag", False, "Delay copies to the CPU with non_blocking=True until the next wait "
        "(ANYMPS_STRICT_COPIES=1).", commands=("run",), variable="ANYMPS_STRICT_COPIES",
        page="copies to the CPU with `non_blocking=True` are delayed until the next wait",
    )  # fmt: skip
    start_method: str | None = row(
        "word", help="How DataLoader workers and other processes start, if the script does not choose. Default: "
        "spawn, as on macOS (ANYMPS_START_METHOD).", words=("spawn", "fork", "forkserver"), commands=("run",),
        variable="ANYMPS_START_METHOD", enable=True,
        page="how DataLoader workers and other processes start, if the script does not choose: `spawn` (the default, "
        "as on macOS), `fork`, `forkserver`, or `system`, which changes nothing",
    )  # fmt: skip
    fail_on: str | None = row(
        "word", help="Exit with 3 if there are findings of this severity or higher.",
        words=("error", "warning", "info", "never"), commands=_JUDGED, key="fail-on",
    )  # fmt: skip
    baseline: Path | None = row(
        "file", help="Hide the findings that this file lists as known.", commands=_JUDGED, key="baseline",
        pytest="the lines that are known to wait or to run on the CPU; any other line fails the session",
    )  # fmt: skip
    write_baseline: bool = row("flag", False, "Write this run's findings to the baseline file.", commands=_JUDGED)
    allow_unused: bool = row(
        "flag", False, "Exit with 0 even if nothing ran on mps.", commands=("run",),
        pytest="let a session pass in which nothing ran on mps",
    )  # fmt: skip
    reports: tuple[str, ...] = row(
        "texts", (), "Write a report in this format (terminal, html, markdown, trace, json, sarif, github, junit) to "
        "this file, or - for standard output; repeatable.", option="report", metavar="FORM=FILE", commands=("run",),
        pytest="write a report of the session, such as html=mps.html (formats as in anymps report); repeatable",
    )  # fmt: skip
    root: str | None = row(
        "text", help="Make paths in sarif and github relative to this directory, such as the checkout. Default: the "
        "run's.", metavar="DIRECTORY", commands=_JUDGED,
    )  # fmt: skip

    def device(self) -> dict[str, Any]:
        """The arguments of `anymps.enable`."""
        return {row.name: getattr(self, row.name) for row in rows() if row.enable}

    def filled(self: _S, project: object) -> _S:
        """With what the project says of the device, where neither the user nor the environment says anything."""
        names = [row.name for row in rows() if row.enable and row.key and not os.environ.get(row.variable)]
        said: dict[str, Any] = {name: getattr(project, name) or None for name in names if getattr(self, name) is None}
        return replace(self, **said)

    def hand_on(self) -> None:
        """Set the variables of what is switched on here and is no argument of `anymps.enable`, which sets its own."""
        for setting in rows():
            if setting.variable and not setting.enable and getattr(self, setting.name):
                set_variable(setting.name, getattr(self, setting.name))


@dataclass(frozen=True)
class RunSettings(Settings):
    """Of `anymps run`."""

    record: Path | None = row("file", help="Keep the recording in this file.")
    source: str | None = row(
        "word", help="How operators are recorded: by the virtual device, or by an observer, as on a real Mac. Default: "
        "the best one that the device supports.", words=("native", "observer"),
    )  # fmt: skip
    children: bool = row(
        "flag", True, "Leave processes that the script starts without the device, and do not record them.",
        option="no-children",
    )  # fmt: skip
    steps: tuple[int, int] | None = row(
        "text", help="Record part of a long run: 10:30 starts after 10 optimizer steps and ends after 30.",
        metavar="FIRST:LAST",
    )  # fmt: skip
    live: bool = row(
        "flag", False, "Show steps, waits and memory while the script runs, and keep the page of --report html=FILE "
        "up to date.",
    )  # fmt: skip
    verbose: bool = row("flag", False, "Show the full report at the end, not the short one.", short="-v")
    arguments: bool = row(
        "flag", True, "Leave the script's arguments out of the recording and the reports.", option="no-arguments"
    )
    report: bool = row("flag", True, "Show no report at the end.", option="no-report")
    report_to: Path | None = row(
        "file", help="Write the full report to this file: .html, .json, .md, .sarif, or text for any other name."
    )


@dataclass(frozen=True)
class ReportSettings(Settings):
    """Of `anymps report`."""

    form: str = row(
        "word", "terminal", "The format of the report.", option="format",
        words=("terminal", "html", "markdown", "trace", "json", "sarif", "github", "junit"),
    )  # fmt: skip
    output: str = row("text", "-", "Write it to this file; - (default) is standard output.", metavar="PATH")


@dataclass(frozen=True)
class BenchSettings(Settings):
    """Of `anymps bench`."""

    devices: str | None = row(
        "text", help="For a function: the device, mps (the default), or cpu,mps to compare. A script chooses its own "
        "device.",
        option="device", metavar="DEVICES",
    )  # fmt: skip
    warmup: int = row("integer", 3, "Warm-up calls or steps, which are not timed.", least=1, shows_default=True)
    repeat: int = row("integer", 20, "Timed runs or steps.", least=1, shows_default=True)
    min_time: float = row(
        "number", 0.5, "For a function: repeat until the runs took this many seconds.", least=0, shows_default=True
    )
    calls: int = row("integer", 1, "For a function: calls in one run.", least=1, shows_default=True)
    predict: bool = row(
        "switch",
        True,
        "Record a few more steps or calls on mps, and show their predicted time beside the measured one.",
    )
    json: bool = row("flag", False, "Print everything as JSON; times in nanoseconds.")
    markdown: bool = row("flag", False, "Print everything as Markdown.")
    calibrate: bool = row("flag", False, "Time this Mac, and base predictions on it from now on.")
    out: Path | None = row("file", help="With --calibrate: write the timings there, as CSV.")
    calibrate_virtual: str | None = row("text", metavar="MAC", hidden=True)  # for tests: its times are no Mac's

    @property
    def form(self) -> str | None:
        """What the result is printed as: `json`, `markdown`, or None for text."""
        return "json" if self.json else "markdown" if self.markdown else None


@dataclass(frozen=True)
class PlanSettings(Settings):
    """Of `anymps plan`."""

    macs: tuple[str, ...] = row(
        "texts", (), 'Plan for this Mac, such as "M3 Pro 18GB"; repeatable. Default: one Mac of each memory size.',
        option="mac", metavar="MAC",
    )  # fmt: skip
    against: str | None = row(
        "text", help='Show how many times as fast as your own Mac ("M1 16GB") the others are, with an interval.',
        metavar="MAC",
    )  # fmt: skip
    what_if: tuple[str, ...] = row(
        "texts", (), "Try a change without editing the script: batch=8, sequence=512, accumulate=4, bf16, fp16, "
        "checkpoint, fused, unfused, sgd, adam, adamw, adam8bit, adamw8bit; several at once with commas; "
        "repeatable.", metavar="CHANGES",
    )  # fmt: skip
    larger: bool = row("switch", True, "Also measure twice the batch, which gives the largest one that fits.")
    batch: int | None = row("integer", help="The batch size, also for {batch} in the script's arguments.", least=1)
    sequence: int | None = row("integer", help="The sequence length, also for {sequence} in the arguments.", least=1)
    steps: int = row("integer", 3, "Optimizer steps to measure.", least=1, most=1000, shows_default=True)
    seconds: float = row("number", 300, "Time limit of one measurement, in seconds.", least=1, shows_default=True)
    allow_writes: bool = row(
        "flag", False, "Let the script write its files; otherwise they are discarded after the plan."
    )
    report_to: Path | None = row("file", help="Write the full plan to this file: .html, .md, .json, else text.")
    verbose: bool = row("flag", False, "Show the full plan, not only which Macs it fits on.", short="-v")


@dataclass(frozen=True)
class CompareSettings(Settings):
    """Of `anymps compare`."""

    of: str = row(
        "word", "cpu", "The device of the first run; a release such as 2.13 is mps with the kernels of that release "
        "(anymps kernels add).", words=("cpu", "mps", "cuda"), releases=True, shows_default=True,
    )  # fmt: skip
    other: str = row(
        "word", "mps", "The device of the second run, likewise.", option="with", words=("cpu", "mps", "cuda"),
        releases=True, shows_default=True,
    )  # fmt: skip
    of_python: Path | None = row(
        "file", help="Use this Python, which has anymps and a different torch, for the first run; --kernels then "
        "applies to both.",
    )  # fmt: skip
    random: str = row(
        "word", "own", "Draw random numbers on each device (own), or on the CPU in both runs (cpu), to see what else "
        "differs.", words=("own", "cpu"), shows_default=True,
    )  # fmt: skip
    steps: int | None = row(
        "integer", help="End each run after this many optimizer steps.  [default: to its end]", least=1
    )
    full_steps: int = row(
        "integer", 10, "Compare every call of this many optimizer steps, and of later steps at doubling intervals; "
        "losses of all steps.", least=1, shows_default=True,
    )  # fmt: skip
    seconds: float = row("number", 600, "Time limit of each run, in seconds.", least=1, shows_default=True)
    report_to: Path | None = row("file", help="Write the comparison to this file: .html, .md, .json, else text.")


@dataclass(frozen=True)
class FixSettings(Settings):
    """Of `anymps fix`."""

    write: bool = row("flag", False, "Apply the patch.")
    force: bool = row("flag", False, "With --write: change files even if their current state is not committed to git.")
    seconds: float = row("number", 600, "Time limit of one run, in seconds.", least=1, shows_default=True)
    steps: int | None = row(
        "integer", help="End each run after this many optimizer steps.  [default: to its end]", least=1
    )
    runs: int = row(
        "integer",
        3,
        "Time limit of all runs together, as a multiple of one run of the script.",
        least=2,
        shows_default=True,
    )
    unproved: bool = row("flag", False, "Also change lines that the run did not reach.")


@dataclass(frozen=True)
class DiffSettings:
    """Of `anymps diff`."""

    form: str = row(
        "word", "terminal", "The format of the comparison.", option="format",
        words=("terminal", "html", "markdown", "json"),
    )  # fmt: skip
    output: str = row("text", "-", "Write it to this file; - (default) is standard output.", metavar="PATH")
    worse: str = row(
        "word", "warning", "Exit with 1 if there are new findings of this severity or higher.", option="fail-on",
        words=("error", "warning", "info", "never"), shows_default=True,
    )  # fmt: skip


@dataclass(frozen=True)
class JoinSettings:
    """Of `anymps join`."""

    output: Path = row("file", help="The combined recording to write.", short="-o", required=True)


@dataclass(frozen=True)
class JoinManifestsSettings:
    """Of `anymps join-manifests`."""

    into: Path = row("file", help="The manifest that the shards started from; it is updated in place.", required=True)


@dataclass(frozen=True)
class DoctorSettings:
    """Of `anymps doctor`."""

    json: bool = row("flag", False, "Print facts and diagnosis as JSON.")
    python: Path | None = row("file", help="Diagnose another Python interpreter and its torch.", metavar="PATH")


@dataclass(frozen=True)
class CoverageSettings:
    """Of `anymps coverage`."""

    release: str | None = row(
        "text", help="Ask about this release instead of the installed one.", option="torch", metavar="RELEASE"
    )
    json: bool = row("flag", False, "Print the answer as JSON.")


@dataclass(frozen=True)
class ConvertSettings:
    """Of `anymps convert`."""

    to: Literal["safetensors"] | None = row("word", help="Write torch files in this format.", words=("safetensors",))
    force: bool = row("flag", False, "Overwrite OUT if it exists.")
    dry_run: bool = row("flag", False, "Read and convert everything, write nothing; OUT may be left out.")
    json: bool = row("flag", False, "Print what was changed as JSON.")


@dataclass(frozen=True)
class KernelsAddSettings:
    """Of `anymps kernels add`."""

    download: bool = row("flag", False, "Let pip download the wheel.")
    release: str | None = row(
        "text", help="Add the kernels of this release, such as 2.15, instead of the installed one.", option="torch",
        metavar="RELEASE",
    )  # fmt: skip


@dataclass(frozen=True)
class KernelsRemoveSettings:
    """Of `anymps kernels remove`, and of those that read the kernels."""

    release: str | None = row(
        "text", help="Use the kernels of this release, not of the installed one.", option="torch",
        metavar="RELEASE",
    )  # fmt: skip


@dataclass(frozen=True)
class KernelsListSettings(KernelsRemoveSettings):
    """Of `anymps kernels list`."""

    json: bool = row("flag", False, "Print the names as JSON.")


@dataclass(frozen=True)
class KernelsShowSettings(KernelsRemoveSettings):
    """Of `anymps kernels show`."""

    json: bool = row("flag", False, "Print the answer as JSON.")
    markdown: bool = row("flag", False, "Print the answer as Markdown.")


@dataclass(frozen=True)
class PytestSettings(Settings):
    """Of `pytest --mps`; `reports_from` is the folder that the files of `reports` are named from."""

    fail_on_fallback: bool = row("flag", False, pytest="a test fails if an operator runs on the CPU unmarked")
    default_device: bool = row("flag", False, pytest="torch.set_default_device('mps') around each test")
    manifest: Path | None = row("file", pytest="the tests that are expected to fail, and how; all others must pass")
    update_manifest: bool = row("flag", False, pytest="update the manifest from the results of this run")
    rerun: bool = row(
        "flag", True, pytest="an update reruns failing tests without mps, and leaves out those that fail there too"
    )
    update_baseline: bool = row("flag", False, pytest="update the baseline from this run")
    recording: Path | None = row("file", pytest="keep the recording of the session (anymps report FILE)")
    reports_from: Path = Path()


FACES: Final[Mapping[str, type[Any]]] = {
    "run": RunSettings,
    "report": ReportSettings,
    "bench": BenchSettings,
    "compare": CompareSettings,
    "plan": PlanSettings,
    "fix": FixSettings,
    "diff": DiffSettings,
    "join": JoinSettings,
    "join-manifests": JoinManifestsSettings,
    "doctor": DoctorSettings,
    "coverage": CoverageSettings,
    "convert": ConvertSettings,
    "kernels add": KernelsAddSettings,
    "kernels list": KernelsListSettings,
    "kernels show": KernelsShowSettings,
    "kernels remove": KernelsRemoveSettings,
    "pytest": PytestSettings,
}
"""The commands, and pytest, with the class of what each takes; commands without the device share nothing."""


def rows(of: type[Any] = Settings) -> tuple[Row, ...]:
    """The rows of a class, in the order of their fields."""
    return tuple(Row(name=setting.name, **setting.metadata) for setting in fields(of) if setting.metadata)


def rows_of(face: str) -> tuple[Row, ...]:
    """The rows that a command, or `pytest`, takes: of those that are shared what names it, and all its own."""
    shared = {row.name for row in rows()}
    return tuple(
        row
        for row in rows(FACES[face])
        if row.name not in shared or (row.pytest if face == "pytest" else face in row.commands)
    )


def row_of(name: str) -> Row:
    """A row that several faces share, by its name."""
    return next(row for row in rows() if row.name == name)


def variable_of(name: str) -> str:
    """The environment variable of a shared setting."""
    return row_of(name).variable


def asked_for(name: str, given: Any = None) -> Any:
    """What `given` asks for, which child processes inherit, else the variable; None where neither says anything.

    Of a flag, the variable's 0 is None: it says no more than no variable. Raises EnableError for another text.
    """
    found = row_of(name)
    if given is not None:
        set_variable(name, given)
        return given
    text = os.environ.get(found.variable, "").strip()
    if text and not (found.takes(text) if found.words else text in ("1", "0")):
        raise EnableError(f"anymps: {found.variable}={text!r} must be {found.choices if found.words else '1 or 0'}")
    return (text or None) if found.words else (True if text == "1" else None)


def set_variable(name: str, value: Any) -> None:
    """Have this process and its children find a setting in the environment."""
    os.environ[variable_of(name)] = str(int(value)) if isinstance(value, bool) else str(value)
