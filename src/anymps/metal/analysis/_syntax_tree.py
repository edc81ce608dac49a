"""The body of a function as a syntax tree: read once, and walked by all that ask what a kernel touches.

The grammar is a closed one. Whatever is not in it raises `Unclear`: no guess is ever made about a kernel.

A node is a tuple that begins with its kind. Variables have names of their own: two of one name are told apart. Types
are the words that they are written with, and `space` is an address space.

| statement | what follows its kind |
| --- | --- |
| block | statements |
| declare | variable, type, space, whether it is a pointer, an array's sizes (None: not said), initializer or None |
| refer | variable, space, what it is another name of |
| if | condition, one way, the other way |
| loop | condition or None, steps, body, whether the condition comes first |
| switch, case | what is compared, and the body; what it is compared with, None: `default` |
| return, break, continue | the value of a return, or None |
| do | expression |

| expression | what follows its kind |
| --- | --- |
| number, floating | value and type of an integer; nothing of a floating-point number |
| name, global | variable; name of what is declared elsewhere |
| binary; && and its like | operator, left side, right side; left side, right side |
| unary, choose | operator, operand; condition, one value, other value |
| assign, after | target, operator (empty: `=`), value; target, operator of `x++` |
| index, member, arrow | base, index; base, name of the member |
| cast, make, list | type, whether it is a pointer, operand; type, arguments; values |
| call, atomic | name, arguments, words of the template's arguments; name, target, other arguments |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anymps.metal.analysis._syntax_reader import LEVELS, Reader, Unclear
from anymps.metal.translation import ASSIGNMENTS, ATOMICS, SPACES, Token, closing, closing_angle, is_attribute

Node = tuple[Any, ...]

_DECLARED_SPACES = frozenset({"thread", "device", "constant", "threadgroup"})
_MOST = {"int": (1 << 31) - 1, "uint": (1 << 32) - 1, "long": (1 << 63) - 1, "ulong": (1 << 64) - 1}


class Tree(Reader):
    """Reads one function's body: `statements`. `names` are its parameters as variables.

    `types` are names of types; `own` are functions of the program's, which hide those of Metal.
    """

    def __init__(
        self, tokens: list[Token], types: Collection[str], own: Collection[str], parameters: Sequence[str]
    ) -> None:
        super().__init__(tokens, types)
        self._own = own
        self._count = 0
        self._start = tokens[0].start if tokens else 0
        self.names = [self._declared(name) for name in parameters]
        self.statements: list[Node] = []
        while self._at < len(self._tokens):
            self.statements.append(self._statement())

    def _declared(self, name: str) -> str:
        """A new variable; its place among those of its body, and the body's place, tell it apart."""
        self._count += 1
        self._scopes[-1][name] = f"{name} {self._start} {self._count}"
        return self._scopes[-1][name]

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    # Statements

    def _statement(self) -> Node:
        while self._at < len(self._tokens) and is_attribute(self._tokens, self._at):
            self._at = closing(self._tokens, self._at) + 1  # [[unroll]]
        if self._take(";"):
            return ("block", [])
        if self._take("{"):
            return self._block()
        word = self._text()
        if word in ("if", "for", "while", "do", "switch", "case", "default", "break", "continue", "return"):
            self._at += 1
            return self._control(word)
        found = self._simple()
        self._need(";")
        return found

    def _block(self) -> Node:
        parts = []
        with self._scope():
            while not self._take("}"):
                if self._at >= len(self._tokens):
                    raise Unclear("no end")
                parts.append(self._statement())
        return ("block", parts)

    def _control(self, word: str) -> Node:
        """What begins with such a word, which is taken."""
        if word == "if":
            self._take("constexpr")
            condition = self._in_brackets()
            one = self._alone()
            return ("if", condition, one, self._alone() if self._take("else") else ("block", []))
        if word == "for":
            return self._for()
        if word == "while":
            return ("loop", self._in_brackets(), [], self._alone(), True)
        if word == "switch":
            return ("switch", self._in_brackets(), self._alone())
        if word in ("case", "default"):
            value = self._ternary() if word == "case" else None
            self._need(":")
            return ("case", value)
        if word == "do":
            body = self._alone()
            self._need("while")
            found: Node = ("loop", self._in_brackets(), [], body, False)
        elif word == "return":
            found = ("return", None if self._text() == ";" else self._expression())
        else:
            found = (word,)
        self._need(";")
        return found

    def _in_brackets(self) -> Node:
        self._need("(")
        found = self._expression()
        self._need(")")
        return found

    def _alone(self) -> Node:
        with self._scope():
            return self._statement()

    def _for(self) -> Node:
        with self._scope():
            self._need("(")
            before = ("block", []) if self._text() == ";" else self._simple()
            self._need(";")
            condition = None if self._text() == ";" else self._expression()
            self._need(";")
            steps = [] if self._text() == ")" else [self._expression()]
            while self._take(","):
                steps.append(self._expression())
            self._need(")")
            return ("block", [before, ("loop", condition, steps, self._alone(), True)])

    def _simple(self) -> Node:
        """A declaration or an expression, without what ends it."""
        at = self._skip_type(self._at)
        after = self._tokens[at] if at < len(self._tokens) else None
        if at > self._at and after is not None and (after.text in ("*", "&", "[") or after.kind == "name"):
            return self._declaration(at)
        return ("do", self._expression())

    def _declaration(self, at: int) -> Node:
        words = self._words(at)
        space = next((word for word in words if word in SPACES), "thread")
        if space not in _DECLARED_SPACES:
            raise Unclear(space)
        if self._take("&"):
            name = self._name()
            self._need("=")
            given = self._expression()
            return ("refer", self._declared(name), space, given)
        pointer = self._take("*")
        if pointer:
            self._take("const")
            if space == "thread":
                raise Unclear("a pointer to what is a thread's own")
        parts = [self._declarator(words, space, pointer)]
        while self._take(","):
            if pointer:
                raise Unclear("several pointers")
            parts.append(self._declarator(words, space, pointer))
        return ("block", parts)

    def _declarator(self, words: tuple[str, ...], space: str, pointer: bool) -> Node:
        name, deduced = self._name(), "auto" in words
        sizes: list[Node | None] = []
        while self._take("["):
            sizes.append(None if self._text() == "]" else self._expression())
            self._need("]")
        if sizes and (pointer or deduced):
            raise Unclear("an array of pointers")
        given: Node | None = None
        if self._take("="):
            given = self._list() if self._text() == "{" else self._expression()
        elif self._text() == "{":
            given = self._list()
        if given is not None and space == "threadgroup" and not pointer:
            raise Unclear("an initializer of threadgroup memory")
        if given is None and deduced:
            raise Unclear("a type that nobody knows")
        return ("declare", self._declared(name), words, space, pointer, sizes, given)

    def _words(self, after: int) -> tuple[str, ...]:
        """Those of the type up to there, which is taken."""
        words = tuple(token.text for token in self._tokens[self._at : after])
        self._at = after
        return words

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
            return ("assign", self._unary(), text[0], ("number", 1, "int"))
        if text == "*":
            self._at += 1
            return ("index", self._unary(), ("number", 0, "int"))
        if text == "(":
            after = self._skip_type(self._at + 1)
            if after > self._at + 1 and after < len(self._tokens) and self._tokens[after].text in (")", "*"):
                self._at += 1
                words = self._words(after)
                pointer = self._take("*")
                self._need(")")
                return ("cast", words, pointer, self._unary())
        return self._postfix()

    def _postfix(self) -> Node:
        found = self._primary()
        while True:
            if self._text() == "[" and not is_attribute(self._tokens, self._at):
                self._at += 1
                found = ("index", found, self._expression())
                self._need("]")
            elif self._text() in (".", "->"):
                kind = "arrow" if self._text() == "->" else "member"
                self._at += 1
                found = (kind, found, self._name())
                if self._text() == "(":
                    raise Unclear("a method")
            elif self._text() in ("++", "--"):
                found = ("after", found, self._text()[0])
                self._at += 1
            else:
                return found

    def _primary(self) -> Node:
        if self._text() == "(":
            return self._in_brackets()
        if self._at >= len(self._tokens):
            raise Unclear("no end")
        token = self._tokens[self._at]
        if token.kind == "number":
            self._at += 1
            return _number(token.text)
        if token.text in ("true", "false"):
            self._at += 1
            return ("number", int(token.text == "true"), "bool")
        after = self._skip_type(self._at)
        if after > self._at and after < len(self._tokens) and self._tokens[after].text in ("(", "{"):
            words = self._words(after)
            if "auto" in words or not SPACES.isdisjoint(words):
                raise Unclear("a type of another form")
            return ("make", words, self._list()[1] if self._text() == "{" else self._arguments())
        return self._named()

    def _named(self) -> Node:
        """A variable, a constant or a call."""
        self._take("::")
        name, qualified = self._name(), False
        given: tuple[str, ...] = ()
        while True:
            if self._text() == "<" and (qualified or self._lookup(name) is None):
                close = closing_angle(self._tokens, self._at)
                if close > self._at and close + 1 < len(self._tokens) and self._tokens[close + 1].text in ("(", "::"):
                    given = self._words(self._arguments_end(self._at))[1:-1]
            if not self._take("::"):
                break
            name, qualified = self._name(), True
        variable = self._lookup(name)
        if self._text() != "(":
            return ("global", name) if variable is None or qualified else ("name", variable)
        if variable is not None or name == "decltype":
            raise Unclear("a call of another form")
        if name in ATOMICS and name not in self._own:
            return self._atomic(name)
        return ("call", name, self._arguments(), given)

    def _atomic(self, name: str) -> Node:
        self._need("(")
        target = self._unary() if self._take("&") else ("index", self._ternary(), ("number", 0, "int"))
        rest = []
        while self._take(","):
            rest.append(self._expression())
        self._need(")")
        return ("atomic", name, target, rest)

    def _arguments(self) -> list[Node]:
        self._need("(")
        found: list[Node] = []
        while not self._take(")"):
            found.append(self._expression())
            if self._text() != ")":
                self._need(",")
        return found


def _number(text: str) -> Node:
    """A literal: an integer has the first type of C++ that can hold it."""
    low = text.lower().replace("'", "")
    whole = low.startswith(("0x", "0b"))
    if not whole and any(letter in low for letter in ".efh"):
        return ("floating",)
    digits = low.rstrip("ul")
    suffix = low[len(digits) :]
    try:
        value = int(digits, 8 if digits.isdecimal() and digits.startswith("0") and len(digits) > 1 else 0)
    except ValueError:
        raise Unclear("a number of another form") from None
    kinds = ["uint", "ulong"] if "u" in suffix else ["int", "uint", "long", "ulong"] if whole else ["int", "long"]
    for kind in kinds:
        if value <= _MOST[kind] and ("l" not in suffix or kind.endswith("long")):
            return ("number", value, kind)
    raise Unclear("a large number")
