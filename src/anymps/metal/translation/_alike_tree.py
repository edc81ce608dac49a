"""The body of a function as a tree: of the same closed grammar in which it is found what decides a kernel's accesses.

A node is a tuple that begins with its kind. Names are those of variables, each with a number of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anymps.metal.translation._alike_values import (
    FLOATING,
    INT,
    KINDS,
    LONG,
    UINT,
    ULONG,
    UNKNOWN,
    Kind,
    Other,
    constant,
)
from anymps.metal.translation._brackets import SPACES, closing, closing_angle, is_attribute
from anymps.metal.translation._pure_calls import ATOMIC_TYPES, ATOMICS, TYPES
from anymps.metal.translation._statements import ASSIGNMENTS
from anymps.metal.translation._structure import Function
from anymps.metal.translation._tokens import Token
from anymps.metal.translation._value_reader import LEVELS, Reader, Unclear, Value, Variable

Node = tuple[Any, ...]

_SIZES = {"half": 2, "bfloat": 2, "float": 4}


class Type:
    """A type of a value: an integer's kind, or None; how many there are of them; whether they are floating."""

    def __init__(self, kind: Kind | None, size: int, count: int = 1) -> None:
        self.kind, self.count = kind, count
        self.size = size * (4 if count == 3 else count)
        self.element: Kind | Other = UNKNOWN if kind is not None and count > 1 else FLOATING if kind is None else kind


