"""The settings that several commands and tools share, one row each, and their values from the environment.

The options of the commands and of `pytest --mps`, `%%mps`, the arguments of `anymps.enable`, the variables that child
processes inherit and the tables of docs/settings.md are made from these rows and those of `_command_settings`. A face
fills one object of its class and passes it on. A new setting is a field of a class, and code that uses it.
"""

from __future__ import annotations

# ruff: noqa: RUF009 - `row` makes a new field at each call
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from anymps._errors import EnableError
from anymps._setting_row import Row, row

_S = TypeVar("_S", bound="Settings")

READ_FORMATS: Final = ("terminal", "html", "markdown")
"""Formats of a report for people."""
DOCUMENT_FORMATS: Final = (*READ_FORMATS, "json")  # of a plan and of a comparison
FORMATS: Final = (*READ_FORMATS, "json", "sarif", "github")  # of a run

_DEVICE: Final = ("run", "bench", "compare", "fix", "upgrade")
_JUDGED: Final = ("run", "report")


@dataclass(frozen=True)
class Settings:
    """What several faces take. What is None was not asked for; the environment, or the project, may say more."""

    formats: ClassVar[tuple[str, ...]] = FORMATS
    """Those of `reports`."""

    mac: str | None = row(
        "text", help='The Mac to act as: "M3 Pro 18GB", "M1 8GB, macOS 14.5".', metavar="MAC", commands=_DEVICE,
        helps={"bench": "The Mac that the virtual device acts as; its speed is not simulated.",
               "upgrade": 'The Mac to ask about, with its macOS: "M3 Pro 18GB, macOS 15". Default: that of the run.'},
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
        "GPU (ANYMPS_SUBSTRATE).", words=("host", "cuda"), commands=_DEVICE,
        pytest="where tensors live and are computed: host, this machine's CPU (the default), or cuda, an NVIDIA GPU",
        variable="ANYMPS_SUBSTRATE", key="substrate", enable=True, notebook=True,
        page="what computes: `host` (the default), this machine's CPU, or `cuda`, an NVIDIA GPU",
    )  # fmt: skip
    require: str | None = row(
        "word", help="Run only on an Apple GPU, or only on the virtual device.", words=("real", "virtual"),
        commands=("run",), enable=True,
        pytest="stop (exit code 4) unless the device is of this kind: real (a Mac's own) or virtual",
    )  # fmt: skip
    fallback: bool | None = row(
        "switch", help="Run operators without an MPS kernel on the CPU, or raise (PYTORCH_ENABLE_MPS_FALLBACK). "
        "Default: the environment's setting.", commands=(*_DEVICE, "plan"),
        pytest="switch PYTORCH_ENABLE_MPS_FALLBACK on or off", variable="PYTORCH_ENABLE_MPS_FALLBACK", enable=True,
        page="as on a Mac: operators without an MPS kernel run on the CPU",
    )  # fmt: skip
    kernels: str | None = row(
        "word", help="Compute on this machine's CPU, or with PyTorch's own Metal kernels where their launches are "
        "known, after `anymps kernels add`: those of the installed torch (real) or of another release "
        "(ANYMPS_KERNELS).", words=("cpu", "real"), other="release", commands=("run", "compare"),
        pytest="compute with PyTorch's own Metal kernels, of the installed torch (real) or a release, where their "
        "launches are known",
        variable="ANYMPS_KERNELS", enable=True, notebook=True,
        page="with `real`, or a release such as `2.15`, PyTorch's own kernels compute the operators whose launches are "
        "known ([Kernels]"
        "(kernels.md#running-programs-on-them))",
    )  # fmt: skip
    cuda_as_mps: bool | None = row(
        "flag", help='Let mps answer for CUDA: torch.cuda, .cuda() and "cuda" (ANYMPS_CUDA_AS_MPS=1).',
        commands=("run", "bench", "compare", "plan", "fix", "upgrade"),
        pytest="let mps answer for CUDA: torch.cuda, .cuda() and 'cuda'",
        variable="ANYMPS_CUDA_AS_MPS", enable=True, notebook=True, page="mps answers for CUDA "
        "([CUDA](cuda.md))",
    )  # fmt: skip
    alone: bool = row(
        "flag", False, "Run one process of a script that needs several: NCCL and its transfers are skipped and "
        "reported (ANYMPS_ALONE=1).", commands=("run", "plan"), variable="ANYMPS_ALONE",
        page="a script for many GPUs runs as the only process of its group ([CUDA](cuda.md#a-script-for-many-gpus))",
    )  # fmt: skip
    check_shaders: str | None = row(
        "word", help="Check Metal kernels for data races, out-of-bounds accesses and similar bugs; slow. Of large "
        "launches a sample of threadgroups is checked, which a seed draws (1 if none is named); or all "
        "(ANYMPS_CHECK_SHADERS=1, a seed, or all).", words=("all",), other="seed", bare="1", commands=("run",),
        pytest="fail a test if a Metal kernel in it has a data race or an out-of-bounds access",
        variable="ANYMPS_CHECK_SHADERS",
        page="with a number, the seed of a sample of threadgroups, or `all`, Metal kernels are checked for data races, "
        "out-of-bounds accesses and similar bugs ([Checking kernels](metal.md#checking-kernels))",
    )  # fmt: skip
    check_numbers: str | None = row(
        "word", help="Compare operators' results with the CPU's, computed in float64: the first three calls of each "
        "signature, then calls at growing intervals; or all of them (ANYMPS_CHECK_NUMBERS=some or all).",
        words=("some", "all"), bare="some", commands=("run",),
        pytest="fail a test if an operator's result differs from the CPU's", variable="ANYMPS_CHECK_NUMBERS",
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
        "texts", (), f"Write a report, such as html=report.html; repeatable. Formats: {', '.join(FORMATS)}; "
        "- for the file is standard output.", option="report", metavar="FORMAT=FILE",
        commands=("run", "plan", "compare", "upgrade"),
        helps=dict.fromkeys(("plan", "compare", "upgrade"), "Write it to a file, such as html=report.html; repeatable. "
                            f"Formats: {', '.join(DOCUMENT_FORMATS)}; - is standard output."),
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
        """These settings, with the project's for the device where neither the user nor the environment has set one."""
        names = [row.name for row in rows() if row.enable and row.key and not os.environ.get(row.variable)]
        said: dict[str, Any] = {name: getattr(project, name) or None for name in names if getattr(self, name) is None}
        return replace(self, **said)

    def hand_on(self) -> None:
        """Set the variables of what is switched on here and is no argument of `anymps.enable`, which sets its own."""
        for setting in rows():
            value = getattr(self, setting.name)
            # An option without a value keeps the variable's value.
            named = setting.bare and value == setting.bare and asked_for(setting.name)
            if setting.variable and not setting.enable and value and not named:
                set_variable(setting.name, value)


def rows(of: type[Any] = Settings) -> tuple[Row, ...]:
    """The rows of a class, in the order of their fields."""
    return tuple(Row(name=setting.name, **setting.metadata) for setting in fields(of) if setting.metadata)


def row_of(name: str) -> Row:
    """A row that several faces share, by its name."""
    return next(row for row in rows() if row.name == name)


def variable_of(name: str) -> str:
    """The environment variable of a shared setting."""
    return row_of(name).variable


def asked_for(name: str, given: Any = None) -> Any:
    """The value of `given`, which child processes inherit, else that of the variable; None if neither is set.

    For a flag or a seed, a variable of 0 counts as not set. Raises EnableError for another text.
    """
    found = row_of(name)
    if given is not None:
        set_variable(name, given)
        return given
    text = os.environ.get(found.variable, "").strip()
    if text and not (found.takes(text) if found.words else text in ("1", "0")):
        raise EnableError(f"anymps: {found.variable}={text!r} must be {found.choices if found.words else '1 or 0'}")
    if found.words:
        return None if found.other == "seed" and text == "0" else text or None
    return True if text == "1" else None


def set_variable(name: str, value: Any) -> None:
    """Have this process and its children find a setting in the environment."""
    os.environ[variable_of(name)] = str(int(value)) if isinstance(value, bool) else str(value)
