"""Functions that Apple's compiler leaves to the driver, for one thread: mathematics, integers, conversions.

Each function is LLVM IR for this machine. Where the driver's own code is not public, the nearest of the C library
stands in its place: `exp`, `log`, `sin` and their like differ in the last bits from an Apple GPU, which has them
within 4 ulp. A float that is too large for an integer becomes the nearest one.
Source: Metal Shading Language Specification 3.1, sections 2.18 (conversions) and 7.4 (precision).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_SHORT = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_BITS = {"half": 16, "bfloat": 16, "float": 32}


@dataclass(frozen=True)
class Declaration:
    """A function that a module declares: `result` and `parameters` are types of LLVM."""

    name: str
    result: str
    parameters: tuple[str, ...]

    @property
    def short(self) -> str:
        """The name without what all have in common, and without types: `simd_sum` of `air.simd_sum.f32`."""
        return self.name.removeprefix("air.").partition(".")[0]

    def define(self, body: str, attributes: str = "alwaysinline nounwind", extra: str = "") -> str:
        """The text of its definition. Parameters are %a0, %a1 and so on, then `extra`."""
        parameters = [f"{type_} %a{at}" for at, type_ in enumerate(self.parameters)] + ([extra] if extra else [])
        return f"define internal {self.result} @{self.name}({', '.join(parameters)}) {attributes} {{\n{body}\n}}\n"


def lanes(type_: str) -> tuple[int, str]:
    """How many elements a type has (0: it is no vector) and the type of one."""
    match = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    return (int(match[1]), match[2]) if match else (0, type_)


def suffix(type_: str) -> str:
    """How LLVM writes a type in the names of its intrinsics: v2f32."""
    count, element = lanes(type_)
    short = _SHORT.get(element, element)
    return f"v{count}{short}" if count else short


def with_elements(type_: str, element: str) -> str:
    """The type with elements of another kind."""
    count, _ = lanes(type_)
    return f"<{count} x {element}>" if count else element


def splat(type_: str, value: str) -> str:
    """A constant of a type, the same in each element."""
    count, element = lanes(type_)
    return "<" + ", ".join([f"{element} {value}"] * count) + ">" if count else value


def define(declared: Declaration) -> str | None:
    """The definition of a function that one thread computes by itself; None if it is none of those."""
    for group in (_conversion, _special_form, _of_floats, _of_integers):
        text = group(declared)
        if text is not None:
            return text
    return None


# One intrinsic of LLVM each. Halves are computed as floats, and rounded once.
_SAME = re.findall(
    r"\w+",
    "acos asin atan atan2 ceil cos cosh exp exp10 exp2 fabs floor fma log log10 log2 pow sin sinh sqrt tan tanh trunc",
)
_DIRECT = {**{name: name for name in _SAME}, "fmax": "maxnum", "fmin": "minnum", "rint": "roundeven"}


def _of_floats(declared: Declaration) -> str | None:
    short = declared.short.removeprefix("fast_")
    element = lanes(declared.result)[1]
    compute = _SPECIAL.get(short) or (_intrinsic(_DIRECT[short]) if short in _DIRECT else None)
    if element not in _BITS or compute is None:
        return None
    names = [f"%a{at}" for at in range(len(declared.parameters))]
    if element == "float":
        return declared.define(f"{compute(declared.result, names)}\n  ret {declared.result} %r")
    wide = with_elements(declared.result, "float")
    lines = []
    for at, type_ in enumerate(declared.parameters):
        if type_ == declared.result:
            lines.append(f"  %w{at} = fpext {type_} %a{at} to {wide}")
            names[at] = f"%w{at}"
    lines += [compute(wide, names), f"  %n = fptrunc {wide} %r to {declared.result}", f"  ret {declared.result} %n"]
    return declared.define("\n".join(lines))


_Compute = Callable[[str, list[str]], str]


def _call(name: str, type_: str, *values: str, into: str = "%r") -> str:
    return f"  {into} = call {type_} @llvm.{name}.{suffix(type_)}({', '.join(f'{type_} {one}' for one in values)})"


def _intrinsic(name: str) -> _Compute:
    return lambda type_, names: _call(name, type_, *names)


def _rsqrt(type_: str, names: list[str]) -> str:
    double = with_elements(type_, "double")
    return "\n".join(
        (
            f"  %d = fpext {type_} {names[0]} to {double}",
            _call("sqrt", double, "%d", into="%s"),
            f"  %q = fdiv {double} {splat(double, '1.0')}, %s",
            f"  %r = fptrunc {double} %q to {type_}",
        )
    )


def _fract(type_: str, names: list[str]) -> str:
    below_1 = splat(type_, "0x3FEFFFFFE0000000")
    return "\n".join(
        (
            _call("floor", type_, names[0], into="%f"),
            f"  %d = fsub {type_} {names[0]}, %f",
            _call("minnum", type_, "%d", below_1),
        )
    )


def _clamp(type_: str, names: list[str]) -> str:
    return f"{_call('maxnum', type_, names[0], names[1], into='%m')}\n{_call('minnum', type_, '%m', names[2])}"


_SPECIAL: dict[str, _Compute] = {
    "rsqrt": _rsqrt,
    "fract": _fract,
    "clamp": _clamp,
    "fmod": lambda type_, names: f"  %r = frem {type_} {names[0]}, {names[1]}",
    "ldexp": lambda type_, names: f"  %r = call {type_} @llvm.ldexp.f32.i32({type_} {names[0]}, i32 {names[1]})",
    "sinpi": lambda type_, names: f"  %r = call {type_} @anymps_k_sinpi({type_} {names[0]})",
}


def _special_form(declared: Declaration) -> str | None:
    """Those of a form of their own."""
    if declared.short == "sincos":
        sine, cosine = _call("sin", "float", "%a0", into="%s"), _call("cos", "float", "%a0", into="%c")
        return declared.define(f"{sine}\n{cosine}\n  store float %c, ptr %a1, align 4\n  ret float %s")
    if declared.short == "nextafter":
        bits = _BITS[declared.result]
        return declared.define(
            f"  %x = bitcast {declared.result} %a0 to i{bits}\n  %y = bitcast {declared.result} %a1 to i{bits}\n"
            f"  %r = call i{bits} @anymps_k_nextafter_{bits}(i{bits} %x, i{bits} %y)\n"
            f"  %f = bitcast i{bits} %r to {declared.result}\n  ret {declared.result} %f"
        )
    if declared.short == "get_simdgroup_size":
        return declared.define(f"  ret {declared.result} 32")
    if declared.short in ("all", "any"):
        type_, word = declared.parameters[0], "and" if declared.short == "all" else "or"
        return declared.define(f"  %r = call i1 @llvm.vector.reduce.{word}.{suffix(type_)}({type_} %a0)\n  ret i1 %r")
    if declared.short == "dot":
        return _dot(declared)
    return None


def _dot(declared: Declaration) -> str:
    """A chain of fused operations; the order on a GPU is not documented."""
    vector = declared.parameters[0]
    count, element = lanes(vector)
    lines = [f"  %{n}{at} = extractelement {vector} %a{'xy'.index(n)}, i32 {at}" for at in range(count) for n in "xy"]
    lines.append(f"  %s0 = fmul {element} %x0, %y0")
    lines += [_call("fma", element, f"%x{at}", f"%y{at}", f"%s{at - 1}", into=f"%s{at}") for at in range(1, count)]
    return declared.define("\n".join([*lines, f"  ret {element} %s{count - 1}"]))


_INTEGER = re.compile(r"air\.(min|max|abs|clamp)\.([su])\.\w+|air\.(clz)\.\w+")


def _of_integers(declared: Declaration) -> str | None:
    match = _INTEGER.fullmatch(declared.name)
    if match is None:
        return None
    short, sign, type_ = match[1], match[2], declared.result
    done = f"\n  ret {type_} %r"
    if match[3]:
        return declared.define(f"  %r = call {type_} @llvm.ctlz.{suffix(type_)}({type_} %a0, i1 false){done}")
    if short == "abs" and sign == "u":
        return declared.define(f"  ret {type_} %a0")  # what has no sign stays as it is
    if short == "abs":
        return declared.define(f"  %r = call {type_} @llvm.abs.{suffix(type_)}({type_} %a0, i1 false){done}")
    if short == "clamp":
        upper = _call(f"{sign}max", type_, "%a0", "%a1", into="%m")
        return declared.define(f"{upper}\n{_call(f'{sign}min', type_, '%m', '%a2')}{done}")
    return declared.define(_call(f"{sign}{short}", type_, "%a0", "%a1") + done)


_CONVERSION = re.compile(r"air\.convert\.([suf])\.\w+\.([suf])\.\w+(?:\.\w+)?")


def _conversion(declared: Declaration) -> str | None:
    """`air.convert.<kind>.<type>.<kind>.<type>`: s and u are integers, f are floats."""
    match = _CONVERSION.fullmatch(declared.name)
    if match is None:
        return None
    to, of = match.groups()
    value, source, target = "%a0", declared.parameters[0], declared.result
    lines: list[str] = []

    def step(operation: str, into: str) -> None:
        nonlocal value, source
        lines.append(f"  %s{len(lines)} = {operation} {source} {value} to {into}")
        value, source = f"%s{len(lines) - 1}", into

    float_ = with_elements(source, "float")
    if of == "f" and source not in (float_, target):
        step("fpext", float_)
    if to == "f":
        if of != "f":
            step("sitofp" if of == "s" else "uitofp", float_)
        if source != target:
            step("fptrunc", target)
    elif of == "f":
        if lanes(target)[1] == "i1":
            lines.append(f"  %i = fcmp une {source} {value}, {splat(source, '0.0')}")
        else:
            name = f"llvm.fpto{to}i.sat.{suffix(target)}.{suffix(source)}"
            lines.append(f"  %i = call {target} @{name}({source} {value})")
        value = "%i"
    else:
        before, after = (int(lanes(one)[1][1:]) for one in (source, target))
        if before != after:
            step("trunc" if after < before else "sext" if of == "s" else "zext", target)
    return declared.define("\n".join([*lines, f"  ret {target} {value}"]))