def type_of(words: Sequence[str]) -> Type | None:
    """The type that these words name; None for `auto`."""
    words = [word for word in words if word not in ("const", "constexpr", "metal", "::", *SPACES)]
    if words == ["auto"]:
        return None
    name = words[0] if words else ""
    if len(words) == 2 and name == "unsigned":
        name = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}.get(words[1], "")
    elif len(words) != 1:
        name = ""
    if name.startswith("atomic_"):
        name = name.removeprefix("atomic_")
    count = int(name[-1]) if name[-1:] in ("2", "3", "4") and name not in KINDS else 1
    base = name[:-1] if count > 1 else name
    if base in _SIZES:
        return Type(None, _SIZES[base], count)
    if base not in KINDS:
        raise Unclear("a type of another form")
    return Type(KINDS[base], max(KINDS[base].bits // 8, 1), count)


class _Names:
    """What the reader of tokens asks of a kernel."""

    divides = shifts = True

    def __init__(self, own: Mapping[str, list[Function]]) -> None:
        self.own = dict(own)

    def is_type(self, name: str, template: Collection[str]) -> bool:
        return name in TYPES or name in ATOMIC_TYPES or name in template

    def decide(self, labels: Collection[int]) -> None: ...
    def note(self, into: set[int], labels: Collection[int]) -> None: ...
    def called(self, name: str, arguments: Sequence[Value], control: Collection[int]) -> set[int]:
        raise Unclear(name)


class Tree(Reader):
    """Reads one function's body. `statements` are those of the body; `names` its parameters as variables."""

    def __init__(
        self, own: Mapping[str, list[Function]], code: list[Token], braces: tuple[int, int], names: Sequence[str]
    ) -> None:
        super().__init__(_Names(own), code[braces[0] + 1 : braces[1]], ())
        self._count, self._from = 0, braces[0]
        self._scopes = [{}]
        self.names = [self._declared(name) for name in names]
        self.statements: list[Node] = []
        while self._at < len(self._tokens):
            self.statements.append(self._statement())

    def _declared(self, name: str) -> str:
        self._count += 1
        self._scopes[-1][name] = Variable(f"{name} {self._from} {self._count}", "value")
        return self._scopes[-1][name].name

    # Statements

    def _statement(self) -> Node:
        while self._at < len(self._tokens) and is_attribute(self._tokens, self._at):
            self._at = closing(self._tokens, self._at) + 1  # [[unroll]]
        if self._take(";"):
            return ("block", [])
        if self._take("{"):
            self._scopes.append({})
            parts = []
            while not self._take("}"):
                if self._at >= len(self._tokens):
                    raise Unclear("no end")
                parts.append(self._statement())
            self._scopes.pop()
            return ("block", parts)
        if self._take("if"):
            self._take("constexpr")
            condition = self._in_brackets()
            one = self._alone()
            return ("if", condition, one, self._alone() if self._take("else") else ("block", []))
        if self._take("for"):
            return self._for()
        if self._take("while"):
            condition = self._in_brackets()
            return ("loop", condition, [], self._alone(), True)
        if self._take("do"):
            body = self._alone()
            self._need("while")
            condition = self._in_brackets()
            self._need(";")
            return ("loop", condition, [], body, False)
        for word in ("break", "continue"):
            if self._take(word):
                self._need(";")
                return (word,)
        if self._take("return"):
            value = None if self._text() == ";" else self._expression()
            self._need(";")
            return ("return", value)
        if self._text() in ("switch", "case", "default"):
            raise Unclear("a switch")
        found = self._simple()
        self._need(";")
        return found

    def _in_brackets(self) -> Node:
        self._need("(")
        found = self._expression()
        self._need(")")
        return found

    def _alone(self) -> Node:
        self._scopes.append({})
        found = self._statement()
        self._scopes.pop()
        return found

    def _for(self) -> Node:
        self._scopes.append({})
        self._need("(")
        before = ("block", []) if self._text() == ";" else self._simple()
        self._need(";")
        condition = None if self._text() == ";" else self._expression()
        self._need(";")
        steps = []
        while self._text() != ")":
            steps.append(self._expression())
            if self._text() != ")":
                self._need(",")
        self._need(")")
        body = self._alone()
        self._scopes.pop()
        return ("block", [before, ("loop", condition, steps, body, True)])

    def _simple(self) -> Node:
        at = self._skip_type(self._at)
        after = self._tokens[at] if at < len(self._tokens) else None
        if at > self._at and after is not None and (after.text in ("*", "&", "[") or after.kind == "name"):
            return self._declaration(at)
        return ("do", self._expression())

    def _declaration(self, at: int) -> Node:
        words = [token.text for token in self._tokens[self._at : at]]
        self._at = at
        space = next((word for word in words if word in SPACES), "thread")
        if space not in ("thread", "device", "constant", "threadgroup") or self._text() == "&":
            raise Unclear("a declaration of another form")
        kind = type_of(words)
        pointer = self._take("*")
        if pointer:
            self._take("const")
        if pointer and (space == "thread" or kind is None):
            raise Unclear("a pointer of another form")
        parts: list[Node] = []
        while True:
            parts.append(self._declarator(kind, space, pointer))
            if not self._take(","):
                return ("block", parts)
            if pointer:
                raise Unclear("several pointers")

    def _declarator(self, kind: Type | None, space: str, pointer: bool) -> Node:
        name, sizes = self._name(), 0
        while self._take("["):
            if self._text() != "]":
                self._expression()
            self._need("]")
            sizes += 1
        if sizes and (pointer or kind is None):
            raise Unclear("an array of another form")
        given: Node | None = None
        if self._take("="):
            given = self._list() if self._text() == "{" else self._expression()
        elif self._text() == "{":
            given = self._list()
        unique = self._declared(name)
        if space == "threadgroup" and not pointer:
            if given is not None:
                raise Unclear("an initializer of threadgroup memory")
            return ("shared", unique, kind, sizes)
        if sizes:
            return ("array", unique, kind, sizes, given)
        if given is None and kind is None:
            raise Unclear("a type that nobody knows")
        return ("declare", unique, None if pointer else kind, given, pointer)

    def _list(self) -> Node:
        """`{a, {b, c}}`"""
        self._need("{")
        parts = []
        while not self._take("}"):
            parts.append(self._list() if self._text() == "{" else self._expression())
            if self._text() != "}":
                self._need(",")
        return ("list", parts)

    # Expressions

    def _expression(self) -> Node:
        left = self._ternary()
        operator = self._text()
        if operator not in ASSIGNMENTS:
            return left
        self._at += 1
        return ("assign", left, operator[:-1], self._expression())

    def _ternary(self) -> Node:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        one = self._expression()
        self._need(":")
        return ("choose", condition, one, self._expression())

    def _binary(self, level: int) -> Node:
        if level == len(LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while (operator := self._operator()) in LEVELS[level]:
            self._at += 2 if operator in ("<<", ">>") else 1
            right = self._binary(level + 1)
            left = (operator, left, right) if operator in ("||", "&&") else ("binary", operator, left, right)
        return left

    def _unary(self) -> Node:
        text = self._text()
        if text in ("-", "+", "!", "~"):
            self._at += 1
            return ("unary", text, self._unary())
        if text in ("++", "--"):
            self._at += 1
            return ("assign", self._unary(), text[0], ("number", constant(1)))
        if text == "*":
            self._at += 1
            return ("index", self._unary(), ("number", constant(0)))
        if text == "(":
            after = self._skip_type(self._at + 1)
            if after > self._at + 1 and after < len(self._tokens) and self._tokens[after].text == ")":
                kind = type_of([token.text for token in self._tokens[self._at + 1 : after]])
                self._at = after + 1
                return ("cast", kind, self._unary())
        return self._postfix()

    def _postfix(self) -> Node:
        found = self._primary()
        while True:
            if self._text() == "[" and not is_attribute(self._tokens, self._at):
                self._at += 1
                found = ("index", found, self._expression())
                self._need("]")
            elif self._take("."):
                found = ("member", found, self._name())
                if self._text() == "(":
                    raise Unclear("a method")
            elif self._text() in ("++", "--"):
                found = ("after", found, self._text()[0])
                self._at += 1
            else:
                return found

    def _primary(self) -> Node:
        if self._take("("):
            found = self._expression()
            self._need(")")
            return found
        if self._at >= len(self._tokens):
            raise Unclear("no end")
        token = self._tokens[self._at]
        if token.kind == "number":
            self._at += 1
            return _number(token.text)
        if token.text in ("true", "false"):
            self._at += 1
            return ("number", constant(int(token.text == "true"), KINDS["bool"]))
        after = self._skip_type(self._at)
        if after > self._at and after < len(self._tokens) and self._tokens[after].text in ("(", "{"):
            kind = type_of([one.text for one in self._tokens[self._at : after]])
            self._at = after
            return ("make", kind, self._list()[1] if self._text() == "{" else self._arguments())
        return self._named()

    def _named(self) -> Node:
        self._take("::")
        name, qualified = self._name(), False
        given: list[str] = []
        while True:
            if self._text() == "<" and (qualified or self._lookup(name) is None):
                close = closing_angle(self._tokens, self._at)
                if close > self._at and close + 1 < len(self._tokens) and self._tokens[close + 1].text in ("(", "::"):
                    end = self._arguments_end(self._at)
                    given = [token.text for token in self._tokens[self._at + 1 : end - 1]]
                    self._at = end
            if not self._take("::"):
                break
            name, qualified = self._name(), True
        if self._text() != "(":
            variable = None if qualified else self._lookup(name)
            return ("global", name) if variable is None else ("name", variable.name)
        if self._lookup(name) is not None or name in ("sizeof", "decltype"):
            raise Unclear("a call of another form")
        if name in ATOMICS and name not in self._kernel.own:
            self._at += 1
            target = self._unary() if self._take("&") else ("index", self._ternary(), ("number", constant(0)))
            rest = []
            while self._take(","):
                rest.append(self._expression())
            self._need(")")
            return ("atomic", name, target, rest)
        return ("call", name, self._arguments(), given)

    def _arguments(self) -> list[Node]:
        self._need("(")
        found: list[Node] = []
        while not self._take(")"):
            found.append(self._expression())
            if self._text() != ")":
                self._need(",")
        return found


def _number(text: str) -> Node:
    low = text.lower().replace("'", "")
    whole = low.startswith(("0x", "0b"))
    if not whole and any(letter in low for letter in ".efh"):
        return ("floating",)
    digits = low.rstrip("ul")
    suffix = low[len(digits) :]
    value = int(digits, 8 if digits.isdecimal() and digits.startswith("0") and len(digits) > 1 else 0)
    kinds = [UINT, ULONG] if "u" in suffix else [INT, UINT, LONG, ULONG] if whole else [INT, LONG]
    if "l" in suffix:
        kinds = [kind for kind in kinds if kind.bits == LONG.bits]
    for kind in kinds:
        if value <= kind.most:
            return ("number", constant(value, kind))
    raise Unclear("a large number")
