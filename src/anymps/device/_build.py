"""Compile the native core on first use and keep it in a cache.

The result is one Python extension module, `_native`, for exactly this torch, Python, compiler and source text. It is
built under a lock, in a directory of its own that is renamed into place when it is whole: two processes that build at
once get one build, and a build that is killed leaves nothing that a later one could take for finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

from anymps._cache import CACHE_VARIABLE, cache_home, sha256_of, why_unsafe
from anymps._errors import BuildError, UsageError
from anymps._text import tell
from anymps.cleanup import remove_leftover
from anymps.device._generated import generated_headers
from anymps.device._toolchain import (
    Compiler,
    TorchInstall,
    core_name,
    find_compiler,
    find_prebuilt,
    find_torch,
    job_count,
    python_headers,
    python_include_directories,
)

SOURCE_DIRECTORY = Path(__file__).with_name("native")
_SOURCE_SUFFIXES = (".cpp", ".h")
_UNITS = 2  # each reads torch's headers, a third of its time
_HEADERS = "generated"  # in the folder of a build: the include directory of generated headers
_BUILDING = ".building-"  # between the name of a core and the process that builds it
_CHECKSUM = "sha256"  # the file beside a core with its digest
_SHOWN_LINES = 12  # of the compiler's output, in the error
# Runs a command, and ends it and all of its group when standard input ends, as it does with this process.
_WATCHED = """
exec 3<&0 </dev/null
"$@" 3<&- &
command=$!
{ read -r _ <&3; kill 0; } >/dev/null 2>&1 &
wait $command
"""
_ERROR = re.compile(r"\berror\b\s*(?:\w+)?:|undefined reference|cannot find -l")


def cache_directory() -> Path:
    """Where native cores are kept, under `anymps._cache.cache_home`. It may not exist yet.

    Raises BuildError if there is no place for it.
    """
    try:
        return cache_home() / "native"
    except UsageError as error:
        raise BuildError(str(error)) from None


def check_cache() -> None:
    """Raise BuildError if there is no place for a cache, or if other users can put code there."""
    directory = cache_directory()
    for path in (directory.parent, directory):
        try:
            reason = why_unsafe(path)
        except OSError:  # it is not there yet
            continue
        if reason:
            raise BuildError(
                f"{reason}, and code is loaded from there: remove that permission (chmod go-w), or name another "
                f"place in {CACHE_VARIABLE}"
            )


def is_built() -> bool:
    """Whether there is a core: one that the installation brought, or a finished one in the cache, safe to load.

    Raises UnsupportedTorchError if torch is missing or outside of the supported range, and BuildError if ``CXX`` is set
    to something that cannot be run, or there is no place for a cache.
    """
    torch = find_torch()
    return find_prebuilt(torch) is not None or _find_finished(torch, find_compiler()) is not None


def build() -> Path:
    """Return the path of the native core for the installed torch, compiling it if there is none.

    Says on stderr what it does when it compiles, and nothing otherwise. A finished core is used even where its compiler
    is no longer installed. One that is cut short, was changed, or can be changed by other users is compiled again.

    Raises UnsupportedTorchError if torch is missing or outside of the supported range, and BuildError if there is no
    compiler, no Python.h, no write access to the cache, if others may write to it, or if the compiler fails.
    """
    torch = find_torch()
    compiler = find_compiler()
    finished = _find_finished(torch, compiler)
    if finished is not None:
        return finished
    if compiler is None:
        how = "install one (apt install g++, dnf install gcc-c++), or name it in CXX"
        if sys.platform == "darwin":
            how = "install the command line tools (xcode-select --install), or name a compiler in CXX"
        raise BuildError(f"no C++ compiler was found to build the native core with: {how}")
    _check_python_headers()
    directory = cache_directory() / _key(torch, compiler)
    try:
        _make_directory(directory.parent)
        waiting = "another process is building the native core, waiting for it ..."
        with interprocess_lock(directory.parent / f"{directory.name}.lock", on_wait=lambda: _say(waiting)):
            # While this process waited, the other one may have built it.
            if not _is_sound(directory):
                _build_into(directory, torch, compiler)
    except OSError as error:
        raise BuildError(
            f"the native core cannot be kept in {directory.parent} ({error.strerror or error}): "
            f"make it writable, or name another place in {CACHE_VARIABLE}"
        ) from error
    return directory / _module_name()


def copy_core(folder: Path) -> Path:
    """Put the core for the installed torch into a folder, for `hatch_build.py`. Builds it if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(build(), folder / core_name(find_torch())))


def _module_name() -> str:
    return "_native" + str(sysconfig.get_config_var("EXT_SUFFIX"))


