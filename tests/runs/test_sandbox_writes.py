"""A plan's script writes nothing: what it writes lies in a layer, is read back from there, and is gone afterwards."""

from __future__ import annotations

import hashlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from anymps.runs import Order
from anymps.runs._process import run_command

LAYERED = """
import os, sys, tempfile
from anymps.runs.sandbox import DEVICES, SHARED, Layer, divert_files, divert_libraries, seal
private = sys.argv[1]
for name in ("files", "tmp"):
    os.mkdir(f"{private}/{name}")
os.environ["TMPDIR"] = f"{private}/tmp"
layer = Layer(f"{private}/files", (private, *DEVICES), within=(SHARED,))
divert_files(layer)
divert_libraries(layer)
seal([private])
os.chdir(sys.argv[2])
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp, which Linux has, refuse it")
ALONE = """
import os
del os.environ["ANYMPS_SUPERVISOR"]
"""
FOLDER = {"good.txt": "good\n", "tree/a/b.txt": "b\n", "folder/f.txt": "f\n", "best.pt": "weights"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with files."""
    for name, text in FOLDER.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "work"


def state(folder: Path) -> dict[str, str]:
    """Every entry below a folder with its mode, owner, times and attributes, and a hash of its content."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        known = path.lstat()
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)} if hasattr(os, "listxattr") else {}
        facts = f"{known.st_mode:o} {known.st_uid} {known.st_nlink} {known.st_mtime_ns} {known.st_ctime_ns}"
        found[str(path.relative_to(folder))] = f"{facts} {attributes} {content}"
    return found


def layered(folder: Path, text: str, head: str = "", *, supervised: bool = True) -> str:
    """What a program prints that is run in the folder as a plan runs it; it must end well, and change nothing there."""
    private = folder.parent / "private"
    private.mkdir()
    before = state(folder)
    code = ("" if supervised else ALONE) + LAYERED + head + textwrap.dedent(text)
    status = run_command(
        (sys.executable, "-B", "-c", code, str(private), str(folder)), folder.parent, Order((), seconds=300)
    )
    told = (folder.parent / "output").read_text(encoding="utf-8")
    assert status == 0, (folder.parent / "errors").read_text(encoding="utf-8")
    assert state(folder) == before
    return told


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
        open("folder/made.txt", "w").close()
        os.rename("folder", "other")
        assert sorted(os.listdir("other")) == ["f.txt", "made.txt"]
        os.remove("other/made.txt")
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


@linux
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
        from anymps.runs.sandbox._layer import REAL
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
    text = "[Errno 13] a plan cannot redirect this write, so it is refused: 'good.txt'"
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


METADATA = """
import ctypes, subprocess
LIBC = ctypes.CDLL(None, use_errno=True)
def c(name, *args):
    if getattr(LIBC, name)(*args) == -1:
        return os.strerror(ctypes.get_errno())
    return "done"
def program(*words):
    made = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    denied = os.strerror(13)
    return denied if denied in made.stderr else made.stderr or made.stdout.strip() or f"exit code {made.returncode}"
