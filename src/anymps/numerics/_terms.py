"""How many numbers an operator adds up for one number of its result, by the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from anymps.numerics._functions import TABLE, named

Shape = tuple[int, ...]


def _last_of(place: int) -> Callable[[Sequence[Shape], Shape], int]:
    """The length of the last axis of one input: the inner length of a matrix product."""
    there = place + 1 if place >= 0 else -place
    return lambda shapes, result: shapes[place][-1] if len(shapes) >= there and shapes[place] else 1


def _reduced(shapes: Sequence[Shape], result: Shape) -> int:
    """A reduction: the numbers of the largest input by those of the result."""
    return max(1, max((prod(shape) for shape in shapes), default=1) // max(1, prod(result)))


def _longest_axis(shapes: Sequence[Shape], result: Shape) -> int:
    """A scan, or a sum along one axis whose number is not known."""
    return max((size for shape in shapes for size in shape), default=1)


def _all(shapes: Sequence[Shape], result: Shape) -> int:
    """At most every number of the largest input: sums whose places are data."""
    return max((prod(shape) for shape in shapes), default=1)


def _convolution(shapes: Sequence[Shape], result: Shape) -> int:
    """Channels by the window, in either direction of a convolution: (input, weight, ...)."""
    weight = shapes[1] if len(shapes) > 1 else ()
    if len(weight) < 2:
        return _all(shapes, result)
    window = prod(weight[2:])
    return max(weight[0], weight[1]) * window


def _convolution_backward(shapes: Sequence[Shape], result: Shape) -> int:
    """(gradient, input, weight): the gradient of the weight sums batch and places, that of the input channels."""
    if len(shapes) < 3 or len(shapes[2]) < 2:
        return _all(shapes, result)
    gradient, _, weight = shapes[:3]
    if result == shapes[1]:
        return max(weight[0], weight[1]) * prod(weight[2:])
    return max(1, prod(gradient) // max(1, gradient[1] if len(gradient) > 1 else 1))


def _attention(shapes: Sequence[Shape], result: Shape) -> int:
    """(query, key, value): products over the width, then over the keys."""
    if len(shapes) < 2 or not shapes[0] or len(shapes[1]) < 2:
        return _all(shapes, result)
    return shapes[0][-1] + shapes[1][-2]


def _two(shapes: Sequence[Shape], result: Shape) -> int:
    """The two products of a cross product."""
    return 2


def _per_channel(shapes: Sequence[Shape], result: Shape) -> int:
    """The second axis stays: batch norm's statistics."""
    first = shapes[0] if shapes else ()
    return max(1, prod(first) // max(1, first[1] if len(first) > 1 else 1))


def _per_first(shapes: Sequence[Shape], result: Shape) -> int:
    """At most one sample: group norm and layer norm."""
    first = shapes[0] if shapes else ()
    return max(1, prod(first[1:]))


LOGARITHMS_OF_SUMS: Final = named("logarithms_of_sums")
ADDED_IN_FLOAT32: Final = named("added_in_float32")
_PRODUCTS: Final = named("products")
_LENGTHS: Final[dict[str, Callable[[Sequence[Shape], Shape], int]]] = {
    "last_of_first": _last_of(0),
    "last_of_second_last": _last_of(-2),
    "two": _two,
    "longest_axis": _longest_axis,
    "reduced": _reduced,
    "all": _all,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "attention": _attention,
    "per_channel": _per_channel,
    "per_first": _per_first,
}
_BY_NAME: Final = {name: _LENGTHS[length] for length, names in TABLE["lengths"].items() for name in names.split()}


def terms_of(name: str, shapes: Sequence[Shape], result: Shape) -> int | None:
    """The length of an operator's sums; None if it is not known to add up anything.

    `name` is without namespace, overload and the underscore of its form in place; `shapes` are those of its tensor
    inputs in order.
    """
    count = _BY_NAME.get(name)
    return None if count is None else max(1, count(shapes, result))


def multiplications_of(name: str, shapes: Sequence[Shape], results: Sequence[Shape]) -> int:
    """How many products a matrix product, convolution or attention adds up for all its results; 0 of another operator.

    The arguments are those of `terms_of`, with the sizes of all results.
    """
    if name not in _PRODUCTS:
        return 0
    return sum(prod(result) * (terms_of(name, shapes, result) or 1) for result in results)