def _find_finished(torch: TorchInstall, compiler: Compiler | None) -> Path | None:
    """Return the finished core for this torch and compiler, or for any compiler if there is none here."""
    if compiler is not None:
        candidates = [cache_directory() / _key(torch, compiler)]
    else:
        candidates = sorted(cache_directory().glob(f"{_key(torch, None)}-*"))
    for directory in candidates:
        with suppress(OSError):  # a cache that cannot be read holds no core
            if _is_sound(directory):
                return directory / _module_name()
    return None


def _make_directory(directory: Path) -> None:
    """Make the cache's directory, and check that no other user can put code there.

    Raises BuildError if one can, OSError if it cannot be made.
    """
    # Not by the process's umask, which may let a group write.
    with suppress(FileExistsError):  # a file in the way gets its own words from the second
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.mkdir(mode=0o755, exist_ok=True)
    check_cache()


def _is_sound(directory: Path) -> bool:
    """Whether a directory holds a whole core that only this user can have put there.

    Raises OSError if it cannot be read.
    """
    module, checksum = directory / _module_name(), directory / _CHECKSUM
    if not module.is_file() or not checksum.is_file():
        return False
    if any(why_unsafe(path) for path in (directory.parent.parent, directory.parent, directory, module, checksum)):
        return False
    return checksum.read_text(encoding="ascii", errors="replace").strip() == sha256_of(module)


def _sources(*suffixes: str) -> list[Path]:
    return sorted(path for path in SOURCE_DIRECTORY.rglob("*") if path.suffix in suffixes)


def _key(torch: TorchInstall, compiler: Compiler | None) -> str:
    """Name a build by all that goes into it: ``2.13.0-cpython-311-x86_64-linux-gnu-<inputs>-<compiler>``.

    Without a compiler its part is left out.
    """
    digest = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            digest.update(text.encode() + b"\0")

    add(torch.version, torch.git_version, str(torch.binary_size()), sysconfig.get_platform())
    for path in _sources(*_SOURCE_SUFFIXES):
        add(path.relative_to(SOURCE_DIRECTORY).as_posix())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for header, text in generated_headers(torch.version).items():
        add(header, text)
    name = f"{torch.public_version}-{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:16]}"
    if compiler is None:
        return name
    digest = hashlib.sha256()
    commands = [*compiler.compile_command(torch, "x.cpp", "x.o"), *compiler.link_command(torch, ["x.o"], "x")]
    # Virtual environments with the same torch share one build.
    add(compiler.identity, *(text.replace(str(torch.root), "torch") for text in commands))
    return f"{name}-{digest.hexdigest()[:8]}"


def _build_into(directory: Path, torch: TorchInstall, compiler: Compiler) -> None:
    """Compile and link in a directory beside ``directory``, then rename it. The caller holds the lock.

    Raises BuildError if the compiler fails, OSError if the cache cannot be written.
    """
    _remove_leftovers(directory)
    units = min(_UNITS, len(_sources(".cpp")))
    _say(f"building the native core for torch {torch.public_version}, once: {units} units, {job_count()} at a time ...")
    start = time.monotonic()
    # Not tempfile.mkdtemp: its directories are closed to other users, and a cache may be shared.
    work = directory.parent / f"{directory.name}{_BUILDING}{os.getpid()}"
    work.mkdir()
    try:
        module = work / _module_name()
        code, output = _compile(work, torch, compiler, module)
        if code != 0 or not module.is_file():
            log = directory.parent / f"{directory.name}.log"
            log.write_text(output, encoding="utf-8")
            raise BuildError(_compile_error(compiler, output, log))
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != module:
                path.unlink()
        (work / _CHECKSUM).write_text(f"{sha256_of(module)}\n", encoding="ascii")
        for path, mode in ((module, 0o755), (work / _CHECKSUM, 0o644), (work, 0o755)):
            path.chmod(mode)
        if directory.exists():  # without a sound module, else the caller would not have asked
            shutil.rmtree(directory)
        work.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _say(f"native core built in {time.monotonic() - start:.1f} s")


@contextmanager
def interprocess_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on the file ``path`` (made if need be); call ``on_wait`` once if another process has it.

    The operating system unlocks it however its holder ends. The file stays: to remove it would let a third process lock
    a new file while the second holds the old one. Raises OSError if the file cannot be made.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(directory: Path) -> None:
    """Remove what builds that were killed have left, of this core, whose lock the caller holds, and of others."""
    for leftover in directory.parent.glob(f"*{_BUILDING}*"):
        name = leftover.name.partition(_BUILDING)[0]
        if name == directory.name:
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            remove_leftover(directory.parent / f"{name}.lock", leftover)


