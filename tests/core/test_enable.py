"""Switching the device on: what it refuses, says and leaves alone. Every test runs in a process of its own."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from anymps.rules import NEWEST, OLDEST, SUPPORTED
from processes import run_with_torch

BANNER = "anymps: VIRTUAL mps device: {mac}, torch {torch}, computed on this machine's CPU; not a real Mac\n"


def last_line(code: str, env: dict[str, str] | None = None) -> str:
    """The last line of what a script prints that must succeed."""
    return run_with_torch(code, env).lines[-1]


def test_banner_is_one_line_on_stderr() -> None:
    """The device says once, on stderr, that it is virtual and which Mac it plays; stdout stays the script's."""
    result = run_with_torch("import anymps, torch\nanymps.enable('M2 8GB')\nanymps.enable()\nprint(torch.__version__)")
    assert result.status == 0
    assert result.err == BANNER.format(mac="M2 8GB", torch=result.out.strip())


@pytest.mark.parametrize(
    ("before", "asked", "said"),
    [
        (
            "torch.ones(1, requires_grad=True).sum().backward()",
            "'M2 8GB'",
            "EnableError|False|anymps: a backward has already run in this process, and PyTorch's autograd engine takes "
            "no new device after that; call anymps.enable() before the first backward, ideally right after "
            "`import torch`",
        ),
        (
            "first = anymps.enable('M2 8GB'); assert anymps.enable('M2 8GB') is first and anymps.enable() is first",
            "'M4 16GB'",
            "EnableError|True|anymps: the device already acts as M2 8GB in this process and cannot become M4 16GB; "
            "start a new process for another Mac",
        ),
        ("", "'M3 Pro 20GB'", "MacError|False|anymps: M3 Pro has 18 or 36 GB, not 20"),
        (
            "",
            "require='real'",
            "RequireError|False|anymps: --require real, but this machine has no real mps device (see: anymps doctor)",
        ),
    ],
    ids=["a backward before", "another Mac", "no such Mac", "a real device"],
)
def test_what_is_refused(before: str, asked: str, said: str) -> None:
    """The error says why, and torch stays as it was: one process plays one Mac, which was sold."""
    code = f"""
        import torch, anymps
        {before}
        try:
            anymps.enable({asked})
        except (anymps.EnableError, anymps.MacError, anymps.RequireError) as error:
            assert torch.backends.mps.is_available() == anymps.is_virtual()
            print(type(error).__name__, anymps.is_virtual(), error, sep="|")
    """
    assert last_line(code) == said


def test_forward_before_is_fine() -> None:
    """Everything but a backward may come before: a model built and run on the CPU moves over."""
    code = """
        import torch, anymps
        model = torch.nn.Linear(2, 1)
        model(torch.ones(1, 2))
        anymps.enable("M2 8GB")
        model.to("mps")(torch.ones(1, 2, device="mps")).sum().backward()
        print(model.weight.grad)
    """
    assert last_line(code) == "tensor([[1., 1.]], device='mps:0')"


@pytest.mark.parametrize(("first", "asked"), [("'host'", "shape"), ("None", "shape"), ("'shape'", "host")])
def test_another_substrate_needs_another_process(first: str, asked: str) -> None:
    """Tensors that are there cannot lose their values, or get some; who names no substrate takes the one that is on."""
    run = run_with_torch(f"""
        import anymps
        anymps.enable(substrate={first}, quiet=True)
        anymps.enable()
        try:
            anymps.enable(substrate={asked!r})
        except anymps.EnableError as error:
            print(error)
        """)
    on = "shape" if asked == "host" else "host"
    assert run.lines == [
        f"anymps: the device is already on with substrate={on!r}; start a new process for substrate={asked!r}"
    ]


@pytest.mark.parametrize(("text", "works"), [("1", True), ("2", True), ("0", False), (" 1 ", True)])
def test_fallback_variable_is_an_integer(text: str, works: bool) -> None:
    """Any integer but 0 switches the fallback on."""
    code = """
        import torch, anymps, warnings
        warnings.simplefilter("ignore")
        anymps.enable("M2 8GB")
        try:
            torch.mode(torch.ones(2, device="mps"))
            print(True)
        except NotImplementedError:
            print(False)
    """
    assert last_line(code, {"PYTORCH_ENABLE_MPS_FALLBACK": text}) == str(works)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1", "[nan, nan] [1.0, 1.0]"),
        ("0", "[1.0, 1.0] [1.0, 1.0]"),
        ("on", "anymps: ANYMPS_STRICT_COPIES='on' must be 1 or 0"),
    ],
)
def test_strict_copies_come_from_the_environment(text: str, answer: str) -> None:
    """ANYMPS_STRICT_COPIES=1 holds the values of a non_blocking copy to the CPU back until the next wait."""
    code = """
        import torch, anymps
        try:
            anymps.enable("M2 8GB")
            x = torch.ones(2, device="mps").to("cpu", non_blocking=True)
            early = x.tolist()
            torch.mps.synchronize()
            print(early, x.tolist())
        except anymps.EnableError as error:
            print(error)
    """
    assert last_line(code, {"ANYMPS_STRICT_COPIES": text}) == answer


