"""Functions of several threads that Apple's compiler leaves to the driver: barriers, SIMD groups, matrices, atomics.

A call that needs other lanes waits for them in the runtime (`anymps_rt_simd`), as those of Metal source do. Each gets
one more argument, its place in the text, which identifies the call in the runtime.
"""

from __future__ import annotations

import re

from anymps.kernels._intrinsics import Declaration, lanes, suffix

SITE = "i64 %site"
_ATTRIBUTES = "alwaysinline convergent nounwind"


def waits(name: str) -> bool:
    """Whether a call of this function waits for other threads."""
    return name.startswith(("air.wg.barrier", "air.simd"))


def define(declared: Declaration) -> str | None:
    """The definition of a function of several threads; None if it is none of those."""
    if declared.name.startswith("air.atomic."):
        return _atomic(declared)
    if declared.short == "wg":
        return declared.define(
            "  %line = trunc i64 %site to i32\n  call void @anymps_rt_barrier(i32 %line)\n  ret void",
            _ATTRIBUTES,
            SITE,
        )
    if declared.short == "simdgroup":
        return declared.define(
            "  call void @anymps_rt_simd(ptr null, ptr @anymps_k_nothing, i64 %site)\n  ret void",
            _ATTRIBUTES,
            SITE,
        )
    if declared.short.startswith("simdgroup_matrix"):
        return _matrix(declared)
    return _exchange(declared, declared.short[5:]) if declared.short.startswith("simd_") else None


# Where the other operands of a call go in its slot: value, result, fill, by.
_SLOT = "{{ {0}, {0}, {0}, i32 }}"


def _exchange(declared: Declaration, operation: str) -> str | None:
    if operation == "any":
        body = _wait("i32", "%v", "anymps_k_vote", {})
        return declared.define(
            f"  %v = zext i1 %a0 to i32\n{body}  %b = icmp ne i32 %r, 0\n  ret i1 %b", _ATTRIBUTES, SITE
        )
    if operation == "is_first":  # the lowest lane of those that are here
        body = _wait("i32", "%lane", "anymps_k_min_u32", {})
        return declared.define(
            f"  %lane = call i32 @anymps_rt_lane()\n{body}  %b = icmp eq i32 %r, %lane\n  ret i1 %b", _ATTRIBUTES, SITE
        )
    count, element = lanes(declared.result)
    kind = _kind(element, declared.name)
    if kind is None:
        return None
    fills = "_and_fill_" in operation
    numbers = list(range(1 + fills, len(declared.parameters)))
    more: dict[int, tuple[str, str]] = {}
    begin = ""
    if numbers:  # the lane, or the distance
        begin = f"  %by = zext {declared.parameters[numbers[0]]} %a{numbers[0]} to i32\n"
        more[3] = ("i32", "%by")
    resolve = f"anymps_k_{operation}_{kind}"
    if not count:
        if fills:
            more[2] = (element, "%a1")
        body = _wait(element, "%a0", resolve, more)
        return declared.define(f"{begin}{body}  ret {declared.result} %r", _ATTRIBUTES, SITE)
    # A vector goes element by element: the lanes wait once for each.
    helper = f"@anymps_each_{declared.name.replace('.', '_')}"
    given = ", ".join(f"{type_} %p{at}" for at, type_ in ((0, element), *(((1, element),) if fills else ())))
    if fills:
        more[2] = (element, "%p1")
    if numbers:
        more[3] = ("i32", "%by")
        given += ", i32 %by"
    text = f"define internal {element} {helper}({given}, i64 %site) {_ATTRIBUTES} {{\n"
    text += f"{_wait(element, '%p0', resolve, more)}  ret {element} %r\n}}\n"
    lines, so_far = [begin.rstrip("\n")] if begin else [], "poison"
    for at in range(count):
        values = []
        for operand in (0, 1)[: 1 + fills]:
            lines.append(f"  %e{operand}_{at} = extractelement {declared.result} %a{operand}, i32 {at}")
            values.append(f"{element} %e{operand}_{at}")
        values += ["i32 %by"] if numbers else []
        lines.append(f"  %site{at} = add i64 %site, {at}")
        lines.append(f"  %r{at} = call {element} {helper}({', '.join(values)}, i64 %site{at})")
        lines.append(f"  %v{at} = insertelement {declared.result} {so_far}, {element} %r{at}, i32 {at}")
        so_far = f"%v{at}"
    return text + declared.define("\n".join([*lines, f"  ret {declared.result} {so_far}"]), _ATTRIBUTES, SITE)


