"""Random Metal kernels whose threads meet inside loops: barriers and SIMD calls, loops in loops, groups along x and y.

Loops of one kind are run as often by all threads of a group; those of the other kind are not, and must stay fibers. All
numbers are small whole ones, kernels stay within their buffers, and put barriers where they belong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Draw = Callable[[int, int], int]  # a number from the first to the last, both included

THREADS = 96
SHAPES = (((96,), (64,)), ((12, 8), (8, 8)), ((96,), (32,)), ((3, 32), (1, 32)), ((12, 8), (4, 4)))  # grid and group
HEAD = """#include <metal_stdlib>
using namespace metal;
static float wrap(float v) { return v - 64.0f * floor(v * 0.015625f); }
static float twice(float v) { return wrap(v + v); }
"""
_BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@dataclass(frozen=True)
class Drawn:
    """A kernel: its grid and group, and whether it is to be cut into loops over threads."""

    name: str
    threads: tuple[int, ...]
    group_size: tuple[int, ...]
    cut: bool


@dataclass
class _Kernel:
    draw: Draw
    returns: bool
    cut: bool = True
    names: int = 0
    lines: list[str] = field(default_factory=list)

    def number(self, known: list[str], depth: int = 2) -> str:
        """An expression whose value is a small whole number, as a float."""
        if depth == 0 or self.draw(0, 2) == 0:
            return known[self.draw(0, len(known) - 1)]
        one, other = self.number(known, depth - 1), self.number(known, depth - 1)
        forms = ("wrap({} + {})", "wrap({} * {})", "max({}, {})", "twice({}) - {}", "({} < 9.0f ? {} : 3.0f)")
        return f"wrap({forms[self.draw(0, 4)].format(one, other)})"

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def statements(self, known: list[str], depth: int, inside: bool) -> None:
        """Some statements, of which a loop's must meet at least once."""
        here = list(known)
        if inside:
            self.meet(here)
        for _ in range(self.draw(1, 4)):
            kind = self.draw(0, 8)
            if kind <= 1 and depth < 2:
                self.loop(here, depth)
            elif kind <= 3:
                self.meet(here)
            elif kind == 4:
                name = self.name("d")
                self.lines.append(f"float {name} = {self.number(here)};")
                here.append(name)
            elif kind == 5:
                name = self.name("e")
                self.lines.append(f"const uint {name} = l * {self.draw(1, 3)} + {self.draw(0, 9)};")
                here.append(f"float({name} % 16)")
            elif kind == 6:
                number = self.number([*here, "float(j)"])
                leave = "if (v > 30.0f) break; " if self.draw(0, 1) and not inside else ""
                self.lines.append(f"for (int j = 0; j < {self.draw(1, 3)}; ++j) {{ {leave}v = {number}; }}")
            elif kind == 7:
                name = self.name("u")
                self.lines.append(f"const uint {name} = n * {self.draw(1, 5)} + s;")
                here.append(f"float({name} % 16)")
            else:
                self.lines.append(f"if (l % {self.draw(2, 5)} == 1) r = {self.number(here)}; else v += 1.0f;")

    def meet(self, known: list[str]) -> None:
        """A barrier, or a SIMD call."""
        kind = self.draw(3, 5) if self.returns else self.draw(0, 5)
        if kind <= 1:
            self.lines += [_BARRIER, f"t[l] = {self.number(known)};", _BARRIER]
            self.lines.append(f"r = wrap(r + t[(l + {self.draw(1, 40)}) % s]);")
        elif kind == 2:
            self.lines += [_BARRIER, f"if (l == {self.draw(0, 9)}) t[3] = {self.number(known)};", _BARRIER]
            self.lines.append("v = wrap(v + t[3]);")
        else:
            call = ("simd_sum", "simd_max", "simd_prefix_inclusive_sum", "simd_min")[self.draw(0, 3)]
            name = self.name("q")
            self.lines.append(f"float {name} = {self.number(known)};")  # a call that stands behind a `?` is not cut
            self.lines.append(f"{'rv'[self.draw(0, 1)]} = wrap({call}({name}));")

    def loop(self, known: list[str], depth: int) -> None:
        """A loop of a random head."""
        name = "k" if depth == 0 else self.name("k")
        kind = self.draw(0, 5)
        if kind <= 1:
            start = ("0", "n % 3", "1")[self.draw(0, 2)]
            end = ("n % 7", "5", "s / 8", "min(n, 3u) + 1")[self.draw(0, 3)]
            head = f"uint {name} = {start}; {name} < {end}; {name} += {self.draw(1, 2)}"
        elif kind == 2:
            head = f"int {name} = int(n % 4); {name} >= 0; --{name}"
        elif kind == 3:
            head = f"uint {name} = s / 2; {name} > 0; {name} /= 2"
        else:
            self.differing(known, kind == 4)
            return
        own = self.name("w")  # what a turn leaves there, the next one alone reads
        self.lines += [f"float {own} = {self.number(known)};", f"for ({head}) {{", f"r = wrap(r + {own});"]
        if kind == 3 and not self.returns:
            self.lines += [_BARRIER, f"if (l < {name}) t[l] = wrap(t[l] + t[l + {name}]);", _BARRIER]
        self.statements([*known, f"float({name})", f"x[{name} % 16]"], depth + 1, inside=True)
        self.lines += [f"{own} = {self.number(known)};", "}"]

    def differing(self, known: list[str], by_bound: bool) -> None:
        """A loop that threads leave at different times: such a kernel is not cut."""
        self.cut = False
        if by_bound:
            head, leave = f"uint m = 0; m < l % {self.draw(2, 4)}; ++m", ""
        else:
            head, leave = "uint m = 0; m < 3; ++m", f"if (r > {self.draw(5, 40)}.0f) break; "
        self.lines.append(f"for ({head}) {{ {leave}r = wrap(simd_sum({self.number(known)})); }}")


def source(draw: Draw, kernels: int) -> tuple[str, list[Drawn]]:
    """A source with so many kernels."""
    text, found = [HEAD], []
    for number in range(kernels):
        grid, group = SHAPES[draw(0, len(SHAPES) - 1)]
        kernel = _Kernel(draw, returns=draw(0, 3) == 0)
        kernel.loop(["r", "v", "float(l)"], 0)
        kernel.statements(["r", "v", "float(l)"], 0, inside=False)
        flat = len(grid) == 1
        places = "uint i [[thread_position_in_grid]], uint s [[threads_per_threadgroup]]"
        if not flat:
            places = "uint2 p [[thread_position_in_grid]], uint2 z [[threads_per_threadgroup]]"
        text.append(
            f"kernel void k{number}(device float* o, device const float* x, constant uint& n, {places},\n"
            "    uint l [[thread_index_in_threadgroup]]) {\n"
            + ("" if flat else f"  const uint i = p.y * {grid[0]} + p.x;\n  const uint s = z.x * z.y;\n")
            + "  threadgroup float t[64];\n  float r = x[i], v = 2.0f;\n  t[l] = r;\n"
            + ("  if (r > 20.0f) return;\n" if kernel.returns else "")
            + "".join(f"  {line}\n" for line in kernel.lines)
            + "  o[i] = wrap(r + v);\n}\n"
        )
        found.append(Drawn(f"k{number}", grid, group, kernel.cut))
    return "".join(text), found
