"""Metal source to C++17: address spaces, attributes, literals, swizzles and threadgroup memory, token by token.

The compiler does all the typing; what is changed here needs no type. Lines stay where they are, so that errors name the
user's; columns that move are kept in `Rewritten`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anymps.metal.translation._builtins import BUILTINS
from anymps.metal.translation._c_extensions import LONG_VECTOR, coherence, filled_array, short_list
from anymps.metal.translation._call_places import call_edits
from anymps.metal.translation._fission import GroupForm, group_form
from anymps.metal.translation._function_constants import constants_read
from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._structure import (
    SPACES,
    Function,
    Instance,
    Structure,
    closing,
    is_attribute,
    names_a_class,
    read_structure,
    split_commas,
)
from anymps.metal.translation._tokens import Edit, Rewritten, Token, apply, blank, tokenize
from anymps.metal.translation._unbound_resources import Unbound, argument_buffer, decline_images, pointer_classes

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_PLACES = {letter: str("xyzw".index(letter)) for letter in "xyzw"} | {
    letter: str("rgba".index(letter)) for letter in "rgba"
}
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_SPECIFIERS = frozenset({"const", "static", "constexpr", "inline", "volatile", "coherent", *(SPACES - {"constant"})})
_FLOATING = re.compile(r"(?!0[xX])(?:\d*\.\d*|\d+(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+")
_SYNCS = re.compile(
    r"threadgroup_barrier|simdgroup_barrier|simd_(?!vote$|float|int|uint|half)\w+|quad_(?!vote$)\w+"
    r"|simdgroup_(?!index_in|event)\w+|threadgroup_imageblock|__metal_simd_\w+"
)
_DECLINED = (
    (
        re.compile(r"visible_function_table|intersection_function_table|intersector|acceleration_structure"),
        "ray tracing",
    ),
    (re.compile(r"imageblock|threadgroup_imageblock"), "image blocks"),
    (re.compile(r"tensor_ops|mpp|tensor_handle|tensor_inline|cooperative_tensor"), "Metal 4 tensor operations"),
    (
        re.compile(rf"(?!(?:{'|'.join(sorted(BUILTINS))})$)__metal_\w+|__asm|simdgroup_async_copy"),
        "intrinsics inside of Apple's compiler",
    ),
    (re.compile(r"mesh_grid_properties|object_data"), "mesh shaders"),
)


@dataclass(frozen=True)
class KernelSource:
    """A kernel as `dir(lib)` names it, and what its launcher is made from."""

    name: str
    function: Function
    pointer: str  # its address in C++
    synced: bool  # its threads need each other: barriers, SIMD groups, threadgroup memory
    group: GroupForm | None = None  # how a whole group of it runs without fibers
    constants: tuple[Token, ...] = ()  # the function constants that it reads, where they are declared
    unbound: Unbound | None = None  # a parameter that nothing in Python can fill


@dataclass(frozen=True)
class Translation:
    """What the source became."""

    rewritten: Rewritten
    kernels: tuple[KernelSource, ...]
    structure: Structure


def translate(text: str, synced_names: Iterable[str] = (), loops: bool = False, chains: bool = False) -> Translation:
    """Rewrites a source and finds its kernels. `synced_names` are functions of included headers that synchronise.

    With `loops`, kernels that can do without fibers do. Raises Unsupported for a feature that is not there.
    """
    tokens = tokenize(text)
    linkages = [i for i, token in enumerate(tokens) if token.text == "extern" and names_a_class(tokens, i)]
    edits = [blank(text, tokens[index].start, tokens[index + 1].end) for index in linkages]
    for index in reversed(linkages):
        del tokens[index : index + 2]
    code = [token for token in tokens if not token.directive]
    _decline(code)
    structure = read_structure(code)
    edits += _token_edits(text, tokens, structure)
    edits += _structure_edits(text, code, structure)
    names = call_names(tokens, structure)
    synced = closure(names, synced_names)
    groups: dict[int, GroupForm] = {}
    if loops:
        own = {function.name for function in structure.functions}

        def render(first: int, last: int, replaced: Mapping[tuple[int, int], str]) -> str:
            changes = [
                Edit(code[a].start, code[b].end, name) for (a, b), name in replaced.items() if first <= a and b <= last
            ]
            kept = [e for e in edits if not any(c.start <= e.start and e.end <= c.end for c in changes)]
            return _part(text, code[first].start, code[last].end, [*kept, *changes])

        for function in structure.functions:
            if function.kernel and function.template is None and _is_synced(function, synced):
                group = group_form(function, code, synced, own, render)
                if group is not None:
                    groups[id(function)] = group
        for function in structure.functions:
            if id(function) in groups:  # the kernel itself is there for its type alone
                start, end = code[function.body[0]].end, code[function.body[1]].start
                edits = [edit for edit in edits if not start <= edit.start < end]
                edits.append(blank(text, start, end))
    if chains:
        edits += call_edits(code, [f for f in structure.functions if id(f) not in groups], structure.classes, synced)
    holders = pointer_classes(code)
    kernels = tuple(
        replace(
            kernel,
            constants=constants_read(kernel.function, used, structure, names),
            unbound=argument_buffer(kernel.name, kernel.function.parameters, holders),
        )
        for kernel, used in _kernels(structure, code, synced, groups)
    )
    return Translation(apply(text, edits), kernels, structure)


def _part(text: str, start: int, end: int, edits: Iterable[Edit]) -> str:
    """A part of the source after the edits within it."""
    inside = [Edit(e.start - start, e.end - start, e.text) for e in edits if start <= e.start and e.end <= end]
    return apply(text[start:end], inside).text


def call_names(tokens: list[Token], structure: Structure) -> dict[str, set[str]]:
    """For functions, classes and macros of a source the names that appear in them."""
    names: dict[str, set[str]] = {}
    for function in structure.functions:
        if function.name != "operator" and not function.kernel:
            names.setdefault(function.name, set()).update(function.names)
    for name, inside in structure.classes.items():
        names.setdefault(name, set()).update(inside)
    for index, token in enumerate(tokens):
        if token.text == "define" and token.directive and tokens[index - 1].text == "#":
            macro = tokens[index + 1].text if index + 1 < len(tokens) else ""
            inside = names.setdefault(macro, set())
            for later in tokens[index + 2 :]:
                if not later.directive or later.text == "#":
                    break
                if later.kind == "name":
                    inside.add(later.text)
    return names


def closure(names: Mapping[str, set[str]], known: Iterable[str] = ()) -> set[str]:
    """The names that reach a synchronising function."""
    synced = set(known)
    for inside in names.values():
        synced.update(name for name in inside if _SYNCS.fullmatch(name))
    while True:
        more = {name for name, inside in names.items() if name not in synced and not inside.isdisjoint(synced)}
        if not more:
            return synced
        synced |= more


def _decline(code: list[Token]) -> None:
    decline_images(code)
    for token in code:
        if token.kind == "name":
            for pattern, feature in _DECLINED:
                if pattern.fullmatch(token.text):
                    raise Unsupported(feature, token.start)


def _token_edits(text: str, tokens: list[Token], structure: Structure) -> list[Edit]:
    """What a token alone tells."""
    edits: list[Edit] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "name":
            made, index = _name_edits(text, tokens, index, structure)
            edits += made
        elif token.kind == "number":
            literal = _literal(token.text)
            if literal != token.text:
                edits.append(Edit(token.start, token.end, literal))
        elif token.text in (".", "->") and _is_swizzle(tokens, index, structure):
            edits.append(_swizzle(tokens, index))
        elif token.text == "{" and tokens[index - 1].text == "=":
            edits += filled_array(text, tokens, index)
        elif is_attribute(tokens, index):
            close = closing(tokens, index)
            edits.append(_attribute(text, tokens[index : close + 1]))
            index = close
        index += 1
    return edits


def _name_edits(text: str, tokens: list[Token], index: int, structure: Structure) -> tuple[Iterable[Edit], int]:
    """What a name becomes, and the last token that belongs to it."""
    token = tokens[index]
    following = tokens[index + 1] if index + 1 < len(tokens) else token
    if token.text in SPACES:
        bare = token.start in structure.of_constructors  # no constructor can be const
        return [blank(text, token) if bare else _address_space(text, tokens, index)], index
    if token.text == "__attribute__" and (size := _vector_in_front(tokens, index)):
        close = closing(tokens, index + 1)
        element = tokens[close + 1]
        vector = Edit(element.start, element.end, f"::metal::vec<{element.text}, {size}>")
        return [blank(text, token.start, tokens[close].end), vector], close + 1
    if token.text == "coherent":
        return _coherent(text, tokens, index)
    if LONG_VECTOR.fullmatch(token.text):
        return short_list(tokens, index), index
    if token.text == "ext_vector_type" and following.text == "(":
        return [Edit(token.start, following.end, f"vector_size({_wide_element(tokens, index)}")], index
    if token.text.strip("_") == "noinline" and _is_gnu_attribute(tokens, index):
        return [blank(text, token)], index  # the checker sees into what is inlined alone
    if token.text == "kernel" and not is_in_attribute(tokens, index):
        return [Edit(token.start, token.end, "ANYMPS_KERNEL")], index
    return [], index


def _coherent(text: str, tokens: list[Token], index: int) -> tuple[Iterable[Edit], int]:
    """Without the word where it says of a pointer, or of a type, who sees what is written."""
    if (end := coherence(tokens, index)) is not None:
        return [blank(text, tokens[index].start, end.end)], index
    if (last := _coherent_end(tokens, index)) >= 0:
        return [blank(text, tokens[index].start, tokens[last].end)], last
    return [], index


def _swizzle(tokens: list[Token], index: int) -> Edit:
    """`.xyz` as what takes these elements, or as their place where they are assigned to."""
    names = tokens[index + 1]
    after = tokens[index + 2].text if index + 2 < len(tokens) else ""
    how = "place" if after in _ASSIGNMENTS else "take"
    places = ", ".join(_PLACES[letter] for letter in names.text)
    return Edit(names.start, names.end, f"template {how}<{places}>()")


def _attribute(text: str, tokens: list[Token]) -> Edit:
    """An attribute goes, but for that of a kernel, on one line."""
    start, end = tokens[0].start, tokens[-1].end
    if "kernel" in [token.text for token in tokens[:-1]] and "\n" not in text[start:end]:
        return Edit(start, end, "ANYMPS_KERNEL")
    return blank(text, start, end)


def _coherent_end(tokens: list[Token], index: int) -> int:
    """The last token of `coherent` or `coherent(device)` before a type; -1 if the word is a name of the source."""
    if index and (
        tokens[index - 1].text in (".", "->", "::") or (tokens[index - 1].kind == "name" and _names_type(tokens, index))
    ):
        return -1
    if index + 1 >= len(tokens):
        return -1
    if tokens[index + 1].text == "(":
        scope = [token.text for token in tokens[index + 2 : index + 4]]
        return index + 3 if scope in (["device", ")"], ["threadgroup", ")"]) else -1
    return index if tokens[index + 1].kind == "name" else -1


def _names_type(tokens: list[Token], index: int) -> bool:
    """Whether what stands before a word is a type, and the word its name: `float coherent = 1`."""
    return tokens[index - 1].text not in _SPECIFIERS and tokens[index - 1].text != "constant"


def _wide_element(tokens: list[Token], index: int) -> str:
    """The bytes that one element adds to a vector wider than Metal's own, for `typedef T name __attribute__(...)`."""
    start = index
    while start > 0 and tokens[start - 1].text not in (";", "}", "{", "typedef", "="):
        start -= 1
    return f"sizeof({tokens[start].text}) * "