def _kind(element: str, name: str) -> str | None:
    """How the support library writes a type: f32, s32, u8."""
    if element in ("float", "half"):
        return suffix(element)
    match = re.fullmatch(r"i(8|16|32|64)", element)
    return f"{'u' if '.u.' in name else 's'}{match[1]}" if match else None


def _wait(type_: str, value: str, resolve: str, more: dict[int, tuple[str, str]]) -> str:
    slot = _SLOT.format(type_)
    lines = [f"  %slot = alloca {slot}", f"  store {type_} {value}, ptr %slot"]
    for at, (kind, operand) in more.items():
        lines.append(f"  %at{at} = getelementptr {slot}, ptr %slot, i32 0, i32 {at}")
        lines.append(f"  store {kind} {operand}, ptr %at{at}")
    lines.append(f"  call void @anymps_rt_simd(ptr %slot, ptr @{resolve}, {SITE})")
    lines.append(f"  %got = getelementptr {slot}, ptr %slot, i32 0, i32 1")
    lines.append(f"  %r = load {type_}, ptr %got")
    return "\n".join(lines) + "\n"


_ATOMIC = re.compile(r"air\.atomic\.(?:global|local)\.(\w+?)(?:\.weak)?(?:\.([su]))?\.[iuf](\d+)")


def _atomic(declared: Declaration) -> str | None:
    """Atomics of device and threadgroup memory, all relaxed, as Metal's are."""
    match = _ATOMIC.fullmatch(declared.name)
    if match is None:
        return None
    operation, sign, bits = match[1], match[2], int(match[3])
    align = f"align {bits // 8}"
    if operation == "load":
        return declared.define(
            f"  %r = load atomic {declared.result}, ptr %a0 monotonic, {align}\n  ret {declared.result} %r"
        )
    type_ = declared.parameters[1]
    if operation == "store":
        return declared.define(f"  store atomic {type_} %a1, ptr %a0 monotonic, {align}\n  ret void")
    if operation == "cmpxchg":  # what was there goes into the second argument, and is the result
        return declared.define(
            f"  %e = load i{bits}, ptr %a1, {align}\n  %d = bitcast {declared.parameters[2]} %a2 to i{bits}\n"
            f"  %p = cmpxchg ptr %a0, i{bits} %e, i{bits} %d monotonic monotonic, {align}\n"
            f"  %o = extractvalue {{ i{bits}, i1 }} %p, 0\n  store i{bits} %o, ptr %a1, {align}\n"
            f"  %r = bitcast i{bits} %o to {declared.result}\n  ret {declared.result} %r"
        )
    is_float = type_ in ("float", "half", "bfloat")
    sign = "u" if sign == "u" and operation in ("min", "max") else "f" if is_float and operation != "xchg" else ""
    result = "" if declared.result == "void" else " %r"
    return declared.define(
        f"  %r = atomicrmw {sign}{operation} ptr %a0, {type_} %a1 monotonic, {align}\n  ret {declared.result}{result}"
    )


# An 8x8 matrix is a vector of 64 in each lane, of which two are live: those of row and column.
_ROW = (
    "  %lane = call i32 @anymps_rt_lane()\n"
    "  %h = lshr i32 %lane, 2\n  %h4 = and i32 %h, 4\n  %l = lshr i32 %lane, 1\n  %l3 = and i32 %l, 3\n"
    "  %row = or i32 %h4, %l3\n  %l4 = and i32 %l, 4\n  %b = and i32 %lane, 1\n  %b2 = shl i32 %b, 1\n"
    "  %column = or i32 %l4, %b2\n"
)


