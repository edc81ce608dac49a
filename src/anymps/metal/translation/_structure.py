"""What a Metal source declares: functions, kernels, instances of templates and members, found by brackets alone.

No grammar of C++ is needed for that. In a namespace or a class a declaration reaches from one `;` or `}` to the next
`;` or `{`. The body of a function is skipped; only the names in it are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from anymps.metal.translation._brackets import (
    CLASSES,
    OPENING,
    SPACES,
    attributes_of,
    closing,
    closing_angle,
    split_commas,
    top_level,
    without_attributes,
)
from anymps.metal.translation._heads import (
    class_name,
    declared_name,
    makes,
    parameters_at,
    template_parameter,
)
from anymps.metal.translation._tokens import Token


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its attribute (`buffer`, a position, or none), that attribute's argument, its text."""

    attribute: str
    argument: str
    tokens: tuple[Token, ...]


@dataclass
class Function:
    """A function with a body. Offsets are indices of tokens."""

    name: str
    scope: tuple[str, ...]
    head: list[Token]
    body: tuple[int, int]  # the braces
    names: frozenset[str]
    own_names: frozenset[str]  # those of them that are not behind `.` or `->`
    template: tuple[str, ...] | None = None  # names of its template's parameters
    kernel: bool = False
    host_name: str = ""
    max_threads: str = ""
    parameters: tuple[Parameter, ...] = ()
    renamed: bool = False  # a kernel beside a function of its name

    @property
    def called(self) -> str:
        """Its name in C++."""
        return f"anymps_kernel_{self.name}" if self.renamed else self.name


@dataclass(frozen=True)
class Declaration:
    """What stands outside of functions, with its first and last token; of a class's members, functions alone."""

    name: str
    first: int
    last: int
    function: Function | None = None


@dataclass
class Instance:
    """`template [[host_name("x")]] kernel void f<float>(...);`"""

    host_name: str
    target: str  # `f`, or `::a::f`
    arguments: tuple[Token, ...]  # of the template, with its angle brackets; none: deduced
    parameters: tuple[Token, ...]
    scope: tuple[str, ...]
    tokens: tuple[Token, ...]


@dataclass
class Structure:
    """All of a source."""

    functions: list[Function] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    classes: dict[str, set[str]] = field(default_factory=dict)  # the names that appear in a class
    fields: dict[str, list[list[Token]]] = field(default_factory=dict)  # what it declares, but for bodies
    # First and last token of what address spaces alone told apart.
    doubles: list[tuple[int, int]] = field(default_factory=list)
    function_constants: list[tuple[Token, Token]] = field(default_factory=list)  # the name, and the semicolon
    specialized: list[tuple[int, int]] = field(default_factory=list)  # `template <>` of a class's own functions
    of_constructors: set[int] = field(default_factory=set)  # where their objects' address spaces stand
    variables: dict[str, set[str]] = field(default_factory=dict)  # of globals the names in their values
    declarations: list[Declaration] = field(default_factory=list)