def _compile(work: Path, torch: TorchInstall, compiler: Compiler, module: Path) -> tuple[int, str]:
    """Compile the sources, joined to a few units, and link; return the exit status and what the tools printed."""
    write_headers(work / _HEADERS, torch)
    objects = {str(unit.with_suffix(".o")): unit for unit in _join(_sources(".cpp"), work)}
    commands = [
        compiler.compile_command(torch, str(unit), output, (SOURCE_DIRECTORY, work / _HEADERS))
        for output, unit in objects.items()
    ]
    status, output = _run(commands, work)
    return (status, output) if status != 0 else _run([compiler.link_command(torch, list(objects), str(module))], work)


def write_headers(directory: Path, torch: TorchInstall) -> None:
    """Write the headers that are generated for this torch, below an include directory."""
    for header, text in generated_headers(torch.version).items():
        path = directory / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _join(sources: Sequence[Path], work: Path) -> list[Path]:
    """Write units that include the sources, at most `_UNITS`, of about equal size.

    Torch's headers are then read once a unit instead of once a file. Files that need the largest of them, those of
    torch's Python module, go together, and so do the files of a folder, which use the same templates. The units do not
    depend on the machine: what compiles here does everywhere.
    """
    texts = {source: source.read_bytes() for source in sources}
    count, total = min(_UNITS, len(sources)), sum(map(len, texts.values()))
    units: list[list[Path]] = [[] for _ in range(count)]
    done = 0
    for source in sorted(sources, key=lambda path: (b"<torch/csrc/" not in texts[path], path)):
        units[min(count - 1, (done + len(texts[source]) // 2) * count // max(1, total))].append(source)
        done += len(texts[source])
    paths = []
    for index, unit in enumerate(unit for unit in units if unit):
        path = work / f"unit{index}.cpp"
        path.write_text("".join(f'#include "{source.as_posix()}"\n' for source in unit), encoding="utf-8")
        paths.append(path)
    return paths


def _run(commands: Sequence[Sequence[str]], directory: Path) -> tuple[int, str]:
    """Run tools at the same time; return the first exit status that is not 0, and the output of those that failed.

    Tells how far they are, and how long the others will take. They end when this process or the call does, by an error
    or a signal too.
    """
    reader, writer = os.pipe()
    start, jobs = time.monotonic(), min(job_count(), len(commands))
    seconds = 0.0
    with open(reader), ThreadPoolExecutor(jobs) as pool, open(writer, "w"):  # at last the pool waits for them
        runs = [pool.submit(_run_one, command, directory, reader) for command in commands]
        for done, run in enumerate(as_completed(runs), start=1):
            seconds += run.result()[2]
            if done < len(runs):
                left = (seconds / done * len(runs) - jobs * (time.monotonic() - start)) / jobs
                _say(f"unit {done} of {len(runs)} compiled, about {max(5, 5 * round(left / 5))} s left")
    failed = [run.result() for run in runs if run.result()[0] != 0]
    return (failed[0][0], "".join(output for _, output, _ in failed)) if failed else (0, "")


def _run_one(command: Sequence[str], directory: Path, lifeline: int) -> tuple[int, str, float]:
    """Run a tool; return its exit status, its output, stderr with stdout, and how long it took, in seconds."""
    start = time.monotonic()
    try:
        answer = subprocess.run(
            ["/bin/sh", "-c", _WATCHED, "sh", *command],
            check=False,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},  # the error text is searched for "error:"
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}\n", 0.0
    return answer.returncode, answer.stdout, time.monotonic() - start


def _compile_error(compiler: Compiler, output: str, log: Path) -> str:
    """Say what failed: a line of our own, then the compiler's from its first error on (else its last lines)."""
    lines = [line for line in output.splitlines() if line.strip()]
    first = next((index for index, line in enumerate(lines) if _ERROR.search(line)), len(lines))
    if first == len(lines):
        first = max(0, len(lines) - _SHOWN_LINES)
    name = compiler.identity.partition(" | ")[0]
    text = f"the native core did not compile with {name}; the whole output is in {log}"
    return "\n".join([text, *(f"  {line}" for line in lines[first : first + _SHOWN_LINES])])


def _check_python_headers() -> None:
    if python_headers() is not None:
        return
    where = ", ".join(str(path) for path in python_include_directories())
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise BuildError(
        f"the header files of Python {version} are missing (no Python.h in {where}): "
        f"install them (apt install python{version}-dev, dnf install python3-devel)"
    )


def _say(text: str) -> None:
    tell(f"anymps: {text}")
