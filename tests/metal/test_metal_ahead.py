"""Shaders that a generated module asks for one after the other are compiled beside each other, each once."""

from __future__ import annotations

import os
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from anymps.metal.compilation import _compile_ahead

NAMES = ("one", "two", "three", "four", "five")


def source(name: str, body: str = "out[i] = 7.0f;") -> str:
    """A kernel of that name."""
    return f"kernel void {name}(device float* out, uint i [[thread_position_in_grid]]) {{ {body} }}"


def module(folder: Path, *sources: str, asks: str = "compile_mps_shader") -> Path:
    """A module as Inductor writes it: it asks for a library in each of its first lines."""
    lines = [f"from torch._inductor.runtime.runtime_utils import compile_mps_shader as {asks}"]
    lines += [f"lib_{number} = {asks}({text!r})" for number, text in enumerate(sources)]
    path = folder / "generated.py"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def compiled(
    virtual_device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[tuple[str, str]]]:
    """An empty cache and two cores; each compiled kernel with the thread that did it."""
    done: list[tuple[str, str]] = []
    compile_shader = _compile_ahead.compile_shader

    def told(text: str, checked: bool = False) -> Path:
        done.append((text.split()[2].partition("(")[0], threading.current_thread().name))
        return compile_shader(text, checked)

    monkeypatch.setenv("ANYMPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_compile_ahead, "compile_shader", told)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(_compile_ahead, "_seen", set())
    yield done
    _compile_ahead._drop()


def test_the_others_are_compiled_beside_the_first(compiled: list[tuple[str, str]], tmp_path: Path) -> None:
    """Each once, some of them in a thread of their own; every library works."""
    found = runpy.run_path(str(module(tmp_path, *map(source, NAMES))))
    assert sorted(name for name, _ in compiled) == sorted(NAMES)
    threads = dict(compiled)
    assert threads["one"] == "MainThread"
    assert any(thread.startswith("anymps compiles ahead") for thread in threads.values())
    out = torch.zeros(3, device="mps")
    for number, name in enumerate(NAMES):
        getattr(found[f"lib_{number}"], name)(out.zero_())
        assert out.tolist() == [7.0] * 3
    assert _compile_ahead._begun == {}


def test_what_does_not_compile_is_said_where_it_is_asked_for(compiled: list[tuple[str, str]], tmp_path: Path) -> None:
    """In the module's third line, not before, and what was begun behind it is given up."""
    path = module(tmp_path, source("one"), source("two"), source("three", "out[i] = nothing;"), source("four"))
    with pytest.raises(SyntaxError, match="nothing") as caught:
        runpy.run_path(str(path))
    lines = []
    entry = caught.value.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == str(path):
            lines.append(entry.tb_lineno)
        entry = entry.tb_next
    assert lines == [4]
    assert _compile_ahead._begun == {}


def test_a_module_of_the_users_own_is_not_looked_at(compiled: list[tuple[str, str]], tmp_path: Path) -> None:
    """Its shaders may stand behind a condition: only those that are asked for are compiled."""
    runpy.run_path(str(module(tmp_path, *map(source, NAMES), asks="compile")))
    assert {thread for _, thread in compiled} == {"MainThread"}


def test_with_one_core_nothing_is_begun(
    compiled: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only take the core from what is asked for."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    runpy.run_path(str(module(tmp_path, *map(source, NAMES))))
    assert {thread for _, thread in compiled} == {"MainThread"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_waits_for_no_thread_of_its_parent(compiled: list[tuple[str, str]]) -> None:
    """A forked child compiles for itself what its parent has begun."""
    gate = threading.Event()
    _compile_ahead._pools[:] = [_compile_ahead.ThreadPoolExecutor(1)]
    _compile_ahead._begun["kept"] = _compile_ahead._pools[0].submit(gate.wait)  # type: ignore[arg-type]
    child = os.fork()
    if not child:
        os._exit(0 if not _compile_ahead._begun and not _compile_ahead._pools else 1)
    gate.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(_compile_ahead._begun) == ["kept"]
    _compile_ahead._pools.pop().shutdown()
