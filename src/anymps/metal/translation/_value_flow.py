"""How values flow through the body of a function: its statements in turn, and what they declare.

Each variable has the labels of all buffers that any of its values may come from, in whatever order statements run, and
so has each place what may keep a thread from it: the conditions around it, and those of earlier returns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anymps.metal.translation._brackets import SPACES, closing, is_attribute
from anymps.metal.translation._pure_calls import FLOATS
from anymps.metal.translation._tokens import Token
from anymps.metal.translation._value_reader import Kernel, Unclear, Value, Variable
from anymps.metal.translation._values import Expressions


class Body(Expressions):
    """The body of one function."""

    def __init__(
        self,
        kernel: Kernel,
        code: list[Token],
        braces: tuple[int, int],
        template: Collection[str],
        parameters: Sequence[Variable],
    ) -> None:
        super().__init__(kernel, code[braces[0] + 1 : braces[1]], template)
        self.parameters = parameters
        self.returned: set[int] = set()
        self._declared: dict[int, Variable] = {}  # by the place of the name

    def run(self) -> None:
        """Goes through it once, with the labels that are known so far."""
        self._at = 0
        self._scopes = [{one.name: one for one in self.parameters}]
        self._around = []
        while self._at < len(self._tokens):
            self._statement()

    # Statements

    def _statement(self) -> None:
        while self._at < len(self._tokens) and is_attribute(self._tokens, self._at):
            self._at = closing(self._tokens, self._at) + 1  # [[unroll]]
        text = self._text()
        if self._take(";"):
            return
        if self._take("{"):
            with self._scope():
                while not self._take("}"):
                    if self._at >= len(self._tokens):
                        raise Unclear("no end")
                    self._statement()
        elif self._take("if"):
            self._take("constexpr")
            self._need("(")
            condition = self._expression()
            self._need(")")
            with self._under(condition.labels):
                self._alone()
                if self._take("else"):
                    self._alone()
        elif self._take("for"):
            with self._scope():
                self._for()
        elif self._take("while"):
            self._condition()
            self._alone()
        elif self._take("do"):
            self._alone()
            self._need("while")
            self._condition()
            self._need(";")
        elif self._take("switch"):
            self._condition()
            self._alone()
        elif text in ("case", "default", "break", "continue", "return"):
            self._at += 1
            self._jump(text)
        else:
            self._simple()
            self._need(";")

    def _jump(self, word: str) -> None:
        """Where a thread goes on somewhere else, or comes from there."""
        if word in ("case", "default"):
            if word == "case":
                self._ternary()
            self._need(":")
            return
        if word == "return" and self._text() != ";":
            self._kernel.note(self.returned, self._value(self._expression()).labels)
        self._need(";")
        self._kernel.note(self.control, self._here())
        if word == "return":
            self._kernel.note(self.returned, self._here())

    def _alone(self) -> None:
        with self._scope():
            self._statement()

    def _condition(self) -> None:
        """Of a loop: how often it runs."""
        self._need("(")
        self._weigh(self._value(self._expression()).labels)
        self._need(")")

    def _for(self) -> None:
        self._need("(")
        if self._text() != ";":
            self._simple()
        self._need(";")
        if self._text() != ";":
            self._weigh(self._value(self._expression()).labels)
        self._need(";")
        if self._text() != ")":
            self._expression()
            while self._take(","):
                self._expression()
        self._need(")")
        self._alone()

    def _simple(self) -> None:
        """A declaration or an expression, without what ends it."""
        if self._declares():
            self._declaration()
        else:
            self._expression()

    # Declarations

    def _declares(self) -> bool:
        at = self._skip_type(self._at)
        if at == self._at:
            return False
        after = self._tokens[at].text if at < len(self._tokens) else ""
        return after in ("*", "&", "&&", "[") or (at < len(self._tokens) and self._tokens[at].kind == "name")

    def _declaration(self) -> None:
        start = self._at
        self._at = self._skip_type(start)
        words = [token.text for token in self._tokens[start : self._at]]
        space = next((word for word in words if word in SPACES), "thread")
        if space not in ("thread", "device", "constant", "threadgroup"):
            raise Unclear(space)
        if self._take("&"):
            self._refer(space)
            return
        pointer = self._take("*")
        if pointer:
            self._take("const")
            if space == "thread":
                raise Unclear("a pointer to what is a thread's own")
        while True:
            self._declare(words, space, pointer)
            if not self._take(","):
                return
            if pointer:
                raise Unclear("several pointers")

    def _refer(self, space: str) -> None:
        """`auto& a = b`: another name of something."""
        place = self._at
        name = self._name()
        self._need("=")
        given = self._value(self._expression())
        if given.in_memory:
            (label,) = given.labels
            found = self._declared.setdefault(
                place, Variable(name, "reference", content=label, floating=given.floating)
            )
            if found.content != label:
                raise Unclear("a reference to several things")
        elif given.target is not None and space == "thread":
            found = given.target
        else:
            raise Unclear("a reference to nothing that is known")
        self._scopes[-1][name] = found

    def _declare(self, words: Sequence[str], space: str, pointer: bool) -> None:
        place = self._at
        name = self._name()
        deduced = "auto" in words
        kind = "pointer" if pointer else "value" if space == "thread" else "shared"
        floating = not pointer and any(word in FLOATS for word in words) and "vec" not in words
        while self._take("["):
            if kind == "pointer" or deduced:
                raise Unclear("an array of pointers")
            kind = "array" if space == "thread" else "shared_array"
            if self._text() != "]":
                self._weigh(self._value(self._expression()).labels)
            self._need("]")
        if place not in self._declared:
            self._declared[place] = Variable(name, kind, floating=floating)
        variable = self._declared[place]
        given: Value | None = None
        if self._take("="):
            given = self._list() if self._text() == "{" else self._expression()
        elif self._text() == "{":
            given = self._list()
        if given is not None:
            if kind in ("shared", "shared_array"):
                self._weigh()
                if space == "threadgroup":
                    raise Unclear("an initializer of threadgroup memory")
            if deduced and given.content is not None:
                variable.kind, variable.content = "pointer", given.content
            elif deduced:
                variable.floating = given.floating
            elif pointer:
                if given.content is None:
                    raise Unclear("an address of another kind")
                variable.content = given.content
            else:
                self._value(given)
            self._kernel.note(variable.labels, given.labels | self._here())
        elif deduced:
            raise Unclear("a type that nobody knows")
        self._scopes[-1][name] = variable
