"""`anymps doctor` on hand-made facts: each state of the mps device, its cause and the next step, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anymps.commands.doctor._command import lines, wrapped
from anymps.commands.doctor._diagnosis import Diagnosis, State, Status, diagnose
from anymps.commands.doctor._facts import Facts
from anymps.device import Gpus
from anymps.device._gpus import Driver, Gpu
from anymps.rules import SUPPORTED

MAC = Facts(
    system="Darwin",
    machine="arm64",
    python="3.12.4",
    macos="15.4",
    torch="2.13.0",
    mps_built=True,
    mps_available=True,
    core_built=False,
    cache="/Users/me/Library/Caches/anymps/native",
    compiler="Apple clang version 17.0.0",
    anymps="0.1.0",
)
LINUX = Facts(
    system="Linux",
    machine="x86_64",
    python="3.11.7",
    torch="2.13.0+cpu",
    core_built=True,
    cache="/var/cache/native",
    compiler="c++ (Debian 12.2.0) 12.2.0",
    anymps="0.1.0",
)
ROSETTA_STEP = "install an arm64 Python (platform.machine() must say arm64), and torch with it"
VIRTUAL_STEP = "for the virtual device: anymps run SCRIPT, or anymps.enable() in your own code"


def problems(diagnosis: Diagnosis) -> dict[str, tuple[Status, str]]:
    """The checks that are not ok."""
    return {check.name: (check.status, check.text) for check in diagnosis.checks if check.status is not Status.OK}


def test_available() -> None:
    """On a Mac that has it, mps is the real device and there is nothing to do."""
    diagnosis = diagnose(MAC)
    assert (diagnosis.state, diagnosis.device, diagnosis.why) == (State.AVAILABLE, "real", [])
    assert diagnosis.next_steps == ["anymps run SCRIPT, or anymps.enable() in your own code"]
    assert problems(diagnosis) == {}
    # No compiler is asked for: the real device needs none.
    assert [check.name for check in diagnosis.checks] == ["torch"]


def test_available_in_a_virtual_mac() -> None:
    """A virtual Mac with a GPU is used, with a warning about its numbers."""
    diagnosis = diagnose(replace(MAC, virtual_machine=True))
    assert diagnosis.device == "real"
    text = "a virtual Mac: its GPU has been seen to compute wrong numbers"
    assert problems(diagnosis) == {"machine": (Status.WARN, text)}


@pytest.mark.parametrize(
    ("torch", "macos", "oldest", "text", "more"),
    [
        ("2.11.0", "13.6", 14, "The MPS backend is supported on MacOS 14.0+.", []),
        ("2.13.0", "13.6", 14, "The MPS backend is supported on macOS 14.0+.", []),
        (
            "2.15.0",
            "14.7",
            15,
            "The MPS backend is supported on macOS 15.0+.",
            ["or install torch 2.14 or older, which accepts macOS 14: pip install 'torch<2.15'"],
        ),
    ],
)
def test_macos_too_old(torch: str, macos: str, oldest: int, text: str, more: list[str]) -> None:
    """A macOS older than this torch accepts is named with the backend's own words, which differ by release."""
    diagnosis = diagnose(replace(MAC, torch=torch, macos=macos, mps_available=False))
    assert diagnosis.state is State.NOT_AVAILABLE
    full = f"{text} Current OS version can be queried using `sw_vers`"
    assert diagnosis.why == [f"macOS {macos} is too old for torch {torch}: {full}"]
    assert diagnosis.next_steps == [f"update macOS to {oldest}.0 or newer", *more, VIRTUAL_STEP]
    assert diagnosis.device == "virtual"


@pytest.mark.parametrize(
    ("change", "why", "step"),
    [
        (
            {"virtual_machine": True},
            "macOS runs in a virtual machine without access to the GPU",
            "give the virtual machine a GPU (Apple's paravirtualised graphics), or run on the Mac itself",
        ),
        (
            {"translated": True, "machine": "x86_64"},
            "this Python is built for Intel and runs under Rosetta; Metal devices for PyTorch need an arm64 process",
            ROSETTA_STEP,
        ),
        (
            {},
            "macOS shows PyTorch no Metal GPU, although this is not a virtual machine and macOS is new enough",
            "check whether macOS sees a GPU: system_profiler SPDisplaysDataType",
        ),
        (
            {"macos": "10.16"},  # what old Pythons are told; no reason to call the system old
            "macOS shows PyTorch no Metal GPU, although this is not a virtual machine and macOS is new enough",
            "check whether macOS sees a GPU: system_profiler SPDisplaysDataType",
        ),
    ],
)
def test_built_but_not_available(change: dict[str, object], why: str, step: str) -> None:
    """Where torch has mps and the machine does not let it work, the cause is told with what to do about it."""
    diagnosis = diagnose(replace(MAC, mps_available=False, **change))  # type: ignore[arg-type]
    assert diagnosis.state is State.NOT_AVAILABLE
    assert (diagnosis.why, diagnosis.next_steps) == ([why], [step, VIRTUAL_STEP])


