"""Metal source to C++17: all edits of a source together, and the kernels that it has.

The compiler checks all types; the edits here need none. Lines stay where they are, so that errors name the user's;
columns that move are kept in `Rewritten`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anymps.metal.translation._brackets import names_a_class, split_commas
from anymps.metal.translation._call_places import call_edits
from anymps.metal.translation._fission import GroupForm, group_form
from anymps.metal.translation._fission_calls import OwnCalls
from anymps.metal.translation._heads import parameters_at
from anymps.metal.translation._left_out import left_out
from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._shared_variables import shared_memory
from anymps.metal.translation._structure import Function, Instance, Structure, read_structure
from anymps.metal.translation._token_edits import erased, token_edits
from anymps.metal.translation._tokens import Edit, Rewritten, Token, apply, blank, tokenize
from anymps.metal.translation._unbound_resources import argument_buffer, constant_read, pointer_classes

_SYNCS = re.compile(
    r"threadgroup_barrier|simdgroup_barrier|simd_(?!vote$|float|int|uint|half)\w+|quad_(?!vote$)\w+"
    r"|simdgroup_(?!index_in|event)\w+|threadgroup_imageblock|__metal_simd_\w+"
)


@dataclass(frozen=True)
class KernelSource:
    """A kernel as `dir(lib)` names it, and what its launcher is made from."""

    name: str
    function: Function
    pointer: str  # its address in C++
    synced: bool  # its threads need each other: barriers, SIMD groups, threadgroup memory
    group: GroupForm | None = None  # how a whole group of it runs without fibers
    unbound: Unsupported | None = None  # why it cannot be used: what it needs that nothing in Python can fill


@dataclass(frozen=True)
class Translation:
    """What the source became."""

    rewritten: Rewritten
    kernels: tuple[KernelSource, ...]


def translate(text: str, synced_names: Iterable[str] = (), loops: bool = False, chains: bool = False) -> Translation:
    """Rewrites a source and finds its kernels. `synced_names` are functions of included headers that synchronise.

    With `loops`, kernels that can do without fibers do. Raises Unsupported for a feature that is not there.
    """
    shader = _Shader(text)
    names = call_names(shader.tokens, shader.structure)
    synced = closure(names, synced_names)
    groups = _group_forms(shader, synced) if loops else {}
    for function in shader.there():
        if id(function) in groups:  # the kernel itself is there for its type alone
            shader.blank_body(function)
    if chains:
        called = [function for function in shader.there() if id(function) not in groups]
        shader.edits += call_edits(shader.code, called, shader.structure.classes, synced)
    holders = pointer_classes(shader.structure)
    kernels = tuple(
        replace(
            kernel,
            unbound=constant_read(kernel.name, kernel.function, used, shader.structure, names)
            or shader.gone.kernels.get(id(kernel.function))
            or argument_buffer(kernel.name, kernel.function.parameters, holders),
        )
        for kernel, used in _kernels(shader.structure, synced, groups)
    )
    return Translation(apply(text, shader.edits), kernels)


class _Shader:
    """A source on its way: what is read of it, and the edits so far. Raises Unsupported as `translate`."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, tokenize(text)
        linkages = self._without_linkages()
        self.code = [token for token in self.tokens if not token.directive]
        self.structure = read_structure(self.code)
        self.gone = left_out(self.code, self.structure)
        edits = [*token_edits(text, self.tokens, self.structure), *_structure_edits(self.code, self.structure)]
        self.edits = self._with_blanks([*linkages, *edits])

    def there(self) -> Iterator[Function]:
        """The functions that are not left out."""
        return (function for function in self.structure.functions if id(function) not in self.gone.functions)

    def blank_body(self, function: Function) -> None:
        """Has nothing stand between the braces of a function."""
        start, end = self.code[function.body[0]].end, self.code[function.body[1]].start
        self.edits = [edit for edit in self.edits if not start <= edit.start < end]
        self.edits.append(blank(self.text, start, end))

    def render(self, first: int, last: int, replaced: Mapping[tuple[int, int], str]) -> str:
        """The text of tokens after the edits, with other texts in the place of some of them."""
        start, end = self.code[first].start, self.code[last].end
        changes = [Edit(self.code[a].start, self.code[b].end, name) for (a, b), name in replaced.items()]
        kept = [e for e in self.edits if not any(c.start <= e.start and e.end <= c.end for c in changes)]
        inside = [e for e in (*kept, *changes) if start <= e.start and e.end <= end]
        return apply(self.text[start:end], [Edit(e.start - start, e.end - start, e.text) for e in inside]).text

    def _without_linkages(self) -> list[Edit]:
        """Takes `extern "C"` before classes out of the text, and out of the tokens."""
        tokens = self.tokens
        linkages = [i for i, token in enumerate(tokens) if token.text == "extern" and names_a_class(tokens, i)]
        edits = [blank(self.text, tokens[index].start, tokens[index + 1].end) for index in linkages]
        for index in reversed(linkages):
            del tokens[index : index + 2]
        return edits

    def _with_blanks(self, edits: Iterable[Edit]) -> list[Edit]:
        """The edits, and in the place of those within what goes as a whole that it goes."""
        spans = [*self.structure.doubles, *self.structure.specialized, *self.gone.spans]
        places = [(self.code[a].start, self.code[b].end) for a, b in spans]
        places += [(instance.tokens[0].start, instance.tokens[-1].end) for instance in self.structure.instances]
        outer: list[tuple[int, int]] = []
        for start, end in sorted(places, key=lambda span: (span[0], -span[1])):
            if not outer or start >= outer[-1][1]:
                outer.append((start, end))
        starts = [start for start, _ in outer]

        def is_within(edit: Edit) -> bool:
            place = bisect_right(starts, edit.start) - 1
            return place >= 0 and edit.start < outer[place][1]

        gone = (blank(self.text, start, end) for start, end in outer)
        return [*(edit for edit in edits if not is_within(edit)), *gone]


def _group_forms(shader: _Shader, synced: set[str]) -> dict[int, GroupForm]:
    """By `id` of the function, how a whole group runs each kernel that synchronises and can do without fibers."""
    own = OwnCalls(shader.structure)
    groups: dict[int, GroupForm] = {}
    for function in shader.there():
        if function.kernel and function.template is None and _is_synced(function, synced):
            group = group_form(function, shader.code, synced, own, shader.render)
            if group is not None:
                groups[id(function)] = group
    return groups


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


def _structure_edits(code: list[Token], structure: Structure) -> list[Edit]:
    """What takes a look around."""
    # Without a value: who reads one is refused, and the declaration is there for the compiler alone.
    edits = [Edit(end.start, end.start, " = {}") for _, end in structure.function_constants]
    for function in structure.functions:
        edits += shared_memory(code, function)
        if function.renamed:
            named = function.head[parameters_at(function.head) - 1]
            edits.append(Edit(named.start, named.end, function.called))
    return edits


def _kernels(
    structure: Structure, synced: set[str], groups: Mapping[int, GroupForm]
) -> Iterable[tuple[KernelSource, Sequence[Token]]]:
    """The kernels, and of instances of templates the arguments."""
    kernels = [function for function in structure.functions if function.kernel]
    for function in kernels:
        if function.template is None:
            pointer = "&" + "::".join(("", *function.scope, function.called))
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


def _is_synced(function: Function, synced: set[str]) -> bool:
    return "threadgroup" in function.names or any(name in synced or _SYNCS.fullmatch(name) for name in function.names)
