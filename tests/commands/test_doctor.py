"""`anymps doctor` on hand-made facts: each state of the mps device, its cause and the next step, word for word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anymps.commands.doctor import _facts
from anymps.commands.doctor._command import lines, to_json, wrapped
from anymps.commands.doctor._diagnosis import Diagnosis, State, Status, diagnose
from anymps.commands.doctor._environment import explain
from anymps.commands.doctor._facts import Facts, relevant
from anymps.commands.doctor._facts import _container as container_of
from anymps.device import Cards
from anymps.device._driver import Card, Driver
from anymps.rules import SUPPORTED

MAC = Facts(
    system="Darwin",
    machine="arm64",
    python="3.12.4",
    macos="15.4",
    apple_silicon=True,
    torch="2.13.0",
    torch_tags=("cp312-cp312-macosx_14_0_arm64",),
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
    torch_tags=("cp311-cp311-manylinux_2_28_x86_64",),
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
        ({"sandbox": True}, "this process is in a sandbox without access to the GPU", "run python from a terminal"),
        (
            {"translated": True, "machine": "x86_64"},
            "this Python is built for Intel and runs under Rosetta; Metal devices for PyTorch need an arm64 process",
            ROSETTA_STEP,
        ),
        (
            {},
            (
                "macOS shows PyTorch no Metal GPU, although this is not a virtual machine, not a sandbox, and macOS is "
                "new enough"
            ),
            "check whether macOS sees a GPU: system_profiler SPDisplaysDataType",
        ),
        (
            {"macos": "10.16"},  # what old Pythons are told; no reason to call the system old
            (
                "macOS shows PyTorch no Metal GPU, although this is not a virtual machine, not a sandbox, and macOS is "
                "new enough"
            ),
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
            {"machine": "x86_64", "translated": True, "torch_tags": ("cp312-cp312-macosx_11_0_x86_64",)},
            "this Python is built for Intel and runs under Rosetta; an Intel build of torch has no mps device",
            [ROSETTA_STEP],
        ),
        (
            {"machine": "x86_64", "apple_silicon": False},
            "this Mac has an Intel processor; PyTorch has no builds for it since torch 2.3",
            [],
        ),
        (
            {"torch": "2.13.0+cu128", "torch_cuda": "12.8"},
            "this torch is a CUDA build (CUDA 12.8)",
            ["install the macOS build: pip install torch"],
        ),
        (
            {"torch_tags": ("cp312-cp312-manylinux_2_28_x86_64",)},
            "this torch is not a build for Apple silicon (wheel cp312-cp312-manylinux_2_28_x86_64)",
            ["install the right one: pip install --force-reinstall torch"],
        ),
        (
            {},
            "this torch was built without MPS (USE_MPS=0), as some source and third-party builds are",
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
    """On Linux no torch has mps; the virtual device is the answer."""
    diagnosis = diagnose(LINUX)
    assert (diagnosis.state, diagnosis.device) == (State.NOT_BUILT, "virtual")
    assert diagnosis.why == ["this is Linux; only PyTorch's builds for Macs with Apple silicon have the mps device"]
    assert diagnosis.next_steps == [VIRTUAL_STEP]
    assert problems(diagnosis) == {}


def test_container() -> None:
    """In a container it is said that a Mac underneath does not help."""
    diagnosis = diagnose(replace(LINUX, container="Docker"))
    assert diagnosis.why[1] == "Docker: a container runs Linux even on a Mac, and cannot reach the Mac's GPU"
    assert diagnosis.next_steps[0] == "on a Mac: run python outside of the container for the real device"


def test_no_torch() -> None:
    """Without torch there is no device of any kind, and the answer is how to install it."""
    diagnosis = diagnose(replace(LINUX, torch=None, torch_tags=(), core_built=None))
    assert (diagnosis.state, diagnosis.device) == (State.NO_TORCH, "none")
    assert diagnosis.why == ["torch is not installed"]
    assert diagnosis.next_steps == [
        f"install torch {SUPPORTED}: pip install torch",
        "or diagnose the environment that has it: anymps doctor --python PATH",
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


def test_wrong_cxx_and_no_ninja() -> None:
    """A compiler that was named but cannot run is BAD; ninja is only a convenience."""
    text = "the C++ compiler CXX=nope cannot be run: correct CXX, or unset it"
    diagnosis = diagnose(replace(LINUX, compiler=None, compiler_error=text, ninja=False))
    assert problems(diagnosis) == {
        "compiler": (Status.BAD, text),
        "ninja": (Status.WARN, "not found: the build runs without it (pip install ninja)"),
    }


H100 = Card(0, "NVIDIA H100 80GB HBM3", 80 << 30, 79 << 30, (9, 0))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            Cards("2.13.0+cpu", None, (), None),
            "none for --substrate cuda: the cuda substrate needs a torch that is built for CUDA, and 2.13.0+cpu is "
            "not: install that build (pytorch.org/get-started), or use the host substrate",
        ),
        (
            Cards("2.13.0+cu130", "13.0", ("sm_90",), Driver((13, 0), (replace(H100, free=1 << 20),))),
            "none for --substrate cuda: card 0 (NVIDIA H100 80GB HBM3) is full: other processes have 80.0 of 80.0 GiB. "
            "End them (nvidia-smi names them), or choose another card with CUDA_VISIBLE_DEVICES",
        ),
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_no_card_for_the_cuda_substrate(found: Cards, text: str, wanted: bool) -> None:
    """It says why; that is a warning only where the substrate is asked for."""
    environment = {"ANYMPS_SUBSTRATE": "cuda"} if wanted else {}
    diagnosis = diagnose(replace(LINUX, cards=found, environment=environment))
    (check,) = (check for check in diagnosis.checks if check.name == "NVIDIA card")
    assert (check.status, check.text) == (Status.WARN if wanted else Status.OK, text)
    assert diagnosis.device == "virtual"


def test_cards_for_the_cuda_substrate() -> None:
    """Each that can compute, with its memory."""
    cards = (H100, replace(H100, number=1, free=None), replace(H100, number=2, free=0))
    found = Cards("2.13.0+cu130", "13.0", ("sm_90",), Driver((13, 0), cards))
    facts = replace(LINUX, cards=found)
    assert (
        "NVIDIA card      cuda:0, NVIDIA H100 80GB HBM3, 79.0 of 80.0 GiB free; cuda:1, NVIDIA H100 80GB HBM3, "
        "80.0 GiB (--substrate cuda)"
    ) in lines(facts, diagnose(facts))
    document = json.loads(to_json(facts, diagnose(facts)))
    assert document["facts"]["cards"]["driver"]["cards"][0]["name"] == "NVIDIA H100 80GB HBM3"


def test_whole_text() -> None:
    """The answer is plain lines: state, cause, what anymps gives, next step, then all that was looked at."""
    facts = replace(
        LINUX,
        container="Docker",
        core_built=False,
        environment={"ANYMPS_MAC": "M1 8GB", "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "off"},
    )
    assert "\n".join(lines(facts, diagnose(facts))) == (
        "mps in torch     not built: this torch has no mps device of its own\n"
        "  because        this is Linux; only PyTorch's builds for Macs with Apple silicon have the mps device\n"
        "  because        Docker: a container runs Linux even on a Mac, and cannot reach the Mac's GPU\n"
        "mps with anymps  virtual: anymps acts as a Mac on this machine's CPU\n"
        "next             on a Mac: run python outside of the container for the real device\n"
        "next             for the virtual device: anymps run SCRIPT, or anymps.enable() in your own code\n"
        "\n"
        "machine          Linux, x86_64, in Docker\n"
        "anymps           0.1.0, Python 3.11.7\n"
        f"torch            2.13.0+cpu (supported: {SUPPORTED})\n"
        "native core      not built yet: the first use builds it, once, in a minute or two\n"
        "compiler         c++ (Debian 12.2.0) 12.2.0\n"
        "environment\n"
        "  ANYMPS_MAC=M1 8GB\n"
        "                 a setting of anymps\n"
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


def test_json() -> None:
    """`--json` holds the diagnosis and every fact under its name."""
    document = json.loads(to_json(MAC, diagnose(MAC)))
    assert document["state"] == "available"
    assert document["device"] == "real"
    assert document["checks"] == [{"name": "torch", "status": "ok", "text": f"2.13.0 (supported: {SUPPORTED})"}]
    assert document["facts"]["macos"] == "15.4"
    assert document["facts"]["torch_tags"] == ["cp312-cp312-macosx_14_0_arm64"]


HIGH, LOW = "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO"
RAISES = "the first allocation raises RuntimeError: "


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({HIGH: "1.8"}, [("out of memory above 1.8 times the recommended working set", False)]),
        ({HIGH: "0"}, [("no upper limit: macOS may run out of memory", False)]),
        ({HIGH: "off"}, [("not a number: C's strtod makes 0 of it, so the limit is off", True)]),
        ({HIGH: ""}, [("not a number: C's strtod makes 0 of it, so the limit is off", True)]),
        ({HIGH: "1.5GB"}, [("out of memory above 1.5 times the recommended working set", False)]),
        ({HIGH: "2.5"}, [(RAISES + "invalid high watermark ratio 2.5", True)]),
        ({HIGH: "-1"}, [(RAISES + "invalid high watermark ratio -1", True)]),
        ({HIGH: "nan"}, [(RAISES + "invalid high watermark ratio nan", True)]),
        # The default low ratio is 1.4, so a smaller high ratio alone is refused.
        ({HIGH: "0.8"}, [(RAISES + f"invalid low watermark ratio 1.4; set {LOW} to 0.8 or less as well", True)]),
        (
            {HIGH: "0.8", LOW: "0.7"},
            [
                ("out of memory above 0.8 times the recommended working set", False),
                ("unused memory is given back above 0.7 times the recommended working set", False),
            ],
        ),
        (
            {HIGH: "0.8", LOW: "0.9"},
            [
                ("out of memory above 0.8 times the recommended working set", False),
                (RAISES + "invalid low watermark ratio 0.9", True),
            ],
        ),
        ({LOW: "1.9"}, [(RAISES + "invalid low watermark ratio 1.9", True)]),
        ({LOW: "0"}, [("no collection before the upper limit", False)]),
        # Without an upper limit the low ratio may go up to 2.
        (
            {HIGH: "0", LOW: "1.9"},
            [
                ("no upper limit: macOS may run out of memory", False),
                ("unused memory is given back above 1.9 times the recommended working set", False),
            ],
        ),
        ({"PYTORCH_ENABLE_MPS_FALLBACK": "0"}, [("operators without an MPS kernel raise NotImplementedError", False)]),
        (
            {"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
            [("operators without an MPS kernel run on the CPU (must be set before torch is imported)", False)],
        ),
        (
            {"PYTORCH_ENABLE_MPS_FALLBACK": "true"},
            [("not a number: std::stoi throws when torch is loaded; use 1 or 0", True)],
        ),
        (
            {"PYTORCH_DEBUG_MPS_ALLOCATOR": "0x5", "TORCH_CPP_LOG_LEVEL": "INFO"},
            [
                ("the allocator logs: limits, recycling", False),
                ("what torch's C++ side logs", False),
            ],
        ),
        (
            {"PYTORCH_DEBUG_MPS_ALLOCATOR": "2"},
            [("the allocator logs: allocations; torch 2.13 shows it only with TORCH_CPP_LOG_LEVEL=INFO", True)],
        ),
        ({"PYTORCH_MPS_FAST_MATH": "1"}, [("fast math in Metal code that is compiled at run time: on", False)]),
        (
            {"PYTORCH_MPS_PREFER_METAL": "yes"},
            [("matrix products by PyTorch's Metal kernels in place of MPSGraph: off", False)],
        ),
        (
            {"PYTORCH_MPS_METAL_VERSION": "new"},
            [("not a version such as 3.2: torch 2.15 warns and ignores it", True)],
        ),
        ({"PYTORCH_MPS_ALLOC_CONF": "x"}, [("no release of torch up to 2.15 reads this variable", True)]),
        ({"MTL_CAPTURE_ENABLED": "1"}, [("Metal allows GPU traces (read when the process starts)", False)]),
    ],
)
def test_environment(environment: dict[str, str], expected: list[tuple[str, bool]]) -> None:
    """Each variable is explained as the backend reads it; what does not do what it seems to is a warning."""
    notes = explain(environment, (2, 13))
    assert [(note.text, note.wrong) for note in notes] == expected
    assert [(note.name, note.value) for note in notes] == list(environment.items())


def test_allocator_log_before_it_went_through_c10() -> None:
    """Up to torch 2.12 the allocator's log needs no second variable."""
    (note,) = explain({"PYTORCH_DEBUG_MPS_ALLOCATOR": "31"}, (2, 12))
    assert note.text == "the allocator logs: limits, allocations, recycling, releases, large pools only"
    assert not note.wrong