def _vector_in_front(tokens: list[Token], index: int) -> str:
    """The number of elements where `__attribute__((ext_vector_type(4)))` stands before a type; else empty."""
    words = [token.text.strip("_") for token in tokens[index + 1 : index + 9]]
    if len(words) < 8 or [*words[:4], *words[5:8]] != ["(", "(", "ext_vector_type", "(", ")", ")", ")"]:
        return ""
    named = tokens[index + 9].kind == "name" if index + 9 < len(tokens) else False
    return words[4] if named and words[4] in ("2", "3", "4") else ""


def _is_gnu_attribute(tokens: list[Token], index: int) -> bool:
    """Whether a word stands by itself in `__attribute__((...))`."""
    while index > 2 and tokens[index - 1].text == ",":
        index -= 2
    return index > 2 and [token.text for token in tokens[index - 3 : index]] == ["__attribute__", "(", "("]


def is_in_attribute(tokens: list[Token], index: int) -> bool:
    """Whether a token stands directly within `[[...]]`."""
    return (
        index > 1
        and tokens[index - 1].text in ("[", ",")
        and tokens[index - 1].start < tokens[index].start
        and (is_attribute(tokens, index - 2))
    )


def _address_space(text: str, tokens: list[Token], index: int) -> Edit:
    token = tokens[index]
    if token.text != "constant":
        return blank(text, token)
    return blank(text, token) if _is_const_already(tokens, index) else Edit(token.start, token.end, "const   ")


