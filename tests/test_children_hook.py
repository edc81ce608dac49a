"""The hook by which a new process finds out that a recorded script has started it: it costs nothing when it is off."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from anymps.record import Recording
from processes import SOURCE_ROOT, run_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOOK = "anymps_children.pth"
# Python reads `.pth` files by this function when it starts.
WAITS = "'_TorchFinder' in [type(finder).__name__ for finder in sys.meta_path]"
START = f"import site, sys\nsite.addpackage({str(SOURCE_ROOT)!r}, {HOOK!r}, None)\n"


def test_off_it_imports_nothing() -> None:
    """Without the variable nothing but `os`, which Python has at its start anyway, is imported."""
    code = "import site, sys\nbefore = set(sys.modules)\n" + START + "print(sorted(set(sys.modules) - before))\n"
    assert run_python(code).lines == ["[]"]


def test_on_it_waits_for_torch(tmp_path: Path) -> None:
    """With the variable a process that does not import torch loads neither torch nor the device."""
    code = START + f"print('anymps.children' in sys.modules, 'torch' in sys.modules, {WAITS})\n"
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines == ["True False True"]


def test_after_the_run_a_process_is_left_alone(tmp_path: Path) -> None:
    """Where the folder for parts is gone, torch is imported as it is, through its own loader."""
    code = START + f"import torch\nprint(torch.backends.mps.is_available(), {WAITS}, torch.__loader__.exec_module)\n"
    (line,) = run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path / "gone")}).lines
    assert line.startswith("False False <")
    assert "anymps" not in line


def test_asking_for_torch_is_not_importing_it(tmp_path: Path) -> None:
    """A library that only looks whether torch is installed leaves the hook in wait."""
    code = START + f"import importlib.util\nimportlib.util.find_spec('torch')\nprint('torch' in sys.modules, {WAITS})\n"
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines == ["False True"]


def test_the_wheel_puts_it_where_python_looks() -> None:
    """Beside the package, by that name: there Python reads `.pth` files."""
    project = tomllib.loads((SOURCE_ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {f"src/{HOOK}": HOOK}
    assert (SOURCE_ROOT / HOOK).read_text(encoding="utf-8").count("\n") == 1


def test_a_process_that_enables_the_device_itself(tmp_path: Path) -> None:
    """It may do so before it imports torch: then it is recorded from there on."""
    (tmp_path / "settings.json").write_text('{"mac": null, "source": null, "steps": null, "arguments": true}')
    code = START + "import anymps\nanymps.enable('M1 8GB', quiet=True)\nimport torch\ntorch.ones(2, device='mps')\n"
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).status == 0
    (part,) = tmp_path.glob("*.anymps")
    with Recording.open(part) as recording:
        assert (recording.meta["mac"], recording.complete) == ("M1 8GB", True)
        assert recording.entry_count > 0


def test_a_process_that_uses_a_part_of_us_first(tmp_path: Path) -> None:
    """Torch is imported in the middle of our own import: the device is there as soon as that is over."""
    (tmp_path / "settings.json").write_text('{"mac": "M1 8GB", "source": null, "steps": null, "arguments": true}')
    code = START + "import anymps.train\nimport torch, colorsys\nprint(torch.ones(2, device='mps').sum().item())\n"
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines == ["2.0"]
    (part,) = tmp_path.glob("*.anymps")
    with Recording.open(part) as recording:
        assert recording.entry_count > 0


def test_a_process_that_is_terminated_while_it_ends() -> None:
    """A pool terminates workers that are about to end: what they are closing is closed first."""
    code = """
        import os, signal
        from anymps.children import Ends

        def finish(ending):
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):
                pass
            print("closed", flush=True)
            return 0

        ends = Ends(finish, print, patient=True)
        ends.install()
        ends.finish({"status": 0})
        print("not reached")
    """
    result = run_python(code)
    assert (result.status, result.out) == (-signal.SIGTERM, "closed\n")
