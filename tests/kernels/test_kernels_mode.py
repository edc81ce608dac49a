"""`kernels="real"`: whole programs on PyTorch's own kernels, what refuses that, and how much of a run it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from anymps.findings import Story
from anymps.report import own_kernels_sentence, render_summary, render_terminal
from anymps.report._checked import own_kernels, own_kernels_object
from anymps.rules import parse_torch_version
from kernel_files import add_to_cache, elementwise, needs_kernels
from own_cache import new_cache
from processes import MAC, Result, run_command, run_with_torch
from recordings import training

RELEASE = torch.__version__.partition("+")[0]
REAL = f"import anymps, torch\nanymps.enable({MAC!r}, kernels='real')\n"
MINOR = parse_torch_version(RELEASE).release
FIRST = "        " + REAL.replace("\n", "\n        ")


@pytest.fixture
def cache(tmp_path: Path, virtual_device: None) -> Path:
    """A cache without kernels."""
    return new_cache(tmp_path / "cache")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, virtual_device: None) -> dict[str, str]:
    """The environment of a program whose kernels of a sum take the difference, so that it shows who computed.

    One cache for all tests: the first program that runs a kernel compiles it.
    """
    texts = {
        "add_dense_float_float": elementwise("add_dense_float_float", "fsub"),
        "add_dense_scalar_float_float": elementwise("add_dense_scalar_float_float", "fsub", "0"),
    }
    return add_to_cache(new_cache(tmp_path_factory.mktemp("kernels") / "cache"), texts, RELEASE)


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["import torch", *lines]) + "\n")
    return str(path)


def anymps(*words: str, env: dict[str, str]) -> Result:
    return run_command("-m", "anymps", *words, env=env)


def test_the_reports_say_which_share(kernels: dict[str, str], tmp_path: Path) -> None:
    """The short report, the whole one, and JSON."""
    source = script(tmp_path / "train.py", "x = torch.ones(8, device='mps')", "for _ in range(6): y = x + x", "y * y")
    result = anymps("run", "--kernels", "real", "--report", f"json={tmp_path / 'r.json'}", source, env=kernels)
    assert result.status == 0, result.err
    said = next(line for line in result.err.splitlines() if "own kernels computed" in line)
    assert said.startswith("PyTorch's own kernels computed 6 of ")
    share = json.loads((tmp_path / "r.json").read_text())["real_kernels"]
    assert share["operators"] == {"aten::add.Tensor": 6}
    assert share["calls"] == 6
    assert share["of"] >= 7


def test_tests_say_which_share(kernels: dict[str, str], tmp_path: Path) -> None:
    """The section of pytest counts all tests together."""
    script(tmp_path / "test_it.py", "def test_it():", "    x = torch.ones(2, device='mps')", "    x + x; x - x")
    result = run_command(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--mps", "--mps-kernels=real", str(tmp_path / "test_it.py")),
        env=kernels,
    )
    assert result.status == 0, result.out
    said = next(line for line in result.out.splitlines() if "own kernels computed" in line)
    assert said.startswith("PyTorch's own kernels computed 1 of ")


def test_child_processes_do_the_same(kernels: dict[str, str]) -> None:
    """The choice is in the environment, and what a program says goes before it."""
    code = """
        import os, subprocess, sys, anymps
        print(anymps.enable("M1 8GB").kernels)
        sys.stdout.flush()
        child = "import os, anymps; print(anymps.enable('M1 8GB', kernels='cpu').kernels, os.environ['ANYMPS_KERNELS'])"
        subprocess.run([sys.executable, "-c", child], check=True)
    """
    assert run_with_torch(code, {**kernels, "ANYMPS_KERNELS": "real"}).lines == ["real", "cpu cpu"]


def test_what_is_refused(cache: Path) -> None:
    """Another word, a device that computes nothing, kernels that are not there: one line, and no device."""
    code = """
        import anymps
        for given in {"kernels": "metal"}, {"kernels": "real", "substrate": "shape"}, {"kernels": "real"}:
            try:
                anymps.enable("M1 8GB", **given)
            except anymps.AnympsError as error:
                print(anymps.is_virtual(), error)
        print(anymps.enable("M1 8GB", kernels="cpu").kernels)
        try:
            anymps.enable("M1 8GB", kernels="real")
        except anymps.EnableError as error:
            print(error)
    """
    assert run_with_torch(code, {"ANYMPS_CACHE_DIR": str(cache)}).lines == [
        "False anymps: kernels='metal' must be cpu, real or a release of torch, such as 2.15",
        "False anymps: kernels='real' and substrate='shape' can't be combined",
        f"False the Metal kernels of torch {RELEASE} have not been added: run `anymps kernels add --download`",
        "cpu",
        "anymps: the device is already on with kernels='cpu'; start a new process for kernels='real'",
    ]


def test_a_mac_of_its_own_needs_no_mode() -> None:
    """There the kernels run anyway."""
    code = """
        import anymps, torch
        torch.backends.mps.is_built = torch.backends.mps.is_available = lambda: True
        try:
            anymps.enable(kernels="real")
        except anymps.EnableError as error:
            print(error)
    """
    assert run_with_torch(code).lines == [
        "anymps: kernels='real' is for the virtual device; this Mac runs PyTorch's own kernels anyway"
    ]


WORTH = (
    "That is the same kernel code as the Mac, up to what Apple's driver does with exp, log, sin and division, and to "
    "the order inside a simd group. This machine's CPU computed the others."
)


def test_the_words_of_a_share() -> None:
    """How many calls of how many."""
    assert own_kernels_sentence(310, 1024) == "PyTorch's own kernels computed 310 of 1,024 calls on mps (30 %)."
    assert own_kernels_sentence(0, 1) == "PyTorch's own kernels computed 0 of 1 call on mps."


def test_a_recording_without_real_kernels_says_nothing() -> None:
    """No sentence in any report, and null for programs."""
    recording = training().close()
    assert own_kernels(recording.run, recording.operators()) is None
    assert own_kernels_object(recording.run, recording.operators()) is None
    assert "own kernels" not in render_terminal(Story.of(recording), []) + render_summary(Story.of(recording), [])


def test_a_recording_with_real_kernels_says_it_everywhere() -> None:
    """The short report has the count, the whole one what it is worth, too."""
    recording = training(real_calls={"aten::add.Tensor": 12}).close()
    share = own_kernels(recording.run, recording.operators())
    assert share is not None
    assert share.in_full == f"{share.in_short} {WORTH}"
    assert share.in_short in render_summary(Story.of(recording), [])
    assert share.in_full in " ".join(render_terminal(Story.of(recording), []).split())


def test_a_model_trains_on_real_kernels_and_known_bugs_show() -> None:
    """Losses are those of the CPU; a 0-dim CPU view in a binary operator is read at its storage's start up to 2.13."""
    needs_kernels(RELEASE)
    code = """
        import torch
        torch.manual_seed(0)
        def losses(device):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
            x = torch.randn(5, 7)
            model, x = model.to(device), x.to(device)
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(3):
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                yield loss.item()
        on_cpu = list(losses("cpu"))
    """
    after = """
        on_mps = list(losses("mps"))
        torch.testing.assert_close(torch.tensor(on_mps), torch.tensor(on_cpu))
        from anymps.device import real_calls
        print(sum(real_calls().values()) > 50, {"aten::gelu", "aten::gelu_backward"} <= real_calls().keys())
        table = torch.tensor([1.0, 2.0, 3.0])
        print((torch.zeros(2, device="mps") + table[2]).tolist())
    """
    lines = run_with_torch(f"{FIRST}{code}{after}").lines
    assert lines == ["True True", "[1.0, 1.0]" if (2, 12) <= MINOR < (2, 14) else "[3.0, 3.0]"]