def _is_const_already(tokens: list[Token], index: int) -> bool:
    """Whether `const` stands among the specifiers around a token."""
    for step in (-1, 1):
        at = index + step
        while 0 <= at < len(tokens) and tokens[at].text in _SPECIFIERS:
            if tokens[at].text == "const":
                return True
            at += step
    return False


def _literal(text: str) -> str:
    match = _FLOATING.match(text)
    if match is None or (match.end() == len(text) and text.isdigit()):
        return text
    number, suffix = match.group(), text[match.end() :]
    return number + {"": "f", "h": "_h", "H": "_h", "bf": "_bf", "BF": "_bf", "F": "f", "f": "f"}.get(suffix, suffix)


def _is_swizzle(tokens: list[Token], index: int, structure: Structure) -> bool:
    if index + 1 >= len(tokens) or tokens[index + 1].kind != "name":
        return False
    name = tokens[index + 1].text
    if _SWIZZLE.fullmatch(name) is None or name in structure.members:
        return False
    return index + 2 >= len(tokens) or tokens[index + 2].text != "("


def _structure_edits(text: str, code: list[Token], structure: Structure) -> list[Edit]:
    """What takes a look around."""
    edits = [blank(text, instance.tokens[0].start, instance.tokens[-1].end) for instance in structure.instances]
    edits += [
        blank(text, code[first].start, code[last].end) for first, last in [*structure.doubles, *structure.specialized]
    ]
    # Without a value: who reads one is refused, and the declaration is there for the compiler alone.
    edits += [Edit(d[-1].start, d[-1].start, " = {}") for d in structure.function_constants]
    for function in structure.functions:
        edits += _shared_memory(text, code, function)
    # The whole of a double goes before what is changed within it.
    return sorted(edits, key=lambda edit: (edit.start, -edit.end))