@pytest.mark.parametrize(
    ("change", "why", "steps"),
    [
        (
            {"machine": "x86_64", "translated": True},
            "this Python is built for Intel and runs under Rosetta; an Intel build of torch has no mps device",
            [ROSETTA_STEP],
        ),
        (
            {"machine": "x86_64"},
            "this Mac has an Intel processor; PyTorch has no builds for it since torch 2.3",
            [],
        ),
        (
            {},
            "this torch was built without MPS, as are builds for other systems and some of those from source",
            ["install PyTorch's own wheel: pip install --force-reinstall torch"],
        ),
    ],
)
def test_not_built_on_a_mac(change: dict[str, object], why: str, steps: list[str]) -> None:
    """On a Mac a torch without mps is the wrong build, and which one is told."""
    diagnosis = diagnose(replace(MAC, mps_built=False, mps_available=False, **change))  # type: ignore[arg-type]
    assert diagnosis.state is State.NOT_BUILT
    assert (diagnosis.why, diagnosis.next_steps) == ([why], [*steps, VIRTUAL_STEP])


def test_not_built_on_linux() -> None:
    """On Linux no torch has mps, even in a container on a Mac; the virtual device is the answer."""
    diagnosis = diagnose(LINUX)
    assert (diagnosis.state, diagnosis.device) == (State.NOT_BUILT, "virtual")
    assert diagnosis.why == [
        "this is Linux; only PyTorch's builds for Macs with Apple silicon have the mps device, and containers run "
        "Linux even on a Mac"
    ]
    assert diagnosis.next_steps == [VIRTUAL_STEP]
    assert problems(diagnosis) == {}


def test_no_torch() -> None:
    """Without torch there is no device of any kind, and the answer is how to install it."""
    diagnosis = diagnose(replace(LINUX, torch=None, core_built=None))
    assert (diagnosis.state, diagnosis.device) == (State.NO_TORCH, "none")
    assert diagnosis.why == ["torch is not installed"]
    assert diagnosis.next_steps == [
        f"install torch {SUPPORTED}: pip install torch",
        "or install anymps in the environment that has it",
    ]
    assert problems(diagnosis) == {"torch": (Status.BAD, "not installed")}


def test_torch_that_cannot_be_imported() -> None:
    """A torch that is broken is told from one that is missing, with the error of its import."""
    diagnosis = diagnose(replace(LINUX, torch_error="OSError: libcudart.so.12: cannot open shared object file"))
    assert (diagnosis.state, diagnosis.device) == (State.NO_TORCH, "none")
    assert diagnosis.why == ["torch cannot be imported: OSError: libcudart.so.12: cannot open shared object file"]
    assert problems(diagnosis) == {"torch": (Status.BAD, "2.13.0+cpu, cannot be imported")}


@pytest.mark.parametrize("torch", ["2.10.0", "2.99.1+cpu", "a private build"])
def test_unsupported_torch(torch: str) -> None:
    """A torch outside of the supported range stops everything, unless it is let through by name."""
    outside = f"{torch} is outside of the supported range {SUPPORTED}"
    diagnosis = diagnose(replace(LINUX, torch=torch))
    assert diagnosis.device == "none"
    assert problems(diagnosis)["torch"] == (Status.BAD, f"{outside}: install torch {SUPPORTED}")
    allowed = diagnose(replace(LINUX, torch=torch, environment={"ANYMPS_ALLOW_ANY_TORCH": "1"}))
    assert allowed.device == "virtual"
    assert problems(allowed)["torch"] == (Status.WARN, f"{outside}, allowed by ANYMPS_ALLOW_ANY_TORCH=1")


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"compiler": None}, "compiler", "none found: install one (g++, clang++), or name it in CXX"),
        (
            {"python_headers": False},
            "Python.h",
            "missing: install the development package of Python 3.11.7",
        ),
        (
            {"cache_writable": False},
            "cache",
            "/var/cache/native cannot be written: make it writable, or name another place in ANYMPS_CACHE_DIR",
        ),
    ],
)
def test_what_a_build_needs(change: dict[str, object], name: str, text: str) -> None:
    """What is missing for a build stops the virtual device, but only warns where the core is built already."""
    unbuilt = diagnose(replace(LINUX, core_built=False, **change))  # type: ignore[arg-type]
    assert (unbuilt.device, problems(unbuilt)) == ("none", {name: (Status.BAD, text)})
    built = diagnose(replace(LINUX, core_built=True, **change))  # type: ignore[arg-type]
    assert (built.device, problems(built)) == ("virtual", {name: (Status.WARN, text)})


def test_wrong_cxx() -> None:
    """A compiler that was named but cannot run is BAD."""
    text = "the C++ compiler CXX=nope cannot be run: correct CXX, or unset it"
    diagnosis = diagnose(replace(LINUX, compiler=None, compiler_error=text))
    assert problems(diagnosis) == {"compiler": (Status.BAD, text)}