def test_which_variables_are_looked_at() -> None:
    """Variables of the backend, of Metal captures and our own are taken, in order of name; others are not."""
    environment = {"PYTORCH_MPS_FAST_MATH": "1", "HOME": "/home/me", "ANYMPS_MAC": "M1 8GB", "MTL_CAPTURE_ENABLED": "1"}
    assert list(relevant(environment)) == ["ANYMPS_MAC", "MTL_CAPTURE_ENABLED", "PYTORCH_MPS_FAST_MATH"]


def test_container_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker, Podman, Kubernetes and WSL are known by the marks that they leave."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert container_of(tmp_path) is None
    release = tmp_path / "proc" / "sys" / "kernel" / "osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("5.15.153.1-microsoft-standard-WSL2\n")
    assert container_of(tmp_path) == "WSL"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert container_of(tmp_path) == "Kubernetes"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".containerenv").touch()
    assert container_of(tmp_path) == "Podman"
    (tmp_path / ".dockerenv").touch()
    assert container_of(tmp_path) == "Docker"


def test_facts_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS is asked through sw_vers and sysctl, with the switch that makes it tell old Pythons the truth."""
    answers = {
        ("sw_vers", "-productVersion"): "15.4",
        ("sysctl", "-n", "hw.optional.arm64"): "1",
        ("sysctl", "-n", "sysctl.proc_translated"): "1",
        ("sysctl", "-n", "kern.hv_vmm_present"): "0",
    }
    asked: list[dict[str, str]] = []

    def answer(command: list[str], **environment: str) -> str:
        asked.append(environment)
        return answers[tuple(command)]

    monkeypatch.setattr(_facts, "_answer", answer)
    monkeypatch.delenv("APP_SANDBOX_CONTAINER_ID", raising=False)
    assert _facts._mac_facts() == {
        "macos": "15.4",
        "apple_silicon": True,
        "translated": True,
        "virtual_machine": False,
        "sandbox": False,
    }
    assert asked[0] == {"SYSTEM_VERSION_COMPAT": "0"}


def test_facts_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gathering works here, changes nothing, and feeds a diagnosis."""
    torch = pytest.importorskip("torch", reason="compares with the installed torch")
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    facts = _facts.gather()
    assert facts.torch == torch.__version__
    assert facts.cache == str(tmp_path / "cache" / "native")
    assert facts.cache_writable
    assert facts.core_built is False
    assert facts.environment["ANYMPS_CACHE_DIR"] == str(tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []
    assert diagnose(facts).state in State


def test_the_room_that_shaders_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their size and limit, once there are any; a limit that is no number is said."""
    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ANYMPS_SHADER_CACHE_MB", raising=False)
    assert "shader cache" not in {check.name for check in diagnose(_facts.gather()).checks}
    (tmp_path / "metal" / "kernels").mkdir(parents=True)
    (tmp_path / "metal" / "kernels" / "made.so").write_bytes(bytes(3 << 20))
    (check,) = [check for check in diagnose(_facts.gather()).checks if check.name == "shader cache"]
    assert check.status is Status.OK
    assert check.text == (
        f"3 MB of compiled Metal shaders in {tmp_path}/metal. Above 1,024 MB the oldest are deleted "
        "(ANYMPS_SHADER_CACHE_MB)"
    )
    monkeypatch.setenv("ANYMPS_SHADER_CACHE_MB", "much")
    (check,) = [check for check in diagnose(_facts.gather()).checks if check.name == "shader cache"]
    assert check.status is Status.WARN
    assert check.text == (
        f"3 MB of compiled Metal shaders in {tmp_path}/metal; ANYMPS_SHADER_CACHE_MB is not a number of megabytes"
    )
