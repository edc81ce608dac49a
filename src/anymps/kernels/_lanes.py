"""Threads that work together as loops over lanes: from the optimised text of a thread to one function for many.

The thread is cut where it waits. Code between two waits becomes a loop over lanes that are at the same place, in a
function that the runtime calls with a place and a range of lanes (Form::Lanes of shim/msl/runtime.h). Values that a
lane needs after a wait are in arrays of all lanes, so LLVM may compute several lanes at once. Values that depend only
on the group are computed once a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from anymps._errors import KernelsError

MOST_LANES = 1024
_PADDED = MOST_LANES + 16  # arrays of floats begin a cache line apart, not all in one set of the cache
_MOST_PLACES = 254  # a place is a byte; 255 is the end
_MOST_COPIES = 12  # of a block: one for each wait from which it is reached
_THREAD = 32  # bytes of Thread
_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_NAMES = re.compile(_NAME)
_DEFINED = re.compile(rf"\s*({_NAME}) = (.*)")
_LABEL = re.compile(r'("[^"]+"|[\w.$-]+):')
_TARGET = re.compile(rf"label ({_NAME})")
_ALLOCA = re.compile(rf"\s*({_NAME}) = alloca (.+), align (\d+)$")
_ACCESS = re.compile(rf"\s*(?:{_NAME} = load|store) .*?, ptr ({_NAME}), align \d+$")
_LOAD = re.compile(rf"\s*{_NAME} = load .*, ptr ({_NAME}), align \d+$")
# What may be computed once for a group: it reads nothing that a kernel writes.
_PURE = re.compile(
    r"(?:load (\w+|<[^<>]*>), ptr|getelementptr (?:inbounds )?(?:nuw |nusw )*|"
    r"(?:add|sub|mul|and|or|xor|shl|lshr|udiv) (?:nuw |nsw |exact |disjoint )*(i\d+)|"
    r"(?:zext|sext|trunc) (?:nneg |nuw |nsw )*\w+ %\S+ to (i\d+)|"
    r"(?:tail )?call (?:range\([^()]*\) )?(i\d+) @llvm\.u(?:min|max)\.i\d+\(|(?:tail )?call (ptr) @anymps_rt_shared\()"
)
_LANE = re.compile(r"( = )(?:tail )?call i32 @anymps_rt_lane\(\).*")
_INDEX = re.compile(r"( = )(?:tail )?call (?:noundef )?i32 @anymps_rt_thread\(\).*")
_NUMBERED = re.compile(r"%(\d+)\b")
_WAITS = re.compile(r"\s*(?:\w+ )?call void @anymps_rt_(simd|barrier)\((.*)\)")
_FROM = re.compile(r'(\[ [^\[\]]*, )%("[^"]+"|[\w.$-]+)( \])')


@dataclass
class _Block:
    """A block; the index of the wait it ends with, and where it goes on."""

    lines: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    wait: int = -1


@dataclass(frozen=True)
class _Barrier:
    resolve: str
    site: str
    slot: str  # what is allocated for it, or null


def as_lanes(text: str, name: str, key: str, demote: Callable[[str], str]) -> str:
    """The module with `@anymps_lanes_<key>`, which describes how lanes run.

    `text` has `void @name(ptr %thread, ptr %launch, ptr %of)`, into which each function that waits was inlined.
    `demote` has LLVM keep in memory what is used in more than one block. Raises KernelsError for threads that cannot be
    run so.
    """
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("define ") and f"@{name}(" in line)
    end = lines.index("}", start)
    body = _named(lines[start + 1 : end])
    outside = [*lines[:start], *lines[end + 1 :]]
    if any(_WAITS.match(line) for line in outside):
        raise KernelsError("a function of a compiled kernel that waits for other threads was not inlined")
    common, types, body = _of_the_group(body)
    given = ", ".join(["ptr %thread", "ptr %launch", "ptr %of", *(f"{t} {n}" for n, t in types.items())])
    header = f"define void @{name}({given}) nounwind {{"
    demoted = demote("\n".join([*outside, header, *_cut(body), "}"])).splitlines()
    start = next(at for at, line in enumerate(demoted) if line.startswith("define ") and f"@{name}(" in line)
    end = demoted.index("}", start)
    made = _Maker(demoted[start + 1 : end], common, set(types)).make(key)
    return "\n".join([*demoted[:start], *demoted[end + 1 :], made])


def _named(body: list[str]) -> list[str]:
    """The lines with names for what has a number, which says where it stands."""
    first = [] if _LABEL.match(body[0]) else ["n0:"]
    return first + [re.sub(r"^(\d+):", r"n\1:", _NUMBERED.sub(r"%n\1", line)) for line in body]


def _cut(lines: list[str]) -> list[str]:
    """The lines of a function, each wait at the end of a block of its own."""
    found: list[str] = []
    last: dict[str, str] = {}
    block = ""
    for line in lines:
        label = _LABEL.match(line)
        block = label[1] if label else block
        found.append(line)
        if _WAITS.match(line):
            last[block] = f"anymps.on{len(found)}"
            found += [f"  br label %{last[block]}", f"{last[block]}:"]

    def followed(match: re.Match[str]) -> str:
        return f"{match[1]}%{last.get(match[2], match[2])}{match[3]}"

    return [_FROM.sub(followed, line) if " = phi " in line else line for line in found]


def _of_the_group(body: list[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """What the first block computes of the group alone, the types of those values, and the lines without them."""
    known = {"%launch", "%of"}
    read = set(known)  # addresses of what no kernel writes
    common: list[str] = []
    types: dict[str, str] = {}
    rest: list[str] = []
    for at, line in enumerate(body):
        if at and (_LABEL.match(line) or _WAITS.match(line)):
            return common, types, rest + body[at:]
        defined = _DEFINED.match(line)
        pure = _PURE.match(defined[2]) if defined else None
        if defined is None or pure is None or not set(_NAMES.findall(defined[2])) <= known:
            rest.append(line)
            continue
        loads, steps = defined[2].startswith("load "), defined[2].startswith("getelementptr")
        operand = _NAMES.findall(defined[2])
        if loads and operand[-1] not in read:
            rest.append(line)
            continue
        if steps and operand[0] in read:
            read.add(defined[1])
        if loads and pure[1] == "ptr" and operand[-1] == "%launch":
            read.add(defined[1])  # the table of buffers
        known.add(defined[1])
        common.append(line)
        types[defined[1]] = next((one for one in pure.groups() if one), "ptr")
    return common, types, rest


class _Maker:
    """Makes the function of lanes of the body of a thread."""

    def __init__(self, body: list[str], common: list[str], shared: set[str]) -> None:
        self.common = common
        self.shared = shared | {"%launch", "%of"}
        self.allocated: dict[str, tuple[str, str]] = {}  # type and alignment by name
        self.blocks: dict[str, _Block] = {}
        self.waits: list[_Barrier] = []
        self.first = ""
        self.sound = True
        self._read(body)
        self.simple = self._simple()
        self.locals = {
            match[1] for block in self.blocks.values() for match in map(_DEFINED.match, block.lines) if match
        } | {f"%{label}" for label in self.blocks}

    def _read(self, body: list[str]) -> None:
        glued: list[str] = []
        for line in body:
            if glued and " switch " in glued[-1] and "]" not in glued[-1]:
                glued[-1] += " " + line.strip()
            else:
                glued.append(re.sub(r"\s*; preds = .*$", "", line))
        block = _Block()
        for line in glued:
            label = _LABEL.match(line)
            if label or not self.blocks:
                block = _Block()
                self.first = self.first or (label[1] if label else "0")
                self.blocks[label[1] if label else "0"] = block
                if label:
                    continue
            if not line.strip() or "@llvm.lifetime." in line:
                continue
            allocated = _ALLOCA.match(line)
            waits = _WAITS.match(line)
            if allocated:
                self.allocated[allocated[1]] = (allocated[2], allocated[3])
                self.sound &= not re.search(r", i\d+ [%\d]\S*$", allocated[2])  # a number of elements
            elif waits:
                block.wait = len(self.waits)
                self.waits.append(self._wait(waits))
            else:
                block.lines.append(line)
                if re.match(r"\s*(br|switch) ", line):
                    block.next = [one[1:] for one in _TARGET.findall(line)]

    def _wait(self, waits: re.Match[str]) -> _Barrier:
        if waits[1] == "barrier":
            return _Barrier("null", "-1", "null")
        slot, resolve, site = (one.strip().rsplit(" ", 1)[1] for one in re.split(r", (?=(?:ptr|i64) )", waits[2]))
        self.sound &= resolve.startswith("@") and site.isdigit() and (slot == "null" or slot in self.allocated)
        return _Barrier(resolve, site, slot)

    def _simple(self) -> set[str]:
        """What is allocated and only loaded and stored as a whole."""
        found = set(self.allocated)
        for block in self.blocks.values():
            for line in block.lines:
                used = [one for one in _NAMES.findall(line) if one in found]
                access = _ACCESS.match(line)
                if used and (access is None or used != [access[1]]):
                    found -= set(used)
        return found - {wait.slot for wait in self.waits}

    def _kept(self) -> set[str]:
        """What is still needed after a wait: everything that is not simple, and what is loaded before it is stored."""
        needs: dict[str, set[str]] = {}
        gives: dict[str, set[str]] = {}
        for label, block in self.blocks.items():
            needed, given = set[str](), set[str]()
            for line in block.lines:
                access = _ACCESS.match(line)
                if access is None or access[1] not in self.simple:
                    continue
                if _LOAD.match(line):
                    needed |= {access[1]} - given
                else:
                    given.add(access[1])
            needs[label], gives[label] = needed, given
        live = dict(needs)
        changed = True
        while changed:
            changed = False
            for label, block in self.blocks.items():
                after = set[str]().union(*(live[one] for one in block.next))
                now = needs[label] | (after - gives[label])
                if now != live[label]:
                    live[label], changed = now, True
        kept = set(self.allocated) - self.simple
        for block in self.blocks.values():
            if block.wait >= 0:
                kept |= live[block.next[0]]
        return kept

    def _element(self, name: str) -> str:
        """What an array of all lanes has for each: of a size that keeps the alignment of the next."""
        type_, alignment = self.allocated[name]
        return f"{{ {type_}, [0 x <{int(alignment) // 4} x i32>] }}" if int(alignment) >= 8 else type_

    def make(self, key: str) -> str:
        """The function and its description."""
        places = [self.first, *("" for _ in self.waits)]
        for block in self.blocks.values():
            if block.wait >= 0:
                places[block.wait + 1] = block.next[0]
        regions = [self._region(one) for one in places]
        copies = sum(map(len, regions))
        if not self.sound or len(places) > _MOST_PLACES or copies > _MOST_COPIES * len(self.blocks):
            raise KernelsError("the threads of a compiled kernel wait at more places than can be told apart")
        kept = sorted(self._kept())
        at = {name: index for index, name in enumerate(kept)}
        frame = f"%anymps.frame.{key}"
        members = ", ".join(f"[{_PADDED} x {self._element(name)}]" for name in kept)
        text = [f"{frame} = type {{ {members} }}"]
        head = list(self.common)
        loops: list[str] = []
        for index, region in enumerate(regions):
            allocas, loop = self._loop(index, places[index], region, at, frame)
            head += allocas
            loops += loop
        cases = " ".join(f"i32 {index}, label %anymps.r{index}" for index in range(1, len(places)))
        parameters = (
            "ptr noalias %launch, ptr noalias %of, ptr noalias %anymps.threads, ptr noalias %anymps.frames, "
            "ptr noalias %anymps.places, i32 %anymps.place, i32 %anymps.from, i32 %anymps.to"
        )
        text += [
            f"define internal void @anymps_run_{key}({parameters}) nounwind {{",
            *head,
            f"  switch i32 %anymps.place, label %anymps.r0 [ {cases} ]",
            *loops,
            "}",
            self._description(key, frame, at),
        ]
        return "\n".join(text)

    def _region(self, label: str) -> list[str]:
        """The blocks that are reached before the next wait."""
        found, todo = [label], [label]
        while todo:
            block = self.blocks[todo.pop()]
            for one in block.next if block.wait < 0 else ():
                if one not in found:
                    found.append(one)
                    todo.append(one)
        return found

    def _loop(
        self, index: int, first: str, region: list[str], at: dict[str, int], frame: str
    ) -> tuple[list[str], list[str]]:
        """One place: what it allocates, and the loop over its lanes."""
        mine = f"anymps.r{index}"

        def renamed(match: re.Match[str]) -> str:
            name = match[0]
            if name == "%thread":
                return f"%{mine}.thread"
            if name in self.allocated or name in self.locals:
                return f"%{mine}.{_plain(name)}"
            return name

        body: list[str] = []
        used: set[str] = set()
        for label in region:
            block = self.blocks[label]
            body.append(f"{mine}.{_plain('%' + label)}:")
            for line in block.lines:
                used |= {name for name in _NAMES.findall(line) if name in self.allocated}
                if block.wait >= 0 and line is block.lines[-1]:
                    body += self._leaves(mine, block.wait + 1)
                elif line.strip() == "ret void":
                    body += self._leaves(mine, 255)
                else:
                    line = _INDEX.sub(rf"\1add i32 %{mine}.lane, 0", _NAMES.sub(renamed, line))
                    body.append(_LANE.sub(rf"\1and i32 %{mine}.lane, 31", line))
        allocas = [
            f"  %{mine}.{_plain(name)} = alloca {self.allocated[name][0]}, align {self.allocated[name][1]}"
            for name in sorted(used - set(at))
        ]
        arrays = [
            f"  %{mine}.{_plain(name)} = getelementptr {frame}, ptr %anymps.frames, i64 0, i32 {at[name]}, "
            f"i64 %{mine}.wide"
            for name in sorted(used & set(at))
        ]
        loop = [
            f"{mine}:",
            f"  br label %{mine}.begin",
            f"{mine}.begin:",
            f"  %{mine}.lane = phi i32 [ %anymps.from, %{mine} ], [ %{mine}.next, %{mine}.end ]",
            f"  %{mine}.wide = zext i32 %{mine}.lane to i64",
            f"  %{mine}.offset = mul nuw nsw i64 %{mine}.wide, {_THREAD}",
            f"  %{mine}.thread = getelementptr i8, ptr %anymps.threads, i64 %{mine}.offset",
            *arrays,
            f"  br label %{mine}.{_plain('%' + first)}",
            *body,
            f"{mine}.end:",
            f"  %{mine}.next = add nuw i32 %{mine}.lane, 1",
            f"  %{mine}.more = icmp ult i32 %{mine}.next, %anymps.to",
            f"  br i1 %{mine}.more, label %{mine}.begin, label %{mine}.done",
            f"{mine}.done:",
            "  ret void",
        ]
        return allocas, loop

    @staticmethod
    def _leaves(mine: str, place: int) -> list[str]:
        return [
            f"  %{mine}.at{place} = getelementptr i8, ptr %anymps.places, i64 %{mine}.wide",
            f"  store i8 {place - 256 if place > 127 else place}, ptr %{mine}.at{place}",
            f"  br label %{mine}.end",
        ]

    def _description(self, key: str, frame: str, at: dict[str, int]) -> str:
        """`Lanes` of shim/msl/runtime.h."""
        row = "{ ptr, i64, i64, i64 }"
        rows = [f"{row} {{ ptr null, i64 0, i64 0, i64 0 }}"]
        for wait in self.waits:
            offset = stride = "0"
            if wait.slot != "null":
                offset = f"ptrtoint (ptr getelementptr ({frame}, ptr null, i64 0, i32 {at[wait.slot]}) to i64)"
                stride = f"ptrtoint (ptr getelementptr ({self._element(wait.slot)}, ptr null, i64 1) to i64)"
            rows.append(
                f"{{ ptr, i64, i64, i64 }} {{ ptr {wait.resolve}, i64 {wait.site}, i64 {offset}, i64 {stride} }}"
            )
        table = f"[{len(rows)} x {row}]"
        return (
            f"@anymps_waits_{key} = internal constant {table} [ {', '.join(rows)} ]\n"
            f"@anymps_lanes_{key} = constant {{ ptr, i64, ptr }} {{ ptr @anymps_run_{key}, "
            f"i64 ptrtoint (ptr getelementptr ({frame}, ptr null, i64 1) to i64), ptr @anymps_waits_{key} }}\n"
        )


def _plain(name: str) -> str:
    """A name without quotes, that none of ours is."""
    return ("q." if '"' in name else "v.") + re.sub(r"[^\w.-]", "_", name.strip('%"'))
