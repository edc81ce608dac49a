"""A plan's script writes nothing: what it writes lies in a layer, is read back from there, and is gone afterwards."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from processes import clean_environment

LAYERED = """
import os, sys, tempfile
from anymps.plan.sandbox._files import divert_files
from anymps.plan.sandbox._libraries import divert_libraries
from anymps.plan.sandbox._layer import Layer
from anymps.plan.sandbox._seal import seal
private = sys.argv[1]
os.mkdir(private + "/files")
layer = Layer(private + "/files", (private, "/dev", "/proc"))
divert_files(layer)
divert_libraries(layer)
"""
SEAL = "seal([private, '/dev', '/proc'])\n"
FOLDER = {"good.txt": "good\n", "tree/a/b.txt": "b\n", "folder/f.txt": "f\n", "best.pt": "weights"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with files."""
    for name, text in FOLDER.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "work"


def hashes(folder: Path) -> dict[str, str]:
    """Every entry below a folder with its mode and a hash of its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {content}"
    return found


def layered(folder: Path, text: str, sealed: bool = True) -> str:
    """What a program in the folder prints; it must end well, and leave the folder as it was."""
    private = folder.parent / "private"
    private.mkdir()
    code = LAYERED + (SEAL if sealed else "") + textwrap.dedent(text)
    before = hashes(folder)
    answer = subprocess.run(
        [sys.executable, "-B", "-c", code, str(private)],
        check=False,
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    assert hashes(folder) == before
    return answer.stdout


def test_what_is_written_is_read_back(folder: Path) -> None:
    """New files, files that are written anew, appended to, changed in the middle: each reads as the program left it."""
    layered(
        folder,
        """
        import pathlib
        with open("new.txt", "x") as file:
            assert file.name == "new.txt"
            file.write("new")
        with open("good.txt", "a") as file:
            file.write("more")
        with open("best.pt", "r+b") as file:
            file.write(b"W")
        assert open("new.txt").read() == "new"
        assert open("good.txt").read() == "good\\nmore"
        assert pathlib.Path("best.pt").read_bytes() == b"Weights"
        try:
            open("new.txt", "x")
        except FileExistsError as error:
            assert error.filename == "new.txt"
        descriptor = os.open("low.bin", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b"low")
        os.close(descriptor)
        assert os.path.getsize("low.bin") == 3
        os.truncate("good.txt", 2)
        assert open("good.txt").read() == "go"
        os.chmod("best.pt", 0o600)
        assert os.stat("best.pt").st_mode & 0o777 == 0o600
        """,
    )


def test_directories_are_seen_as_the_program_left_them(folder: Path) -> None:
    """Made, listed, walked, globbed, renamed, emptied, deleted and made again."""
    layered(
        folder,
        """
        import glob, pathlib, shutil
        os.makedirs("out/a/b")
        pathlib.Path("out/a/b/x.txt").write_text("x")
        assert sorted(path.name for path in pathlib.Path("out").rglob("*")) == ["a", "b", "x.txt"]
        assert glob.glob("out/**/*.txt", recursive=True) == ["out/a/b/x.txt"]
        assert [(at, sorted(files)) for at, _, files in os.walk("out")][-1] == ("out/a/b", ["x.txt"])
        os.rename("folder", "other")
        assert os.listdir("other") == ["f.txt"] and not os.path.exists("folder")
        assert open("other/f.txt").read() == "f\\n"
        shutil.rmtree("tree")
        assert sorted(os.listdir(".")) == ["best.pt", "good.txt", "other", "out"]
        os.mkdir("tree")
        assert os.listdir("tree") == [] and not os.path.exists("tree/a/b.txt")
        try:
            os.rmdir("other")
        except OSError as error:
            assert error.filename == "other" and "not empty" in str(error)
        os.chdir("out")
        open("inside.txt", "w").close()
        assert os.getcwd().endswith("/work/out")
        os.chdir("..")
        assert os.path.isfile("out/inside.txt")
        shutil.copytree("other", "copy")
        assert os.listdir("copy") == ["f.txt"]
        """,
    )


def test_names_change_in_the_layer_alone(folder: Path) -> None:
    """Renames, deletions and links; errors have the names that the program gave."""
    layered(
        folder,
        """
        import shutil, tempfile
        os.rename("good.txt", "better.txt")
        assert open("better.txt").read() == "good\\n"
        try:
            open("good.txt")
        except FileNotFoundError as error:
            assert error.filename == "good.txt"
        os.remove("better.txt")
        assert not os.path.lexists("better.txt")
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
            file.write("safe")
        os.replace(file.name, "best.pt")
        assert open("best.pt").read() == "safe"
        with tempfile.NamedTemporaryFile("w", dir="."):
            pass
        with tempfile.TemporaryDirectory(dir=".") as there:
            open(there + "/x", "w").close()
        os.symlink("tree", "latest")
        assert os.path.islink("latest") and open("latest/a/b.txt").read() == "b\\n"
        open("latest/c.txt", "w").close()
        assert sorted(os.listdir("tree")) == ["a", "c.txt"]
        shutil.move("tree/a/b.txt", "moved.txt")
        assert open("moved.txt").read() == "b\\n" and os.listdir("tree/a") == []
        os.link("moved.txt", "again.txt")
        assert open("again.txt").read() == "b\\n"
        """,
    )


def test_libraries_write_to_the_layer(folder: Path) -> None:
    """NumPy, archives, logs, SQLite, and what torch and safetensors write beneath Python."""
    layered(
        folder,
        """
        import gzip, logging, sqlite3, zipfile
        import numpy as np
        import torch
        from safetensors.torch import load_file, save_file
        np.save("n.npy", np.ones(3))
        np.ones(3).tofile("n.bin")
        assert np.load("n.npy").sum() == np.fromfile("n.bin").sum() == 3
        shared = np.memmap("m.bin", dtype="float32", mode="w+", shape=4)
        shared[:] = 1
        with zipfile.ZipFile("z.zip", "w") as archive:
            archive.writestr("a", "b")
        with gzip.open("g.gz", "wt") as packed:
            packed.write("a")
        logging.basicConfig(filename="log.txt")
        logging.error("told")
        with sqlite3.connect("d.sqlite") as base:
            base.execute("create table t (a)")
        with sqlite3.connect("file:d.sqlite?mode=ro", uri=True) as base:
            assert base.execute("select count(*) from t").fetchone() == (0,)
        sqlite3.connect("file:u%20v.sqlite", uri=True).execute("create table t (a)")
        os.remove("u v.sqlite")
        torch.save({"a": torch.ones(2)}, "best.pt")
        assert torch.load("best.pt")["a"].sum() == torch.load("best.pt", mmap=True)["a"].sum() == 2
        torch.save({"a": 1}, "b\\u00e4st.pt")
        assert torch.load("b\\u00e4st.pt") == {"a": 1}
        save_file({"a": torch.ones(3)}, "m.safetensors")
        assert load_file("m.safetensors")["a"].sum() == 3
        torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save("j.pt")
        torch.jit.load("j.pt")
        with torch.profiler.profile() as profile:
            torch.ones(2)
        profile.export_chrome_trace("trace.json")
        torch.UntypedStorage.from_file("s.bin", True, 16)
        assert len(os.listdir(".")) == 16, os.listdir(".")
        """,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="programs are kept from writing by Landlock, which Linux has")
def test_other_programs_read_and_do_not_write(folder: Path) -> None:
    """They start; what they would write is refused by the system, or they are not started."""
    shown = layered(
        folder,
        """
        import subprocess
        for words in ("echo x > good.txt", "rm -f best.pt", "mkdir made", "mv tree other", "cat good.txt"):
            try:
                print(subprocess.run(words, shell=True, capture_output=True, text=True).stdout, end="")
            except PermissionError as error:
                print("good" if "starts no program" in str(error) else error)
        """,
    )
    assert set(shown.split()) == {"good"}


def test_what_passes_by_the_layer_is_refused(folder: Path) -> None:
    """Whoever kept a function from before gets no further with it."""
    shown = layered(
        folder,
        """
        from anymps.plan.sandbox._layer import REAL
        def rename(): REAL.os_rename("good.txt", "bad.txt")
        def write(): REAL.open("good.txt", "w")
        def remove(): REAL.os_unlink("good.txt")
        for attempt in (rename, write, remove):
            try:
                attempt()
            except PermissionError as error:
                print(error)
        """,
    )
    text = "[Errno 13] a plan cannot divert this write, and lets nothing be written: 'good.txt'"
    assert shown.splitlines() == [text] * 3


def test_the_layer_tells_what_was_written_and_removed(folder: Path) -> None:
    """By full names; files on disk that are gone, not those that the program made itself."""
    shown = layered(
        folder,
        """
        open("a.txt", "w").close()
        open("best.pt", "w").close()
        os.rename("a.txt", "c.txt")
        os.remove("good.txt")
        print([os.path.basename(path) for path in layer.written], [os.path.basename(path) for path in layer.removed])
        """,
    )
    assert shown == "['best.pt', 'c.txt'] ['good.txt']\n"


def test_devices_and_pipes_are_what_they_are(folder: Path) -> None:
    """Nothing is kept in them."""
    os.mkfifo(folder.parent / "pipe")
    layered(
        folder,
        """
        with open(os.devnull, "w") as nothing:
            nothing.write("x")
        assert not layer.written
        """,
    )
