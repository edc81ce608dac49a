"""A process that gives cases to the command line, one after another, within limits of memory and time.

It reads lines of JSON, `{"target": ..., "file": ...}`, and answers each with one: what was wrong, or nothing.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from own_cache import new_cache

SECONDS = 30.0
GROWTH = 1 << 30
_TROUBLE = re.compile(
    r"Traceback \(most recent call last\)|Exception ignored|MemoryError|Segmentation fault|Fatal Python error"
)
# What a terminal would take as an order, or show in another order. Colours are never asked for here.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def judge(status: object, output: str, errors: str) -> str:
    """What is wrong with the end of a command; the empty text if nothing is."""
    found = _TROUBLE.search(errors) or _TROUBLE.search(output)
    if found:
        return found[0]
    if status == 70:
        return "exit status 70"
    if status == 2 and errors.count("\n") != 1:
        return "an error of several lines"
    for text, where in ((errors, "stderr"), (output, "stdout")):
        control = _CONTROL.search(text)
        if control:
            return f"the character {control[0]!r} on {where}"
    return ""


def run(words: list[str]) -> tuple[object, str, str]:
    """The command in this process: its status, and what was written to the standard streams."""
    from anymps.commands import main

    streams, kept = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    texts = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for number, file in enumerate((out, err), 1):
            streams[number - 1].flush()
            os.dup2(file.fileno(), number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        # Both of Python's and those of libraries in C; `run` may itself be captured.
        with (
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as sys.stderr,
        ):
            try:
                status: object = main(words)
            except SystemExit as end:
                status = end.code
            except BaseException:
                traceback.print_exc()
                status = 70
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout, sys.stderr = streams
        for number, (file, handle) in enumerate(zip((out, err), kept, strict=True), 1):
            os.dup2(handle, number)
            os.close(handle)
            file.seek(0)
            texts.append(file.read(4 << 20).decode("utf-8", "replace"))
    return status, *texts


@contextmanager
def places() -> Iterator[None]:
    """A current folder and a cache of the case's own; only the native core is that of all cases."""
    home, cache = os.getcwd(), os.environ.get("ANYMPS_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
        os.environ["ANYMPS_CACHE_DIR"] = str(new_cache(Path(folder, "cache")))
        os.mkdir(os.path.join(folder, "here"))
        os.chdir(os.path.join(folder, "here"))
        try:
            yield
        finally:
            os.chdir(home)
            del os.environ["ANYMPS_CACHE_DIR"]
            if cache is not None:
                os.environ["ANYMPS_CACHE_DIR"] = cache


def case(name: str, data: bytes) -> dict[str, object]:
    """One case: what was wrong with it, if anything."""
    from fuzz.targets import TARGETS

    try:
        with places():
            for words in TARGETS[name].place(data):
                status, output, errors = run(list(words))
                wrong = judge(status, output, errors)
                if wrong:
                    return {"wrong": wrong, "words": list(words), "status": status, "stderr": errors[-3000:]}
    except MemoryError:
        return {"wrong": "MemoryError"}
    return {"wrong": ""}


def serve() -> None:
    """Answer until standard input ends."""
    from fuzz.targets import TARGETS

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for name in sys.argv[1:]:  # what is loaded once is no growth
        for data in TARGETS[name].seeds():
            found = case(name, data)
            if found["wrong"]:
                print(json.dumps({**found, "wrong": f"a good file: {found['wrong']}"}), file=answers, flush=True)
                return
    with open("/proc/self/statm", encoding="ascii") as file:
        base = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (base + GROWTH, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(case(order["target"], Path(order["file"]).read_bytes())), file=answers, flush=True)


if __name__ == "__main__":
    serve()
