"""From the module of a compiled kernel to one for this machine, as text.

The bitcode is LLVM's for another target: address spaces are removed, threadgroup memory becomes the runtime's, Apple's
own functions (`air.*`) get definitions, and promises about aliasing are dropped. Only llvmlite's parser, printer and
passes are needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anymps._errors import KernelsError
from anymps.kernels import _intrinsics, _synchronization
from anymps.kernels._entry_points import entries, preamble
from anymps.kernels._intrinsics import Declaration
from anymps.kernels._metadata import Signature

SHARED_TYPE = "anymps.shared"
_ALIGNED = "[0 x <4 x i32>]"  # what follows lies at a multiple of 16

_LINKAGE = re.compile(
    r"\b(?:weak_odr|linkonce_odr|linkonce|weak|internal|private|dso_local|hidden|fastcc|external|available_externally) "
)
_NAME = r'@("[^"]+"|[\w.$-]+)'
_DEFINE = re.compile(rf"define (.*?){_NAME}\((.*)\)[^()]*\{{$")
_DECLARE = re.compile(rf"declare (.*?){_NAME}\((.*)\)")
_SHARED = re.compile(rf"^{_NAME} = .*addrspace\(3\) global (.*) (?:undef|zeroinitializer|poison), align \d+")
_CALL = re.compile(r"(@air\.(?:wg\.barrier|simd)[\w.]*\()([^()]*)\)")
_CONSTANT_ADDRESS = re.compile(r"getelementptr (?:inbounds |nuw |nusw )*\(([^()]*)\)")
# Said of a line or an operand, and true only of the other target or not needed.
_DROPPED = (
    (re.compile(r"\s*addrspace\(\d+\)"), ""),
    (re.compile(r' "air-buffer-no-alias"'), ""),
    (re.compile(r" (?:noalias|captures\([^()]*\)|readonly|writeonly|readnone)(?=[ ,)])"), ""),
    (re.compile(r", ![A-Za-z][\w.]* !\d+"), ""),
    (re.compile(r" #\d+"), ""),
    (re.compile(r"\b(?:tail|musttail|notail) call "), "call "),
    (re.compile(r"\bfastcc "), ""),
    (re.compile(r"\baddrspacecast "), "bitcast "),
    (re.compile(r"@llvm\.fmuladd\."), "@llvm.fma."),  # one rounding, as on the GPU
    (re.compile(r"@llvm\.(memcpy|memmove)\.p\d\.p\d\."), r"@llvm.\1.p0.p0."),
    (re.compile(r"@llvm\.memset\.p\d\."), "@llvm.memset.p0."),
)


def translate(text: str, signature: Signature, key: str, layout: str, triple: str) -> tuple[str, bool]:
    """The module for this machine, with the entry `anymps_plain_<key>`, or `anymps_begin_<key>` if the second is true.

    Then its threads work together, and are to run as loops over lanes.

    Raises KernelsError for a function of Apple's compiler that is not known here.
    """
    shared = {match[1]: match[2] for match in map(_SHARED.match, text.splitlines()) if match}
    together = bool(shared) or any(_synchronization.waits(name) for name in re.findall(r"@(air\.[\w.]+)\(", text))
    functions = _Functions(signature.function, shared, together)
    for line in text.splitlines():
        if not _is_left_out(line) and not _SHARED.match(line):
            functions.read(line)
    declared = functions.declared
    body = "\n".join(_redefined(functions.lines))
    definitions = "".join(_definition(function) for function in declared.values())
    resolves = sorted(set(re.findall(r"ptr @(anymps_k_\w+)", definitions)))
    parts = [f'target datalayout = "{layout}"', f'target triple = "{triple}"', preamble(resolves)]
    if shared:
        members = ", ".join(f"{_ALIGNED}, {re.sub(r' addrspace.[0-9]+.', '', type_)}" for type_ in shared.values())
        parts.append(f"%{SHARED_TYPE} = type {{ {members} }}\n@{SHARED_TYPE} = external global %{SHARED_TYPE}")
    parts += [body, definitions, entries(signature, functions.types, key, together)]
    return "\n".join(parts), together


class _Functions:
    """Reads a module line by line into `lines`; `types` are those of the parameters of the function `entry`."""

    def __init__(self, entry: str, shared: Mapping[str, str], together: bool) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, Declaration] = {}  # Apple's functions that it calls, by name
        self.types: list[str] = []
        self._entry, self._shared, self._together = entry, shared, together
        self._start = 0  # of the function that is read, its first line
        self._inserted: list[str] | None = None  # what that function is to begin with
        self._site = 0

    def read(self, line: str) -> None:
        """The next line of those that stay."""
        line = _portable(line)
        if line.startswith("declare "):
            found = _declaration(line)
            if found.name.startswith("air."):  # LLVM declares its own
                self.declared[found.name] = found
        elif line.startswith("define "):
            line, name, types = _header(line, self._together)
            if name == self._entry:
                self.types = types
            self.lines.append(line)
            self._start, self._inserted = len(self.lines), []
        else:
            if line == "}" and self._inserted is not None:
                self._insert(self._inserted)
            elif self._inserted is not None and self._shared:
                line = _with_shared(line, self._shared, self._inserted)
            self.lines.append(_CALL.sub(self._numbered, line))

    def _insert(self, inserted: list[str]) -> None:
        """At the end of a function, puts lines at its beginning, behind the label that may stand there."""
        start = self._start
        label = start < len(self.lines) and re.match(r"[\w.\"$-]+:", self.lines[start]) is not None
        self.lines[start + label : start + label] = inserted
        self._inserted = None

    def _numbered(self, match: re.Match[str]) -> str:
        self._site += 8  # a vector waits once for each element
        return f"{match[1]}{match[2]}{', ' if match[2] else ''}i64 {self._site})"


def _portable(line: str) -> str:
    """A line without what stands for Apple's target alone."""
    if line.startswith("@"):
        return _LINKAGE.sub("private ", re.sub(r" addrspace\(\d+\)", "", line))
    for pattern, instead in _DROPPED:
        line = pattern.sub(instead, line)
    return line


