"""The hook by which a new process finds out that a recorded script has started it: it costs nothing when it is off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest

from anymps.children import ChildParts, ChildSettings
from anymps.children._parts import _order
from anymps.record import Recording, RecordingBuilder
from anymps.runs.inside import DIVERT_AGAIN
from processes import PATIENCE, SOURCE_ROOT, clean_environment, run_python

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


def test_packages_that_a_later_file_adds(tmp_path: Path) -> None:
    """`.pth` files behind ours may name the folder of what we need: the path counts as it is when all are read."""
    (tmp_path / "settings.json").write_text('{"mac": "M1 8GB", "source": null, "steps": null, "arguments": true}')
    packages = [place for place in sys.path if place.endswith("site-packages")]
    assert packages
    code = (
        "import site, sys\n"
        f"packages = {packages!r}\n"
        "sys.path[:] = [place for place in sys.path if place not in packages]\n"
        f"{START}sys.path += packages\n"
        "site.execsitecustomize()\n"
        "sys.path.insert(0, '/nowhere')\n"
        "import torch\nprint(torch.ones(2, device='mps').sum().item())\n"
    )
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines == ["2.0"]


def test_what_a_process_does_first_needs_no_such_package() -> None:
    """Its writes are diverted where Python has found no package but this one yet."""
    code = (
        f"import pkgutil, sys\nsys.path.append({str(SOURCE_ROOT)!r})\nprint(pkgutil.resolve_name({DIVERT_AGAIN!r}))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<function divert_again"), done.stderr


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
    code = START + "import anymps.timing\nimport torch, colorsys\nprint(torch.ones(2, device='mps').sum().item())\n"
    assert run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines == ["2.0"]
    (part,) = tmp_path.glob("*.anymps")
    with Recording.open(part) as recording:
        assert recording.entry_count > 0


def test_a_process_that_is_terminated_while_it_ends() -> None:
    """A pool terminates workers that are about to end: what they are closing is closed first."""
    code = """
        import os, signal
        from anymps.children import ExitWatch

        def finish(ending):
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):
                pass
            print("closed", flush=True)
            return 0

        watch = ExitWatch(finish, print, patient=True)
        watch.install()
        watch.finish({"status": 0})
        print("not reached")
    """
    result = run_python(code)
    assert (result.status, result.out) == (-signal.SIGTERM, "closed\n")


def test_what_prepares_a_process_comes_first(tmp_path: Path) -> None:
    """Before any code of the program, with the text that goes with it; without a device torch is left alone."""
    (tmp_path / "first.py").write_text("def note(text):\n    print('prepared', text)\n")
    settings = ChildSettings(prepare=("first:note", "here"), device=False)
    (tmp_path / "settings.json").write_text(json.dumps(asdict(settings)))
    code = START + f"print({WAITS})\n"
    environment = {"ANYMPS_CHILDREN": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{SOURCE_ROOT}"}
    started = run_python(code, env=environment).lines
    assert started[-1] == "False"
    assert set(started[:-1]) == {"prepared here"}


def test_a_worker_writes_where_its_parent_does(tmp_path: Path) -> None:
    """Into the private folder of a run that writes nothing of the user's; what the parent wrote there, it reads."""
    private, home = tmp_path / "private", tmp_path / "home"
    private.mkdir()
    home.mkdir()
    (home / "data" / "masks").mkdir(parents=True)
    (home / "data" / "masks" / "1").touch()
    worker = (
        "import os; os.chdir(os.getcwd()); os.makedirs('r', exist_ok=True); print(open('r/a').read()); "
        "open('r/b', 'w').write('2'); print(os.listdir('data/masks'), [it.name for it in os.scandir('data/masks')])"
    )
    code = f"""
        import multiprocessing, os
        from anymps.children import ChildParts, ChildSettings
        from anymps.runs.inside import DIVERT_AGAIN, divert_writes
        divert_writes({str(private)!r})
        os.makedirs("r")
        open("r/a", "w").write("1")
        parts = ChildParts()
        parts.open(ChildSettings(prepare=(DIVERT_AGAIN, {str(private)!r}), device=False))
        process = multiprocessing.get_context("spawn").Process(target=exec, args=({worker!r},))
        process.start()
        process.join()
        print(open("r/b").read())
        parts.close()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=home,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.stdout.splitlines() == ["1", "['1'] ['1']", "2"], result.stderr
    assert list(home.iterdir()) == [home / "data"]


def test_ranks_are_in_the_order_of_their_numbers() -> None:
    """Rank 2 before rank 10, however they began; processes that are no ranks come after them, as they began."""
    names = ["3-70-rank10.anymps", "1-50.anymps", "4-80-rank2.anymps", "2-60.part", "9-90-rank0.part"]
    ordered = sorted(map(Path, names), key=_order)
    assert [file.name for file in ordered] == [names[4], names[2], names[0], names[1], names[3]]


def test_a_folder_that_another_run_took_away(tmp_path: Path) -> None:
    """A script that closes all descriptors gives up the lock on it: what is started next takes it for a leftover."""
    parts = ChildParts()
    parts.open(ChildSettings(device=False))
    assert parts.folder is not None
    shutil.rmtree(parts.folder)
    with RecordingBuilder().close() as recording:
        assert parts.join(recording, tmp_path / "run.anymps").lines == ()
    assert parts.close() is None


PROGRAM = """
import linecache, os, runpy, sys
from anymps.children import begin, serve_sources
start = sys.argv[1]
if start == "begin":
    begin()
else:
    serve_sources({os.path.abspath("net.py"): start, os.path.abspath("train.py"): os.environ["OTHER"]})
import net
print(net.X, net.__file__, linecache.getline(net.__file__, 1).strip())
print(runpy.run_path("train.py", run_name="__mp_main__")["Y"])
import plain
print(plain.Z)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script and two modules, compiled already, and the changed texts of two of these three."""
    for name, text in (("net", "X = 1"), ("train", "Y = 1"), ("plain", "Z = 1")):
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    (tmp_path / "net2.txt").write_text("X = 2\n")
    (tmp_path / "train2.txt").write_text("Y = 2\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "."], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("start", ["begin", "net2.txt"])
def test_what_runs(folder: Path, start: str) -> None:
    """Path and lines are those of the file; what is compiled of it stays and is not read."""
    changed = {str(folder / f"{name}.py"): str(folder / f"{name}2.txt") for name in ("net", "train")}
    (folder / "settings.json").write_text(json.dumps({"sources": changed, "device": False}))
    compiled = sorted((path, path.read_bytes()) for path in (folder / "__pycache__").iterdir())
    environment = {**os.environ, "OTHER": "train2.txt", "PYTHONPATH": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("ANYMPS_CHILDREN", None)
    program = PROGRAM.replace("    begin()", f"    os.environ['ANYMPS_CHILDREN'] = {str(folder)!r}; begin()")
    done = subprocess.run(
        [sys.executable, "-c", program, start], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"2 {folder / 'net.py'} X = 2", "2", "1"], done.stderr
    assert sorted((path, path.read_bytes()) for path in (folder / "__pycache__").iterdir()) == compiled