def _matrix(declared: Declaration) -> str | None:
    operation = declared.short.removeprefix("simdgroup_matrix_8x8_")
    if operation == "init_filled":
        element = lanes(declared.result)[1]
        return declared.define(_pair(declared.result, f"{element} %a0", f"{element} %a0"), _ATTRIBUTES, SITE)
    if operation == "init_diag":
        element = lanes(declared.result)[1]
        body = f"{_ROW}  %n = add i32 %column, 1\n"
        for at, column in enumerate(("%column", "%n")):
            body += f"  %is{at} = icmp eq i32 %row, {column}\n"
            body += f"  %d{at} = select i1 %is{at}, {element} %a0, {element} 0.0\n"
        return declared.define(body + _pair(declared.result, f"{element} %d0", f"{element} %d1"), _ATTRIBUTES, SITE)
    if operation in ("load", "store"):
        return _matrix_memory(declared, operation)
    if operation != "multiply_accumulate":
        return None
    slot = "{ [2 x float], [2 x float], [2 x float], [2 x float] }"  # a, b, c, result
    lines = [f"  %slot = alloca {slot}"]
    for operand, type_ in enumerate(declared.parameters):
        element = lanes(type_)[1]
        for at in range(2):
            name = f"{operand}_{at}"
            lines.append(f"  %e{name} = extractelement {type_} %a{operand}, i32 {at}")
            value = f"%e{name}"
            if element != "float":
                lines.append(f"  %f{name} = fpext {element} {value} to float")
                value = f"%f{name}"
            lines.append(f"  %p{name} = getelementptr {slot}, ptr %slot, i32 0, i32 {operand}, i32 {at}")
            lines.append(f"  store float {value}, ptr %p{name}")
    lines.append("  call void @anymps_rt_simd(ptr %slot, ptr @anymps_k_matrix, i64 %site)\n")
    element = lanes(declared.result)[1]
    for at in range(2):
        lines.append(f"  %q{at} = getelementptr {slot}, ptr %slot, i32 0, i32 3, i32 {at}")
        lines.append(f"  %r{at} = load float, ptr %q{at}")
        if element != "float":
            lines.append(f"  %t{at} = fptrunc float %r{at} to {element}")
    word = "r" if element == "float" else "t"
    body = "\n".join(lines) + "\n" + _pair(declared.result, f"{element} %{word}0", f"{element} %{word}1")
    return declared.define(body, _ATTRIBUTES, SITE)


def _matrix_memory(declared: Declaration, operation: str) -> str:
    """Load or store: (matrix,) pointer, elements of a row, <column, row> of the origin, transposed."""
    first = 1 if operation == "store" else 0
    type_ = declared.parameters[0] if first else declared.result
    element = lanes(type_)[1]
    pointer, stride, origin, transposed = (f"%a{first + at}" for at in range(4))
    body = (
        f"{_ROW}  %r0 = zext i32 %row to i64\n  %c0 = zext i32 %column to i64\n  %c1 = add i64 %c0, 1\n"
        f"  %ox = extractelement <2 x i64> {origin}, i32 0\n  %oy = extractelement <2 x i64> {origin}, i32 1\n"
    )
    for at in range(2):
        body += (
            f"  %x{at} = select i1 {transposed}, i64 %r0, i64 %c{at}\n"
            f"  %y{at} = select i1 {transposed}, i64 %c{at}, i64 %r0\n"
            f"  %xx{at} = add i64 %x{at}, %ox\n  %yy{at} = add i64 %y{at}, %oy\n"
            f"  %m{at} = mul i64 %yy{at}, {stride}\n  %i{at} = add i64 %m{at}, %xx{at}\n"
            f"  %p{at} = getelementptr {element}, ptr {pointer}, i64 %i{at}\n"
        )
        if first:
            body += f"  %e{at} = extractelement {type_} %a0, i32 {at}\n  store {element} %e{at}, ptr %p{at}\n"
        else:
            body += f"  %e{at} = load {element}, ptr %p{at}\n"
    body += "  ret void" if first else _pair(type_, f"{element} %e0", f"{element} %e1")
    return declared.define(body, _ATTRIBUTES, SITE)


def _pair(type_: str, first: str, second: str) -> str:
    return (
        f"  %v0 = insertelement {type_} poison, {first}, i32 0\n"
        f"  %v1 = insertelement {type_} %v0, {second}, i32 1\n  ret {type_} %v1"
    )
