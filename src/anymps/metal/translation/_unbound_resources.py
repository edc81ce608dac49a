"""What torch never binds: textures, samplers, structs with pointers and numbers, function constants.

Each is refused in one sentence that names it. A struct of pointers alone is none of them: a list of tensors fills it.

A program gives function constants, `constant bool fast [[function_constant(0)]];`, their values when it makes a
pipeline, through `MTLFunctionConstantValues`. In torch nothing does (2.13: `compile_shader` takes the source alone), so
a kernel that reads one cannot be used, and the others of its library can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anymps.metal.translation._brackets import CLASSES, closing, closing_angle, split_commas, without_attributes
from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._structure import Function, Parameter, Structure
from anymps.metal.translation._tokens import Token

_TEXTURE = re.compile(r"texture(?:1d|2d|3d|cube|_buffer)(?:_ms)?(?:_array)?|depth(?:2d|cube)(?:_ms)?(?:_array)?")
_NO_VARIABLES = frozenset({"(", "using", "typedef", "static", "enum", "friend"}) | CLASSES
_NOT_THERE = (
    "the virtual mps device has no {}s, and torch.mps.compile_shader binds none on a Mac either; pass the tensor as a "
    "buffer (`device const float*`) and {} in the kernel"
)
# What a Mac says when the process ends, also where the constant may be missing (`is_function_constant_defined`): the
# assertion of newComputePipelineStateWithFunction: in public logs of macOS 14 to 26; gfx-rs/gfx pull request 1703.
_A_MAC = (
    "function {} cannot be used to build a pipeline state. "
    "Use newFunctionWithName:constantValues:... to get the specialized function"
)


@dataclass(frozen=True)
class Holder:
    """A class that holds pointers into the device's memory: the first of them, and whether it holds other things."""

    pointer: str
    mixed: bool


def images(code: list[Token]) -> Iterator[tuple[int, Unsupported]]:
    """The textures and samplers of a source, by the place of their type."""
    for index, token in enumerate(code):
        if token.kind == "name" and _is_texture(code, index):
            yield index, _image(code, index, "texture", "compute the index")
        elif token.text == "sampler" and _is_sampler(code, index):
            yield index, _image(code, index, "sampler", "interpolate")


def pointer_classes(structure: Structure) -> dict[str, Holder]:
    """The classes of a source that hold pointers, themselves or in a member."""
    found: dict[str, Holder] = {}
    for name, members in structure.fields.items():
        holder = _held(members, found)
        if holder is not None:
            found[name] = holder
    return found


def argument_buffer(kernel: str, parameters: Sequence[Parameter], holders: Mapping[str, Holder]) -> Unsupported | None:
    """What is wrong with the first parameter of a kernel that is an argument buffer."""
    for parameter in parameters:
        if parameter.attribute not in ("", "buffer"):
            continue
        kind, name = _typed(parameter.tokens)
        used = next((t.text for t in parameter.tokens if t.text in holders and holders[t.text].mixed), "")
        if used and kind.endswith(("&", "*")):
            what = f"the parameter '{name}' of '{kernel}' is an argument buffer, '{kind}'"
            why = (
                f"its member '{holders[used].pointer}' is a pointer, and neither the virtual mps device nor "
                "torch.mps.compile_shader on a Mac gives Python an address to put there; give each tensor a parameter "
                "of its own, and the numbers another"
            )
            return Unsupported(what, parameter.tokens[0].start, f": {why}")
    return None