def read_structure(tokens: list[Token]) -> Structure:
    """Finds the declarations among the tokens, of which those of the preprocessor's lines are left out before."""
    return _Reader(tokens).read()


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.found = Structure()
        self.scopes: list[tuple[str, str]] = []  # (what, name)
        self.typedefs: list[int] = []  # how deep the classes lie that a `typedef` begins
        self.seen: dict[tuple[tuple[str, ...], str], str] = {}

    def read(self) -> Structure:
        index = start = 0
        tokens = self.tokens
        while index < len(tokens):
            text = tokens[index].text
            if text == ";":
                self._declaration(start, index)
                index = start = index + 1
            elif text == "}":
                if self.scopes:
                    self.scopes.pop()
                index = start = index + 1
                if self.typedefs and self.typedefs[-1] == len(self.scopes):  # the names behind it are no variables
                    self.typedefs.pop()
                    while index < len(tokens) and tokens[index].text not in (";", "}"):
                        index = start = index + 1
            elif text == "{":
                index = start = self._braces(start, index)
            elif text in ("(", "["):
                index = closing(tokens, index) + 1
            elif text == ":" and start < index and tokens[start].text in ("public", "private", "protected"):
                index = start = index + 1
            else:
                index += 1
        others = {(function.scope, function.name) for function in self.found.functions if not function.kernel}
        for function in self.found.functions:
            function.renamed = function.kernel and not function.template and (function.scope, function.name) in others
        return self.found

    @property
    def _scope(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.scopes if name)

    def _after_template(self, index: int, end: int) -> tuple[int, tuple[str, ...] | None]:
        """The first token behind `template <...>`, and the names of the parameters."""
        names: tuple[str, ...] | None = None
        while index + 1 < end and self.tokens[index].text == "template" and self.tokens[index + 1].text == "<":
            close = closing_angle(self.tokens, index + 1)
            if close == index + 1:
                break
            names = tuple(template_parameter(part) for part in split_commas(self.tokens[index + 2 : close]))
            index = close + 1
        return index, names

    def _braces(self, start: int, brace: int) -> int:
        """Reads what begins with the brace; returns where the next declaration begins."""
        tokens = self.tokens
        first, template = self._after_template(start, brace)
        head = tokens[first:brace]
        words = [token.text for token in head]
        level = top_level(head)
        if "namespace" in words or words[:1] == ["extern"]:
            path = [word for word in words if re.match(r"\w", word) and word not in ("namespace", "inline", "extern")]
            self.scopes.append(("namespace", "::".join(path)))
            return brace + 1
        class_word = next((i for i, word in enumerate(words) if word in CLASSES), None)
        if class_word is not None and "(" not in level and "=" not in level:
            return self._class(start, brace, head, class_name(head[class_word + 1 :]))
        if "(" in level and "=" not in level[: level.index("(")] and "enum" not in words:
            body = self._body(brace, initializes=":" in level)
            self._function(start, first, template, *body)
            return self._with_semicolon(body[1]) + 1
        return self._initializer(start, brace)

    def _class(self, start: int, brace: int, head: list[Token], name: str) -> int:
        tokens = self.tokens
        close = closing(tokens, brace)
        if self._is_double(tokens[start:brace]):
            end = self._with_semicolon(close)
            self.found.doubles.append((start, end))
            return end + 1
        self.found.classes.setdefault(name, set()).update(
            token.text for token in tokens[brace:close] if token.kind == "name"
        )
        end = self._next(close + 1, (";",))
        self.found.declarations.append(Declaration(declared_name(tokens[close + 1 : end]) or name, start, end))
        if head[0].text == "typedef":
            self.typedefs.append(len(self.scopes))
        self.scopes.append(("class", name))
        return brace + 1

    def _body(self, brace: int, initializes: bool) -> tuple[int, int]:
        """The braces of a function's body, of which the first may be at `brace`.

        `: a_(1), b_{2} {`: braces of a constructor's list, where it `initializes` members, come before those.
        """
        tokens = self.tokens
        close = closing(tokens, brace)
        while close + 1 < len(tokens) and tokens[close + 1].text in (",", "{") and initializes:
            brace = self._next(close + 1, ("{",))
            close = closing(tokens, brace)
        return brace, close

    def _initializer(self, start: int, brace: int) -> int:
        """An initializer or an enumeration: over at the next semicolon."""
        index = self._next(closing(self.tokens, brace) + 1, (";", "}"))
        if index < len(self.tokens) and self.tokens[index].text == ";":
            self._declaration(start, index)
            return index + 1
        return index

    def _next(self, index: int, texts: tuple[str, ...]) -> int:
        """Where one of these stands next, outside of brackets that open on the way."""
        tokens = self.tokens
        while index < len(tokens) and tokens[index].text not in texts:
            index = closing(tokens, index) + 1 if tokens[index].text in OPENING else index + 1
        return index

    def _with_semicolon(self, close: int) -> int:
        """The last token of what a brace closes: the brace, or the semicolon behind it."""
        behind = close + 1
        return behind if behind < len(self.tokens) and self.tokens[behind].text == ";" else close

    def _is_double(self, head: list[Token]) -> bool:
        """Whether a definition was there before, and only an address space told the two apart.

        The same head in two branches of an `#if` is none: there it is the same to the letter.
        """
        words: list[str] = []
        # A constructor cannot be const: there an address space is none of its type at all.
        constructor = bool(self.scopes) and self.scopes[-1][0] == "class" and makes(head, self.scopes[-1][1])
        for token in head:
            word = "const" if token.text == "constant" and not constructor else token.text
            if word not in SPACES and not (word == "const" and words[-1:] == ["const"]):
                words.append(word)
        raw = " ".join(token.text for token in head)
        return self.seen.setdefault((self._scope, " ".join(words)), raw) != raw

    def _function(self, start: int, first: int, template: tuple[str, ...] | None, brace: int, close: int) -> None:
        tokens = self.tokens
        head = tokens[first:brace]
        opening = parameters_at(head)
        name = head[opening - 1].text if opening else ""
        if "operator" in [token.text for token in head[:opening]]:
            name = "operator"
        names = frozenset(token.text for token in tokens[start : close + 1] if token.kind == "name")
        own_names = frozenset(
            token.text
            for before, token in pairwise(tokens[max(start - 1, 0) : close + 1])
            if token.kind == "name" and before.text not in (".", "->")
        )
        function = Function(name, self._scope, head, (brace, close), names, own_names, template)
        _read_head(function, opening)
        if self._is_double(tokens[start:brace]) and not function.kernel:
            self.found.doubles.append((start, close))
            return
        if self.scopes and self.scopes[-1][0] == "class":
            self.found.classes.setdefault(self.scopes[-1][1], set()).update(names)
            # Metal's compiler takes them in a class, g++ outside alone: as an overload it is what fits best, too.
            if template == () and opening and head[opening - 1].text != ">":
                self.found.specialized.append((start, first - 1))
            if makes(head, self.scopes[-1][1]):
                self.found.of_constructors.update(t.start for t in head[closing(head, opening) :] if t.text in SPACES)
        self.found.functions.append(function)
        self.found.declarations.append(Declaration(name, start, close, function))

    def _declaration(self, start: int, end: int) -> None:
        tokens = self.tokens[start:end]
        if not tokens:
            return
        words = [token.text for token in tokens]
        if words[0] == "template" and words[1:2] != ["<"]:
            self._instance(self.tokens[start : end + 1])
            self.found.declarations.append(Declaration("", start, end))
            return
        in_class = bool(self.scopes) and self.scopes[-1][0] == "class"
        if not in_class:
            self.found.declarations.append(Declaration(declared_name(tokens), start, end))
        if not in_class and "=" in words and "function_constant" not in words:
            used = (token.text for token in tokens[words.index("=") :] if token.kind == "name")
            self.found.variables.setdefault(declared_name(tokens), set()).update(used)
        if in_class and words[-2:] in (["=", "default"], ["=", "delete"]) and self._is_double(tokens):
            self.found.doubles.append((start, end))
        elif "function_constant" in words:
            before_bracket = (token for token, after in pairwise(tokens) if after.text == "[" and token.kind == "name")
            self.found.function_constants.append((next(before_bracket, tokens[0]), self.tokens[end]))
        if in_class:
            self.found.fields.setdefault(self.scopes[-1][1], []).append(tokens)
            self.found.members.update(
                token.text
                for token, after in zip(tokens, [*tokens[1:], None], strict=True)
                if token.kind == "name" and (after is None or after.text in (",", "=", "[", "{", ":"))
            )

    def _instance(self, tokens: list[Token]) -> None:
        attributes = attributes_of(tokens)
        rest = without_attributes(tokens[1:-1])
        words = [token.text for token in rest]
        arguments: list[Token] = []
        parameters: list[Token] = []
        if "decltype" in words:
            after = closing(rest, words.index("decltype") + 1) + 1
            name_at = after
        elif "void" in words:
            name_at = words.index("void") + 1
        else:  # `kernel kernel_t f<float>;`, where `kernel_t` is the type of such a function
            name_at = words.index("<") - 1 if "<" in words else 0
            while name_at > 1 and words[name_at - 1] == "::":
                name_at -= 2 if rest[name_at - 2].kind == "name" else 1
        index = name_at
        target = ""
        while index < len(rest) and (rest[index].kind == "name" or rest[index].text == "::"):
            target += rest[index].text
            index += 1
        if index < len(rest) and rest[index].text == "<":
            close = closing_angle(rest, index)
            arguments = rest[index : close + 1]
            index = close + 1
        if index < len(rest) and rest[index].text == "(":
            parameters = rest[index : closing(rest, index) + 1]
        if "host_name" not in attributes and "kernel" not in words:
            return  # an instance of an ordinary function
        self.found.instances.append(
            Instance(
                attributes.get("host_name", target.split("::")[-1]),
                target,
                tuple(arguments),
                tuple(parameters),
                self._scope,
                tuple(tokens),
            )
        )


def _read_head(function: Function, opening: int) -> None:
    """Sets what the head says of a kernel; `opening` is the index of the bracket before the parameters, or 0."""
    head = function.head
    attributes = attributes_of(head[:opening] if opening else head)
    function.kernel = any(token.text == "kernel" for token in head)
    function.host_name = attributes.get("host_name", "")
    function.max_threads = attributes.get("max_total_threads_per_threadgroup", "")
    if opening and function.kernel:
        close = closing(head, opening)
        trailing = attributes_of(head[close:])
        function.max_threads = function.max_threads or trailing.get("max_total_threads_per_threadgroup", "")
        parts = [part for part in split_commas(head[opening + 1 : close]) if [t.text for t in part] != ["void"]]
        function.parameters = tuple(_parameter(part) for part in parts)


def _parameter(tokens: list[Token]) -> Parameter:
    attributes = attributes_of(tokens)
    name = next(iter(attributes), "")
    return Parameter(name, attributes.get(name, ""), tuple(tokens))