def _shared_memory(text: str, code: list[Token], function: Function) -> list[Edit]:
    """`threadgroup float a[32], b;` of a function becomes a struct with a place in the group's memory."""
    edits: list[Edit] = []
    first, last = function.body
    depth_start = first + 1
    index = first + 1
    while index < last:
        text_here = code[index].text
        if text_here in ("(", "["):
            index = closing(code, index) + 1
            continue
        if text_here in ("{", "}", ";", ":"):
            depth_start = index + 1
        elif text_here == "threadgroup":
            end = index
            while end < last and code[end].text != ";":
                end = closing(code, end) + 1 if code[end].text in ("(", "[", "{") else end + 1
            edit = _shared_declaration(code, function, code[depth_start : end + 1])
            if edit is not None:
                edits += edit
            index = end
            continue
        index += 1
    return edits


def _shared_declaration(code: list[Token], function: Function, statement: list[Token]) -> list[Edit] | None:
    parts = split_commas(statement[:-1])
    names, values = [], []
    for number, part in enumerate(parts):
        value = next((i for i, token in enumerate(part) if token.text in ("=", "{")), len(part))
        words = part[:value]
        bracket = next(
            (i for i, token in enumerate(words) if token.text == "[" and not is_attribute(words, i)), len(words)
        )
        at = bracket - 1
        if at < 0 or words[at].kind != "name" or (number == 0 and at < 1):
            return None
        if words[at - 1].text in ("*", "&") and at > 0:
            return None  # a pointer to such memory
        if number == 0 and (words[at - 1].text == ")" or all(token.text != "threadgroup" for token in words)):
            return None  # in the value of another variable, as in a cast
        names.append(words[at].text)
        values.append(part[value:])
        if number == 0:
            kind = erased(words[:at])
    if not names:
        return None
    owner = "nullptr"
    if function.kernel:
        arguments = f"<{', '.join(name for name in function.template if name)}>" if function.template else ""
        owner = f"(&{function.name}{arguments})"
    first, last = statement[0].start, statement[-1]
    if any(values):
        return _initialized(statement, parts, names, values, kind, owner)
    bind = " ".join(_bound(f"anymps_shared_{first}", owner, name) for name in names)
    return [Edit(first, first, f"struct anymps_shared_{first} {{ "), Edit(last.end, last.end, f" }}; {bind}")]


