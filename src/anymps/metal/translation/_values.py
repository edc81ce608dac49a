"""The values of expressions: which buffers they may come from, and whether they are addresses.

An expression is read token by token, with the precedence of C++. Whatever is not understood raises `Unclear`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from anymps.metal.translation._brackets import SPACES, closing, closing_angle, is_attribute
from anymps.metal.translation._pure_calls import ATOMICS, FLOAT_CALLS, FLOATS, PURE, VALUES_OF, WHOLE
from anymps.metal.translation._statements import ASSIGNMENTS
from anymps.metal.translation._tokens import Token
from anymps.metal.translation._value_reader import ANY, LEVELS, Kernel, Reader, Unclear, Value

_SHIFT_LIMIT = 32  # what is narrower is an `int` by then
_COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||"})


class Expressions(Reader):
    """Reads the expressions of one function's body. `control`: what decides whether it is called, or left early."""

    def __init__(self, kernel: Kernel, tokens: list[Token], template: Collection[str]) -> None:
        super().__init__(kernel, tokens, template)
        self.control: set[int] = set()
        self._around: list[frozenset[int]] = []  # what decides whether a thread comes here

    # What decides

    def _here(self) -> frozenset[int]:
        return frozenset(self.control).union(*self._around)

    def _weigh(self, labels: Collection[int] = ()) -> None:
        """Something happens here that the checker looks at, and it depends on values with these labels."""
        self._kernel.decide(self._here().union(labels))

    @contextmanager
    def _under(self, labels: Collection[int]) -> Iterator[None]:
        self._around.append(frozenset(labels))
        yield
        self._around.pop()

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _list(self) -> Value:
        """`{a, {b, c}}`"""
        self._need("{")
        labels: frozenset[int] = frozenset()
        while not self._take("}"):
            one = self._list() if self._text() == "{" else self._value(self._expression())
            labels |= one.labels
            if self._text() != "}":
                self._need(",")
        return Value(labels)

    # Expressions

    def _value(self, found: Value) -> Value:
        """A value that is no address."""
        if found.content is not None:
            raise Unclear("an address in the place of a value")
        return found

    def _expression(self) -> Value:
        left = self._ternary()
        operator = self._text()
        if operator not in ASSIGNMENTS:
            return left
        self._at += 1
        right = self._expression()
        if operator in ("/=", "%=", "<<=", ">>="):
            self._divided(operator[:-1], left, right)
        return self._assign(left, right, operator == "=")

    def _assign(self, left: Value, right: Value, whole: bool) -> Value:
        labels = left.labels | right.labels | self._here()
        if left.in_memory:
            self._weigh()
            self._value(right)
            return Value(labels, floating=left.floating)
        target = left.target
        if target is None:
            raise Unclear("an assignment to nothing")
        if target.kind == "pointer":
            if (right.content is None) == whole or (whole and right.content != target.content):
                raise Unclear("a pointer that changes what it is")
        else:
            self._value(right)
        self._kernel.note(target.labels, labels)
        return Value(labels, left.content, left.floating)

    def _ternary(self) -> Value:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        self._value(condition)
        with self._under(condition.labels):
            one = self._expression()
            self._need(":")
            other = self._expression()
        labels = condition.labels | one.labels | other.labels
        if one.content != other.content:
            raise Unclear("one of several addresses")
        return Value(labels, one.content, one.floating and other.floating)

    def _binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while (operator := self._operator()) in LEVELS[level]:
            self._at += 2 if operator in ("<<", ">>") else 1
            with self._under(left.labels if operator in ("&&", "||") else ()):
                right = self._binary(level + 1)
            left = self._joined(operator, left, right)
        return left

    def _joined(self, operator: str, left: Value, right: Value) -> Value:
        labels = left.labels | right.labels
        content = None
        if operator in ("+", "-") and (left.content is None) != (right.content is None):
            if operator == "-" and left.content is None:
                raise Unclear("an address taken from a number")
            content = left.content if left.content is not None else right.content
        else:
            self._value(left)
            self._value(right)
        self._divided(operator, left, right)
        compares = operator in _COMPARES
        return Value(labels, content, not compares and content is None and (left.floating or right.floating))

    def _divided(self, operator: str, left: Value, right: Value) -> None:
        """An integer may be divided by zero, or shifted too far."""
        if operator in ("<<", ">>"):
            judged = self._kernel.shifts and not (right.fixed is not None and right.fixed < _SHIFT_LIMIT)
        elif operator in ("/", "%"):
            judged = self._kernel.divides and not (right.fixed or (operator == "/" and left.floating | right.floating))
        else:
            judged = False
        if judged:
            self._weigh(right.labels)

    def _unary(self) -> Value:
        text = self._text()
        if text in ("-", "+", "!", "~"):
            self._at += 1
            found = self._value(self._unary())
            return Value(
                found.labels, floating=found.floating and text in ("-", "+"), fixed=found.fixed if text == "+" else None
            )
        if text in ("++", "--"):
            self._at += 1
            found = self._unary()
            return self._assign(found, Value(), False)
        if text == "*":
            self._at += 1
            return self._read(self._unary(), Value())
        if text == "(":
            after = self._skip_type(self._at + 1)
            if after > self._at + 1 and after < len(self._tokens) and self._tokens[after].text in (")", "*"):
                return self._cast(after)
        return self._postfix()

    def _cast(self, after: int) -> Value:
        words = [token.text for token in self._tokens[self._at + 1 : after]]
        self._at = after
        pointer = self._take("*")
        self._need(")")
        found = self._unary()
        if pointer != (found.content is not None) or "auto" in words:
            raise Unclear("a cast of an address")
        if pointer:
            return Value(found.labels, ANY, False)
        return Value(found.labels, floating=any(word in FLOATS for word in words) and "vec" not in words)

    def _read(self, pointer: Value, index: Value) -> Value:
        """What lies in memory."""
        self._value(index)
        if pointer.content is None:
            raise Unclear("what lies at no address")
        self._weigh(pointer.labels | index.labels)
        return Value(frozenset({pointer.content}), floating=pointer.floating, in_memory=True)

    def _postfix(self) -> Value:
        found = self._primary()
        while True:
            if self._text() == "[" and not is_attribute(self._tokens, self._at):
                self._at += 1
                index = self._expression()
                self._need("]")
                if found.content is not None:
                    found = self._read(found, index)
                else:
                    self._weigh(self._value(index).labels)
                    found = Value(found.labels, None, found.floating, None, found.target, found.in_memory)
            elif self._take("."):
                self._name()
                if self._text() == "(":
                    raise Unclear("a method")
                self._value(found)
                found = Value(found.labels, None, found.floating, None, found.target, found.in_memory)
            elif self._take("->"):
                self._name()
                if self._text() == "(":
                    raise Unclear("a method")
                found = self._read(found, Value())
                found.floating = False
            elif self._text() in ("++", "--"):
                self._at += 1
                found = self._assign(found, Value(), False)
            else:
                return found

    def _primary(self) -> Value:
        if self._take("("):
            found = self._expression()
            self._need(")")
            return found
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is not None and token.kind == "number":
            self._at += 1
            return _number(token.text)
        after = self._skip_type(self._at)
        if after > self._at and after < len(self._tokens) and self._tokens[after].text in ("(", "{"):
            return self._made(after)
        self._take("::")
        name, qualified = self._name(), False
        while True:
            if self._text() == "<" and self._is_template(name, qualified):
                self._at = self._arguments_end(self._at)
            if self._text() != "::":
                break
            self._at += 1
            name, qualified = self._name(), True
        if self._text() == "(":
            return self._call(name)
        return Value() if qualified else self._named(name)

    def _is_template(self, name: str, qualified: bool) -> bool:
        if not qualified and self._lookup(name) is not None:
            return False
        close = closing_angle(self._tokens, self._at)
        after = self._tokens[close + 1].text if close + 1 < len(self._tokens) else ""
        return close > self._at and after in ("(", "::")

    def _made(self, after: int) -> Value:
        """`float4(a, b)`"""
        words = [token.text for token in self._tokens[self._at : after]]
        if "auto" in words or any(word in SPACES for word in words):
            raise Unclear("a type of another form")
        self._at = after
        if self._text() == "{":
            found = self._list()
        else:
            found = Value(frozenset().union(*(self._value(one).labels for one in self._arguments())))
        return Value(found.labels, floating=any(word in FLOATS for word in words) and "vec" not in words)

    def _named(self, name: str) -> Value:
        variable = self._lookup(name)
        if variable is None:
            return Value()  # a constant of the source's or of Metal's
        if variable.kind == "pointer":
            return Value(frozenset(variable.labels), variable.content, variable.floating, None, variable)
        if variable.kind == "shared_array":
            return Value(frozenset(variable.labels), ANY, variable.floating)
        if variable.kind in ("reference", "shared"):
            self._weigh()
            return Value(frozenset({variable.content}), None, variable.floating, None, None, True)
        if variable.kind == "array" and self._text() != "[":
            raise Unclear("the address of a thread's own array")
        return Value(frozenset(variable.labels), None, variable.floating, None, variable)

    def _arguments(self) -> list[Value]:
        self._need("(")
        found: list[Value] = []
        while not self._take(")"):
            found.append(self._expression())
            if self._text() != ")":
                self._need(",")
        return found

    def _call(self, name: str) -> Value:
        if self._lookup(name) is not None:
            raise Unclear("a call of a variable")
        if name in ATOMICS and name not in self._kernel.own:
            return self._atomic()
        if name == "sizeof" or name == "decltype":
            self._at = closing(self._tokens, self._at) + 1
            return Value()
        given = self._arguments()
        labels = frozenset().union(*(one.labels for one in given))
        if name in self._kernel.own:
            return Value(labels | self._kernel.called(name, given, self._here()))
        if name in VALUES_OF:
            free = VALUES_OF[name]
            self._weigh(frozenset().union(*(one.labels for one in given[free:])))
            for one in given[:free]:
                labels |= {ANY} if one.content is not None else frozenset()
                if one.content is not None:
                    self._weigh(one.labels)
            return Value(labels)
        if name not in PURE and name not in WHOLE and not self._kernel.is_type(name, self._template):
            raise Unclear(name)
        for one in given:
            self._value(one)
        if name in WHOLE and (self._kernel.divides or self._kernel.shifts):
            self._weigh(labels)
        floating = name in FLOAT_CALLS
        return Value(labels, floating=floating)

    def _atomic(self) -> Value:
        self._need("(")
        if self._take("&"):
            found = self._unary()
            if not found.in_memory:
                raise Unclear("an atomic of a thread's own")
        else:
            self._read(self._ternary(), Value())
        labels: frozenset[int] = frozenset({ANY})
        while self._take(","):
            labels |= self._value(self._expression()).labels
        self._need(")")
        self._weigh()
        return Value(labels)


def _number(text: str) -> Value:
    low = text.lower().replace("'", "")
    floating = not low.startswith(("0x", "0b")) and any(letter in low for letter in ".ef")
    digits = low.rstrip("ul")
    return Value(floating=floating, fixed=int(digits) if digits.isdecimal() else None)