def constant_read(
    kernel: str, function: Function, arguments: Sequence[Token], structure: Structure, names: Mapping[str, set[str]]
) -> Unsupported | None:
    """Why a kernel cannot be used that reads a constant, itself or through what it names.

    `arguments` are those of its template, `names` gives for macros the names within them. A field that has the
    name of a constant is none.
    """
    constants = {token.text: token for token, _ in structure.function_constants}
    if not constants:
        return None
    defined = {one.name for one in structure.functions}
    functions: dict[str, set[str]] = {}
    for one in structure.functions:
        if not one.kernel and not (one.scope and one.scope[-1] in structure.classes):  # those go with their classes
            functions.setdefault(one.name, set()).update(one.own_names)

    def inside(name: str) -> set[str]:
        found = structure.variables.get(name, set()) | functions.get(name, set())
        if name in structure.classes:
            return found | (structure.classes[name] - structure.members)
        return found if name in defined else found | names.get(name, set())

    reached: set[str] = set()
    open_names = {*function.own_names, *(token.text for token in arguments if token.kind == "name")}
    while open_names:
        reached |= open_names
        open_names = set().union(*map(inside, open_names)) - reached
    constant = next((token for name, token in constants.items() if name in reached), None)
    if constant is None:
        return None
    return Unsupported(
        f"the kernel '{kernel}' reads the function constant '{constant.text}'",
        constant.start,
        f', to which torch.mps.compile_shader gives no value; a Mac ends the process here: "{_A_MAC.format(kernel)}"',
    )


def _is_texture(code: list[Token], index: int) -> bool:
    """Whether the word is the type: `texture2d<...>`, and no variable that is compared."""
    if not _TEXTURE.fullmatch(code[index].text) or index + 1 >= len(code) or code[index + 1].text != "<":
        return False
    return closing_angle(code, index + 1) > index + 1


def _is_sampler(code: list[Token], index: int) -> bool:
    """Whether the word is the type, and no name that a program gave."""
    before = code[index - 1] if index else code[index]
    after = code[index + 1] if index + 1 < len(code) else code[index]
    return after.kind == "name" or (before.text in ("<", "::") and after.text in (">", ","))


def _image(code: list[Token], index: int, kind: str, instead: str) -> Unsupported:
    why = _NOT_THERE.format(kind, instead)
    opening = _opening(code, index)
    if code[opening].text == "(" and opening > 0 and code[opening - 1].kind == "name":
        parts = split_commas(code[opening + 1 : closing(code, opening)])
        part = next((part for part in parts if any(token is code[index] for token in part)), [])
        written, name = _typed(part)
        if name:
            what = f"the parameter '{name}' of '{code[opening - 1].text}' is a {kind}, '{written}'"
            return Unsupported(what, code[index].start, f": {why}")
    start = index
    while start > 0 and code[start - 1].text not in (";", "{", "}"):
        start -= 1
    end = index
    while end < len(code) and code[end].text not in (";", "=", "{", "("):
        end += 1
    written, name = _typed(code[start:end])
    what = f"'{name}' is a {kind}, '{written}'" if written else f"'{code[index].text}' is a {kind}"
    return Unsupported(what, code[index].start, f": {why}")


def _opening(code: list[Token], index: int) -> int:
    """The round bracket that holds a token, or where the statement begins."""
    for at in range(index - 1, -1, -1):
        if code[at].text in (";", "{", "}") or (code[at].text == "(" and closing(code, at) > index):
            return at
    return 0


def _held(members: Sequence[list[Token]], known: Mapping[str, Holder]) -> Holder | None:
    """What the members of a class hold."""
    pointer = ""
    mixed = False
    for member in members:
        words = [token.text for token in without_attributes(member)]
        if _NO_VARIABLES & set(words):
            continue
        kind, name = _typed(member)
        inner = next((known[word] for word in words if word in known), None)
        if "*" in kind and {"device", "constant"} & set(words):
            pointer = pointer or name
        elif inner is not None:
            pointer = pointer or f"{name}.{inner.pointer}"
            mixed = mixed or inner.mixed
        else:
            mixed = True
    return Holder(pointer, mixed) if pointer else None


def _typed(part: Sequence[Token]) -> tuple[str, str]:
    """The type and the name of a declaration, as they are written, without attributes and sizes of arrays."""
    tokens = list(part)
    end = next((i for i, token in enumerate(tokens) if token.text in ("[", "=")), len(tokens))
    named = [i for i in range(end) if tokens[i].kind == "name"]
    if len(named) < 2 or named[-1] != end - 1:
        return "", tokens[named[-1]].text if named else ""
    kept = tokens[: named[-1]]
    written = "".join(
        token.text + (" " if token.end < after.start else "") for token, after in pairwise([*kept, tokens[named[-1]]])
    )
    return " ".join(written.split()), tokens[named[-1]].text