def _bound(tag: str, owner: str, name: str) -> str:
    return f"auto& {name} = anymps_launch::Shared<{tag}, {owner}>::get().{name};"


def _initialized(
    statement: list[Token], parts: list[list[Token]], names: list[str], values: list[list[Token]], kind: str, owner: str
) -> list[Edit]:
    """Each variable by itself; after one with a value, that every thread writes it. The values stay in place."""
    edits = []
    for number, (part, name, value) in enumerate(zip(parts, names, values, strict=True)):
        start = part[0].start
        tag = f"anymps_shared_{start}"
        bound = f"; }}; {_bound(tag, owner, name)}"
        if number:
            edits.append(Edit(start, start, f"struct {tag} {{ {kind} "))
        else:
            edits.append(Edit(start, start, f"struct {tag} {{ "))
        if value:
            held = f"{bound} {{ anymps_launch::Plain<decltype({name})> anymps_value "
            edits.append(Edit(value[0].start, value[0].start, held))
            bound = f"; anymps_launch::set_shared({name}, anymps_value); }}"
        end = statement[-1] if number == len(parts) - 1 else None
        if end is not None:
            edits.append(Edit(end.start, end.end, bound))
        else:
            after = part[-1].end
            comma = next(token for token in statement if token.start >= after and token.text == ",")
            edits.append(Edit(comma.start, comma.end, f"{bound} "))
    return edits


def _kernels(
    structure: Structure, code: list[Token], synced: set[str], groups: Mapping[int, GroupForm]
) -> Iterable[tuple[KernelSource, Sequence[Token]]]:
    """The kernels, and of instances of templates the arguments."""
    kernels = [function for function in structure.functions if function.kernel]
    for function in kernels:
        if function.template is None:
            pointer = "&" + "::".join(("", *function.scope, function.name))
            name = function.host_name or function.name
            yield KernelSource(name, function, pointer, _is_synced(function, synced), groups.get(id(function))), ()
    for instance in structure.instances:
        name = instance.target.split("::")[-1]
        # The template nearest by scope; its overloads are told apart by the number of parameters.
        candidates = [function for function in kernels if function.name == name]
        if not candidates:
            continue
        count = len(split_commas(list(instance.parameters[1:-1])))
        fitting = [function for function in candidates if not count or len(function.parameters) == count]
        function = (fitting or candidates)[0]
        yield (
            KernelSource(
                instance.host_name,
                function,
                _instance_pointer(instance, function),
                _is_synced(function, synced) or any(token.text in synced for token in instance.arguments),
            ),
            instance.arguments,
        )


def _instance_pointer(instance: Instance, function: Function) -> str:
    target = "&" + "::".join(("", *function.scope, function.name)) + erased(instance.arguments)
    given = len(split_commas(list(instance.arguments[1:-1])))
    if not instance.parameters or given == len(function.template or ()):
        return target
    return f"static_cast<void (*){erased(instance.parameters)}>({target})"  # the rest follows from the parameters


def erased(tokens: Iterable[Token]) -> str:
    """Tokens as C++ text without address spaces and attributes."""
    tokens = list(tokens)
    words: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if is_attribute(tokens, index):
            index = closing(tokens, index) + 1
            continue
        if token.text == "constant":
            if words[-1:] != ["const"] and tokens[index + 1 : index + 2] and tokens[index + 1].text != "const":
                words.append("const")
        elif token.kind == "number":
            words.append(_literal(token.text))
        elif token.text not in SPACES:
            words.append(token.text)
        index += 1
    return " ".join(words)


def _is_synced(function: Function, synced: set[str]) -> bool:
    return "threadgroup" in function.names or any(name in synced or _SYNCS.fullmatch(name) for name in function.names)