"""


@linux
def test_modes_times_and_attributes_stay(folder: Path) -> None:
    """Programs and C code are refused what Landlock has no right for, by path, descriptor and link."""
    (folder / "script.sh").write_text("", encoding="utf-8")
    shown = layered(
        folder,
        """
        print(program("chmod", "600", "good.txt"))
        print(program("touch", "good.txt"))
        print(program("touch", "-h", "-d", "2001-01-01", "best.pt"))
        print(program("chown", str(os.getuid()), "good.txt"))
        print(program("ln", "good.txt", "again.txt"))
        print(program("sh", "-c", "chmod 600 good.txt"))
        print(program(sys.executable, "-c", "import os; os.chdir('tree'); os.utime('a/b.txt', (1, 1))"))
        print(program(sys.executable, "-c", "import os; os.setxattr('good.txt', 'user.a', b'b')"))
        print(c("chmod", b"good.txt", 0o600))
        print(c("chmod", os.path.abspath("tree/../good.txt").encode(), 0o600))
        print(c("utimes", b"good.txt", None))
        print(c("setxattr", b"good.txt", b"user.a", b"b", 1, 0))
        print(c("lsetxattr", b"good.txt", b"trusted.a", b"b", 1, 0))
        print(c("truncate", b"good.txt", 1))
        print(c("chown", b"tree", os.getuid(), os.getgid()))
        print(c("link", b"good.txt", private.encode() + b"/tmp/stolen"))
        descriptor = LIBC.open(b"good.txt", os.O_RDONLY)
        print(c("fchmod", descriptor, 0o600))
        print(c("futimens", descriptor, None))
        print(c("fsetxattr", descriptor, b"user.a", b"b", 1, 0))
        print(c("chmod", b"/proc/self/fd/%d" % descriptor, 0o600))
        print(c("ioctl", descriptor, ctypes.c_ulong(0x40086602), ctypes.byref(ctypes.c_long(0x80))))
        there = LIBC.open(b"tree", os.O_RDONLY | os.O_DIRECTORY)
        print(c("fchmodat", there, b"a/b.txt", 0o600, 0))
        print(c("utimensat", there, b"a", None, 0x100))
        """,
        METADATA,
    )
    told = shown.splitlines()
    # Landlock says of a link into another directory that it leads to another file system.
    assert told.pop(15) == "Invalid cross-device link"
    assert told == ["Permission denied"] * 22


@linux
def test_without_a_supervisor_no_program_starts(folder: Path) -> None:
    """Nobody would keep it from changing modes and times."""
    shown = layered(
        folder,
        """
        try:
            subprocess.run(["chmod", "600", "good.txt"])
        except PermissionError as error:
            print(error.strerror)
        """,
        METADATA,
        supervised=False,
    )
    assert shown == "a plan starts no program that the system cannot keep from writing\n"


@linux
def test_what_a_program_made_itself_it_may_change(folder: Path) -> None:
    """In the private folder modes, times and attributes are the program's own: copies, archives, git, Python."""
    layered(
        folder,
        """
        import shutil, stat
        there = tempfile.gettempdir()
        quiet = dict(check=True, capture_output=True, cwd=there)
        subprocess.run(["cp", "-p", os.path.abspath("good.txt"), "copy.txt"], **quiet)
        assert os.stat(there + "/copy.txt").st_mtime_ns // 1000 == os.stat("good.txt").st_mtime_ns // 1000
        subprocess.run(["tar", "-C", os.getcwd(), "-cpf", "all.tar", "."], **quiet)
        os.mkdir(there + "/out")
        subprocess.run(["tar", "-C", "out", "-xpf", "all.tar"], **quiet)
        assert sorted(os.listdir(there + "/out")) == sorted(os.listdir("."))
        subprocess.run("echo 'echo ran' > run.sh && chmod u+x run.sh && ./run.sh", shell=True, **quiet)
        subprocess.run(["touch", "-d", "2001-01-01", "copy.txt"], **quiet)
        os.chdir(there)
        made = os.open("low.bin", os.O_CREAT | os.O_WRONLY, 0o600)
        os.fchmod(made, 0o640)
        os.utime(made, (1, 1))
        assert stat.S_IMODE(os.fstat(made).st_mode) == 0o640 and os.fstat(made).st_mtime == 1
        assert c("chmod", b"copy.txt", 0o400) == c("utimes", b"./copy.txt", None) == "done"
        try:
            os.chmod("absent", 0o600)
        except FileNotFoundError as error:
            assert error.filename == "absent"
        assert c("chmod", b"absent", 0o600) == "No such file or directory"
        shutil.rmtree("out")
        """,
        METADATA,
    )


def test_descriptors_lead_to_the_layer(folder: Path) -> None:
    """A mode or a time that Python sets by the descriptor of a file on disk is set on its copy."""
    layered(
        folder,
        """
        with open("good.txt") as file:
            os.fchmod(file.fileno(), 0o600)
            os.utime(file.fileno(), (1, 1))
            os.chmod(file.fileno(), 0o640)
            os.fchown(file.fileno(), os.getuid(), os.getgid())
        assert os.stat("good.txt").st_mode & 0o777 == 0o640 and os.stat("good.txt").st_mtime == 1
        """,
    )


@linux
def test_shared_memory_is_as_it_was(folder: Path) -> None:
    """A file there is neither changed nor removed; what the program left is gone; semaphores and queues work."""
    kept = Path(f"/dev/shm/anymps-test-{os.getpid()}")
    kept.write_text("kept", encoding="utf-8")
    names = set(os.listdir("/dev/shm"))
    try:
        shown = layered(
            folder,
            """
            import multiprocessing, pathlib
            from multiprocessing import shared_memory
            def shell(words):
                return program("sh", "-c", words.format(kept))
            print(shell("echo bad > {0}"), shell("rm -f {0}"), c("unlink", kept.encode()))
            print(shell("mv {0} {0}.away"), shell("echo x > {0}.new && mv {0}.new {0}"))
            left = b"anymps-left-%d" % os.getpid()
            print(shell("echo x > {0}.left && cat {0}.left"), c("shm_open", left, 0o102, 0o600))
            print(shell("echo x > {0}.one && mv {0}.one {0}.two && chmod 600 {0}.two && cat {0}.two"))
            pathlib.Path(kept).write_text("changed")
            assert pathlib.Path(kept).read_text() == "changed"
            pathlib.Path(kept + ".python").write_text("made")
            memory = shared_memory.SharedMemory(create=True, size=16)
            memory.buf[0] = 7
            again = shared_memory.SharedMemory(memory.name)
            assert again.buf[0] == 7
            again.close()
            memory.close()
            memory.unlink()
            queue = multiprocessing.get_context("fork").Queue()
            queue.put(3)
            assert queue.get() == 3
            """,
            METADATA + f"kept = {str(kept)!r}\n",
        )
        assert kept.read_text(encoding="utf-8") == "kept"
        assert shown.splitlines() == [
            "Permission denied Permission denied Permission denied",
            "Permission denied Permission denied",
            "x done",
            "x",
        ]
    finally:
        kept.unlink()
    left = set(os.listdir("/dev/shm")) - names  # other processes of this machine leave theirs
    assert not [name for name in left if "anymps" in name]