@pytest.mark.parametrize(
    ("argument", "variable", "answer"),
    [
        ("None", None, "None spawn spawn spawn"),
        ("None", "fork", "None fork fork fork"),
        ("'forkserver'", "fork", "None forkserver forkserver forkserver"),
        ("'system'", "fork", "None {0} {0} fork"),
        ("'thread'", None, "anymps: start_method='thread' is not a start method here; use one of {1}"),
        ("None", "thread", "anymps: ANYMPS_START_METHOD='thread' is not a start method here; use one of {1}"),
    ],
)
def test_start_method(argument: str, variable: str | None, answer: str) -> None:
    """The argument, else the variable, else macOS's spawn is the default of multiprocessing; nothing is settled."""
    code = f"""
        import multiprocessing, os
        import torch, anymps
        try:
            anymps.enable("M2 8GB", start_method={argument})
            chosen = multiprocessing.get_start_method(allow_none=True)
            context, process = multiprocessing.get_context(), torch.multiprocessing.get_start_method()
            variable = os.environ.get("ANYMPS_START_METHOD", process)
            print(chosen, context.get_start_method(), process, variable)
        except anymps.EnableError as error:
            print(error)
    """
    of_system, known = (
        multiprocessing.get_all_start_methods()[0],
        sorted([*multiprocessing.get_all_start_methods(), "system"]),
    )
    environment = {} if variable is None else {"ANYMPS_START_METHOD": variable}
    assert last_line(code, environment) == answer.format(of_system, ", ".join(known))


def test_the_programs_own_start_method_holds() -> None:
    """What was chosen before stays, and it can be chosen afterwards, once, as in any Python."""
    code = """
        import multiprocessing
        import torch, anymps
        {before}
        anymps.enable("M2 8GB")
        {after}
        print(multiprocessing.get_start_method(), multiprocessing.get_context("fork").get_start_method())
    """
    choice = "multiprocessing.set_start_method('fork')"
    assert last_line(code.format(before=choice, after="")) == "fork fork"
    assert last_line(code.format(before="", after=choice)) == "fork fork"


def test_mac_comes_from_the_environment() -> None:
    """Without an argument the variable ANYMPS_MAC names the Mac."""
    code = "import torch, anymps\nanymps.enable()\nprint(torch.backends.mps.get_name())"
    assert last_line(code, {"ANYMPS_MAC": "M4 Max 64GB"}) == "Apple M4 Max"


def test_a_child_with_another_home_uses_the_same_core(tmp_path: Path) -> None:
    """It is not compiled anew for a child process that was given a home of its own, as pytest's `pytester` does."""
    code = f"""
        import os, subprocess, sys, anymps
        from anymps.device import cache_directory
        print(cache_directory(), flush=True)
        anymps.enable()
        home = dict.fromkeys(("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME"), {str(tmp_path)!r})
        ask = "from anymps.device import cache_directory, is_built; print(cache_directory(), is_built())"
        subprocess.run([sys.executable, "-c", ask], env={{**os.environ, **home}}, check=True)
    """
    before, after = run_with_torch(code).lines
    assert after == f"{before} True"


def test_processor_is_answered_to_lightning_alone() -> None:
    """Lightning's accelerator asks for an arm processor; everybody else hears the truth."""
    code = """
        import platform
        truth = platform.processor()
        import anymps
        anymps.enable("M2 8GB")
        asked = {"__name__": "lightning.pytorch.accelerators.mps", "platform": platform}
        print(platform.processor() == truth, eval("platform.processor()", asked))
    """
    assert last_line(code) == "True arm"


def test_a_real_device_computes_by_itself() -> None:
    """On a Mac every substrate but the default is refused: it would be left out in silence."""
    code = """
        import torch, anymps
        from anymps.device import _enable
        torch.backends.mps.is_built = torch.backends.mps.is_available = lambda: True
        _enable.SUBSTRATES["elsewhere"] = "computed elsewhere"
        for substrate in ("shape", "elsewhere"):
            try:
                _enable.enable(substrate=substrate)
            except anymps.EnableError as error:
                print(error)
    """
    assert run_with_torch(code).lines == [
        "anymps: a plan needs the virtual device, and this Mac has a real one",
        "anymps: substrate='elsewhere' needs the virtual device, and this Mac has a real one",
    ]


def test_a_torch_whose_rules_are_unknown() -> None:
    """A torch outside the range is refused in one line, with the way out, before anything is touched."""
    code = """
        import torch, anymps
        from anymps.device import _enable
        from anymps.rules import parse_torch_version
        found = _enable.installed_torch()
        _enable.installed_torch = lambda: type(found)(found.path, parse_torch_version("2.99.0"), found.git_version)
        try:
            anymps.enable("M2 8GB")
        except anymps.UnsupportedTorchError as error:
            print(torch.backends.mps.is_available(), error)
    """
    assert last_line(code, {"ANYMPS_ALLOW_ANY_TORCH": "0"}) == (
        f"False anymps: torch 2.99.0 is not supported; install torch {SUPPORTED}, whose MPS rules are known"
    )


def test_a_torch_that_is_let_through() -> None:
    """With ANYMPS_ALLOW_ANY_TORCH=1 the nearest known release answers for it."""
    code = """
        from anymps.rules import check_supported
        print(check_supported("2.99.0").release, check_supported("2.3.1+cpu").release)
    """
    assert last_line(code, {"ANYMPS_ALLOW_ANY_TORCH": "1"}) == f"{NEWEST} {OLDEST}"