H100 = Gpu(0, "NVIDIA H100 80GB HBM3", 80 << 30, (9, 0))


@pytest.mark.parametrize(
    ("found", "causes", "remedies"),
    [
        (
            Gpus("2.13.0+cpu", None, (), None),
            ["the cuda substrate needs a torch that is built for CUDA, and 2.13.0+cpu is not"],
            ["install that build (pytorch.org/get-started), or use the host substrate"],
        ),
        (
            Gpus(
                "2.13.0+cu130",
                "13.0",
                ("sm_90",),
                Driver((13, 0), (Gpu(0, "Tesla V100", 16 << 30, (7, 0)), Gpu(1, "Tesla P100", 16 << 30, (6, 0)))),
            ),
            [
                "torch 2.13.0+cu130 has no kernels for GPU 0 (Tesla V100), which has compute capability 7.0",
                "torch 2.13.0+cu130 has no kernels for GPU 1 (Tesla P100), which has compute capability 6.0",
            ],
            [
                "install a torch that has them (this one has those for sm_90), or choose another GPU with "
                "CUDA_VISIBLE_DEVICES",
            ]
            * 2,
        ),
    ],
)
def test_no_gpu_for_the_cuda_substrate(found: Gpus, causes: list[str], remedies: list[str]) -> None:
    """It says why; where the substrate is asked for, it also warns, and says what to do."""
    wanted = "; ".join(f"{cause}: {remedy}" for cause, remedy in zip(causes, remedies, strict=True))
    for environment, status, text in (
        ({}, Status.OK, f"none: {'; '.join(causes)}"),
        ({"ANYMPS_SUBSTRATE": "cuda"}, Status.WARN, wanted),
    ):
        diagnosis = diagnose(replace(LINUX, gpus=found, environment=environment))
        (check,) = (check for check in diagnosis.checks if check.name == "NVIDIA GPU")
        assert (check.status, check.text) == (status, text)
        assert diagnosis.device == "virtual"


def test_gpus_for_the_cuda_substrate() -> None:
    """Each that can compute, with its memory."""
    gpus = (H100, replace(H100, number=1), Gpu(2, "Tesla V100", 16 << 30, (7, 0)))
    found = Gpus("2.13.0+cu130", "13.0", ("sm_90",), Driver((13, 0), gpus))
    facts = replace(LINUX, gpus=found)
    assert (
        "NVIDIA GPU       cuda:0, NVIDIA H100 80GB HBM3, 80.0 GiB; cuda:1, NVIDIA H100 80GB HBM3, "
        "80.0 GiB (--substrate cuda)"
    ) in lines(facts, diagnose(facts))


def test_whole_text() -> None:
    """The answer is plain lines: state, cause, what anymps gives, next step, then all that was looked at."""
    facts = replace(
        LINUX,
        core_built=False,
        environment={"ANYMPS_MAC": "M1 8GB", "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "off"},
    )
    assert "\n".join(lines(facts, diagnose(facts))) == (
        "mps in torch     not built: this torch has no mps device of its own\n"
        "  because        this is Linux; only PyTorch's builds for Macs with Apple silicon have the mps device, "
        "and containers run Linux even on a Mac\n"
        "mps with anymps  virtual: anymps acts as a Mac on this machine's CPU\n"
        "next             for the virtual device: anymps run SCRIPT, or anymps.enable() in your own code\n"
        "\n"
        "machine          Linux, x86_64\n"
        "anymps           0.1.0, Python 3.11.7\n"
        f"torch            2.13.0+cpu (supported: {SUPPORTED})\n"
        "native core      not built yet: the first use builds it, once, which takes minutes\n"
        "compiler         c++ (Debian 12.2.0) 12.2.0\n"
        "environment\n"
        "  ANYMPS_MAC=M1 8GB\n"
        "  PYTORCH_MPS_HIGH_WATERMARK_RATIO=off\n"
        "                 WARN: not a number: C's strtod makes 0 of it, so the limit is off"
    )


def test_a_terminal_gets_no_longer_lines_than_it_has_room_for() -> None:
    """They go on below the second column; a file gets whole lines."""
    answer = ["machine          Linux, x86_64", "", "native core      not built yet: the first use builds it, once"]
    assert wrapped(answer, 40) == [
        "machine          Linux, x86_64",
        "",
        "native core      not built yet: the",
        "                 first use builds it,",
        "                 once",
    ]
    assert wrapped(answer, 0) == answer


def test_virtual_device_in_this_process() -> None:
    """Where the virtual device is switched on, mps is not called available: torch itself still has none."""
    facts = replace(LINUX, virtual=True, mps_built=True, mps_available=True)
    diagnosis = diagnose(facts)
    assert (diagnosis.state, diagnosis.device) == (State.NOT_BUILT, "virtual")
    assert "                 it is switched on in this process already" in lines(facts, diagnosis)
