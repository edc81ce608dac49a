"""Threads that work together as coroutines: from the optimised text of a thread to one that can wait.

A thread that waits for others returns to the runtime, which calls it again when it may go on (Form::Resumed of
shim/msl/runtime.h). That costs a call, where a stack of its own costs a switch and the caches of many stacks. LLVM
makes the coroutine: what a thread still needs after it has waited goes into a frame. Each function was inlined before,
so all calls that wait stand in one.
"""

from __future__ import annotations

import re

from anymps._errors import KernelsError

DECLARED = """declare ptr @anymps_rt_frame(i64) nounwind
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare void @llvm.coro.end(ptr, i1, token)
"""
_BEGIN = """  %anymps.id = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)
  %anymps.size = call i64 @llvm.coro.size.i64()
  %anymps.memory = call ptr @anymps_rt_frame(i64 %anymps.size)
  %anymps.frame = call ptr @llvm.coro.begin(token %anymps.id, ptr %anymps.memory)
  %launch = load ptr, ptr %thread
  %anymps.of = getelementptr i8, ptr %thread, i64 8
  %of = load ptr, ptr %anymps.of
  %anymps.resolve = getelementptr i8, ptr %wait, i64 8
  %anymps.site = getelementptr i8, ptr %wait, i64 16"""
_END = """anymps.done:
  %anymps.last = call i8 @llvm.coro.suspend(token none, i1 true)
  switch i8 %anymps.last, label %anymps.return [ i8 0, label %anymps.never i8 1, label %anymps.return ]
anymps.never:
  unreachable
anymps.return:
  call void @llvm.coro.end(ptr %anymps.frame, i1 false, token none)
  ret ptr %anymps.frame
}"""
_BARRIER = "ptr null, ptr null, i64 -1"  # what waits at a barrier brings nothing
WAITS = re.compile(r"\s*(?:\w+ )?call void @anymps_rt_(simd|barrier)\((.*)\)")
_NEXT = re.compile(r", (?=(?:ptr|i64) )")  # operands may carry `range(i64 8, 16)`
_LABEL = re.compile(r'("[^"]+"|[\w.$-]+):')
_FROM = re.compile(r'(\[ [^\[\]]*, )%("[^"]+"|[\w.$-]+)( \])')
_ENTRY = "0"  # the first block has no name, and is the first thing without one


def as_coroutine(text: str, name: str) -> str:
    """The module with `@name` as a coroutine of a thread and a wait, which returns the address of its frame.

    `text` has `void @name(ptr %thread, ptr %wait, ptr %launch, ptr %of)`. Raises KernelsError for a module in which
    another function waits.
    """
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("define ") and f"@{name}(" in line)
    end = lines.index("}", start)
    outside = [*lines[:start], *lines[end + 1 :]]
    if any(WAITS.match(line) for line in outside):
        raise KernelsError("a function of a compiled kernel that waits for other threads was not inlined")
    body, last = _body(lines[start + 1 : end])
    header = f"define ptr @{name}(ptr %thread, ptr %wait) nounwind presplitcoroutine {{"
    followed = [_followed(line, last) if " = phi " in line else line for line in body]
    named = _LABEL.match(body[0])
    begin = f"anymps.entry:\n{_BEGIN}\n  br label %{named[1]}" if named else _BEGIN
    return "\n".join([*outside, DECLARED, header, begin, *followed, _END])


def cut(lines: list[str], word: str) -> list[str]:
    """The lines of a function, each wait at the end of a block of its own."""
    found: list[str] = []
    last: dict[str, str] = {}
    block = _ENTRY
    for line in lines:
        label = _LABEL.match(line)
        block = label[1] if label else block
        found.append(line)
        if WAITS.match(line):
            last[block] = f"{word}{len(found)}"
            found += [f"  br label %{last[block]}", f"{last[block]}:"]
    return [_followed(line, last) if " = phi " in line else line for line in found]


def _followed(line: str, last: dict[str, str]) -> str:
    """A phi that comes from the last parts of blocks."""
    return _FROM.sub(lambda match: f"{match[1]}%{last.get(match[2], match[2])}{match[3]}", line)


def _body(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    """The lines with blocks cut where they wait, and the last part of each block by the block's name."""
    found: list[str] = []
    last: dict[str, str] = {}
    block = _ENTRY
    for line in lines:
        label = _LABEL.match(line)
        if label:
            block = label[1]
        waits = WAITS.match(line)
        if waits:
            part = f"anymps.on{len(last)}.{sum(one.startswith('anymps.on') for one in found)}"
            found += _wait(*_operands(waits), part)
            last[block] = part
        elif line.strip() == "ret void":
            found.append("  br label %anymps.done")
        else:
            found.append(line)
    return found, last


def _operands(waits: re.Match[str]) -> tuple[str, str, str]:
    """The slot, what is done with the slots of all, and the place."""
    given = _BARRIER if waits[1] == "barrier" else waits[2]
    slot, resolve, site = (one.rsplit(" ", 1)[1] for one in _NEXT.split(given))
    return slot, resolve, site


def _wait(slot: str, resolve: str, site: str, part: str) -> list[str]:
    return [
        f"  store ptr {slot}, ptr %wait",
        f"  store ptr {resolve}, ptr %anymps.resolve",
        f"  store i64 {site}, ptr %anymps.site",
        f"  %{part}.how = call i8 @llvm.coro.suspend(token none, i1 false)",
        f"  switch i8 %{part}.how, label %anymps.return [ i8 0, label %{part} i8 1, label %anymps.return ]",
        f"{part}:",
    ]