def test_rows_bags_and_windows_on_real_kernels() -> None:
    """Norms, extremes and bags are the CPU's; the window of an uneven pool and a bad index of a bag are the Mac's."""
    needs_kernels(RELEASE)
    code = """
        import torch.nn.functional as F
        x = torch.randn(4, 6, 50)
        y = x.to("mps")
        for f in (
            lambda t: t.amax(-1), lambda t: t.argmin(2), lambda t: t.argmax(), lambda t: (t > 0).any(-1),
            lambda t: (t > 0).all(), lambda t: (t > 0).count_nonzero(), lambda t: t.amin((1, 2), keepdim=True),
        ):
            assert torch.equal(f(y).cpu(), f(x))
        torch.testing.assert_close(F.layer_norm(y, (50,)).cpu(), F.layer_norm(x, (50,)))
        weight = torch.arange(15.0).view(5, 3)
        indices, offsets = torch.tensor([0, 1, 2, 4, 4]), torch.tensor([0, 2])
        for mode in ("sum", "mean", "max"):
            bag = F.embedding_bag(indices.to("mps"), weight.to("mps"), offsets.to("mps"), mode=mode)
            assert torch.equal(bag.cpu(), F.embedding_bag(indices, weight, offsets, mode=mode))
        one = torch.tensor([0], device="mps")
        F.embedding_bag(one + 5, weight.to("mps"), one, mode="sum").cpu()  # one too large, and no error
        print(F.adaptive_max_pool2d(torch.arange(25.0).view(1, 5, 5).to("mps"), 3).flatten().int().tolist())
        try:
            F.embedding_bag(one + 6, weight.to("mps"), one, mode="sum").cpu()
        except RuntimeError as error:
            print(error)
    """
    assert run_with_torch(f"{FIRST}{code}").lines == [
        "[12, 13, 14, 17, 18, 19, 22, 23, 24]",
        "Index 0 is out of bounds: 6, range 0 to 5",
    ]


def test_a_known_fault_of_an_offered_call_is_told_once() -> None:
    """MPS634, by the form of the call that the launcher takes."""
    needs_kernels(RELEASE)
    code = """
        with anymps.record() as capture:
            x, weight = torch.ones(4, 8, dtype=torch.float16, device="mps"), torch.ones(8, device="mps")
            torch.nn.functional.layer_norm(x, (8,), weight)
        print([(found.operator, found.count) for found in capture.recording.hazards()])
    """
    (line,) = run_with_torch(f"{FIRST}{code}").lines
    assert line == ("[('anymps::hazard.MPS634 aten::native_layer_norm', 1)]" if MINOR < (2, 14) else "[]")


def test_integers_divided_by_zero_go_on() -> None:
    """As on a Mac, and as without the mode: MPS618, and no error."""
    needs_kernels(RELEASE)
    code = """
        x, zero = torch.tensor([7, -7], device="mps"), torch.tensor([0, 2], device="mps")
        with anymps.record() as capture:
            print((x // zero).tolist(), (x % zero).tolist(), torch.fmod(x, zero).tolist())
        print([(found.operator, found.count) for found in capture.recording.hazards()])
    """
    assert run_with_torch(f"{FIRST}{code}").lines == [
        "[7, -4] [0, 1] [0, -1]",
        "[('anymps::hazard.MPS618 aten::floor_divide', 1), ('anymps::hazard.MPS618 aten::remainder.Tensor', 1), "
        "('anymps::hazard.MPS618 aten::fmod.Tensor', 1)]",
    ]
