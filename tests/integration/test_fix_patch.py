"""The patch of `anymps fix` is one that git applies: from which folder, and to files of any text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from anymps.fix import Program, file_patch, how_to_apply, patch_folder

pytestmark = pytest.mark.integration

OLD, NEW = 'device = "cuda"\n', 'device = "mps"\n'


def changed(folder: Path, name: str, text: str, *others: str) -> tuple[str, Path]:
    """The patch that changes a script and other files, all of one text, and the folder that it is for."""
    for file in (name, *others):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    program = Program.read(Path(name))
    for file in (name, *others):
        script = program.script(Path(file)).with_text(text.replace("cuda", "mps"))
        assert script is not None
        program = program.having(script)
    target = patch_folder((new.path for _, new in program.differences()), program.root)
    return "".join(file_patch(old, new, target) for old, new in program.differences()), target


def apply(patch: str, folder: Path) -> None:
    subprocess.run(["git", "apply"], cwd=folder, input=patch.encode(), check=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose folder `examples` is the current one."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    return tmp_path


def test_files_below_the_current_folder(repository: Path) -> None:
    """They are named as seen from there."""
    here = repository / "examples"
    patch, folder = changed(here, "train.py", OLD, "parts/net.py")
    assert patch.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]
    assert "--- a/parts/net.py" in patch
    assert (folder, how_to_apply(folder)) == (here, "save the patch for git apply")
    apply(patch, here)
    assert [(here / name).read_text() for name in ("train.py", "parts/net.py")] == [NEW, NEW]


def test_a_file_beside_the_current_folder(repository: Path) -> None:
    """All are named from the top of the repository, where git accepts them."""
    patch, folder = changed(repository / "examples", "train.py", OLD, "../model/net.py")
    assert [line for line in patch.splitlines() if line.startswith("---")] == [
        "--- a/examples/train.py",
        "--- a/model/net.py",
    ]
    assert folder == repository
    assert how_to_apply(folder) == "save the patch, for example as fix.patch, for git -C .. apply < fix.patch"
    apply(patch, folder)
    assert [(repository / name).read_text() for name in ("examples/train.py", "model/net.py")] == [NEW, NEW]


def test_a_script_named_by_its_whole_path(repository: Path) -> None:
    """The patch names it as git does."""
    script = repository / "examples" / "train.py"
    patch, folder = changed(repository, str(script), OLD)
    assert patch.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]
    apply(patch, folder)
    assert script.read_text() == NEW


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('x = 1\n\x0c\ny = "\x0c"\ndevice = "cuda"\n', id="form feed"),
        pytest.param('x = "\x1c\u2028\x85"\ndevice = "cuda"\n', id="other line separators"),
        pytest.param('x = 1\ndevice = "cuda"', id="no newline at the end"),
        pytest.param('x = 1\r\ndevice = "cuda"\r\n', id="line ends of Windows"),
    ],
)
def test_any_text(repository: Path, text: str) -> None:
    """The file has the new text, byte for byte."""
    patch, folder = changed(repository / "examples", "my train.py", text)
    apply(patch, folder)
    assert (folder / "my train.py").read_bytes() == text.replace("cuda", "mps").encode()