def _is_left_out(line: str) -> bool:
    return line.startswith(("!", "attributes #", "target ", "source_filename", ";")) or "@llvm.lifetime." in line


def _redefined(lines: list[str]) -> list[str]:
    return [re.sub(r"\s*; preds = .*$", "", line) for line in lines]


def _split(text: str) -> list[str]:
    """Parameters between commas, those within brackets kept together."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<[{(") - (sign in ">]})")
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _type(words: str) -> str:
    """The type among the words of a parameter or a result."""
    match = re.search(
        r"<[^<>]*>|\{.*\}|\[.*\]|\b(?:ptr|void|half|bfloat|float|double|i\d+)\b|%\"[^\"]*\"|%[\w.]+", words
    )
    return match[0] if match else words.strip()


def _declaration(line: str) -> Declaration:
    match = _DECLARE.match(line)
    if match is None:
        raise KernelsError(f"a compiled kernel declares what cannot be read: {line}")
    return Declaration(match[2].strip('"'), _type(match[1]), tuple(map(_type, _split(match[3]))))


def _header(line: str, together: bool) -> tuple[str, str, list[str]]:
    """The first line of a function, which is inlined into the entries."""
    match = _DEFINE.match(line)
    if match is None:
        raise KernelsError(f"a compiled kernel begins a function that cannot be read: {line}")
    result, name, parameters = match.groups()
    attributes = "alwaysinline nounwind" + " convergent" * together
    header = f"define internal {_LINKAGE.sub('', result)}@{name}({parameters}) {attributes} {{"
    return header, name.strip('"'), [_type(part) for part in _split(parameters)]


def _with_shared(line: str, shared: Mapping[str, str], inserted: list[str]) -> str:
    """Threadgroup memory is not known before a launch: its address comes from the runtime, first in each function."""
    if "@" not in line:
        return line
    for at, name in enumerate(shared):
        used = re.compile(rf"@{re.escape(name)}(?![\w.$-])")
        if not used.search(line):
            continue
        local = f"%anymps.shared{at}"
        if not any(one.startswith(f"  {local} ") for one in inserted):
            if not inserted:
                inserted.append("  %anymps.base = call ptr @anymps_rt_shared()")
            place = f"ptr %anymps.base, i32 0, i32 {2 * at + 1}"
            inserted.append(f"  {local} = getelementptr %{SHARED_TYPE}, {place}")
        line = used.sub(local, line)

    def address(match: re.Match[str]) -> str:
        if "%anymps.shared" not in match[1]:
            return match[0]
        name = f"%anymps.at{len(inserted)}"
        inserted.append(f"  {name} = getelementptr {match[1]}")
        return name

    return _CONSTANT_ADDRESS.sub(address, line)


def _definition(function: Declaration) -> str:
    text = _intrinsics.define(function) or _synchronization.define(function)
    if text is None:
        raise KernelsError(f"{function.name} is a function of Apple's compiler that is not known here")
    return text
