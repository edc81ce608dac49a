"""A second, slow implementation of the Metal Philox random numbers, written from the rules to check the native one.

Sources of the rules: c10/metal/random.h of the torch 2.13 wheel; pytorch's Distributions.metal, Distributions.mm and
Dropout.metal. Integers are Python integers, every float32 operation is one NumPy operation; transcendental functions
are computed in double and rounded once, so they are right to half a unit in the last place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

F = np.float32
EPSILON = F(2.0**-23)
TINY = F(2.0**-126)
ONE = F(1)
TWO_PI = F(2) * F(math.pi)
DEFAULT_SEED = 67280421310721
MASK32 = 2**32 - 1
MASK64 = 2**64 - 1
INT_BITS = {"uchar": 8, "char": 8, "short": 16, "ushort": 16, "int": 32, "uint": 32, "long": 64, "ulong": 64}
BYTES = {"float": 4, "half": 2, "bfloat": 2, "bool": 1, **{name: bits // 8 for name, bits in INT_BITS.items()}}

Words = tuple[int, int, int, int]
Number = float | int
Scalar = Any  # a NumPy float32; NumPy's own stubs promote scalars too widely to be of help here


def philox(counter: Words, key: tuple[int, int], rounds: int) -> Words:
    """Philox-4x32 (Salmon and others, 2011) with a free number of rounds."""
    x, y, z, w = counter
    kx, ky = key
    for _ in range(rounds):
        a = 0xD2511F53 * x
        b = 0xCD9E8D57 * z
        x, y, z, w = (b >> 32) ^ y ^ kx, b & MASK32, (a >> 32) ^ w ^ ky, a & MASK32
        kx, ky = (kx + 0x9E3779B9) & MASK32, (ky + 0xBB67AE85) & MASK32
    return x, y, z, w


def block(seed: int, index: int) -> Words:
    """The four words of one block of the Metal stream: counter and key with their high halves first, nine rounds."""
    index &= MASK64
    return philox((0, 0, index >> 32, index & MASK32), (seed >> 32, seed & MASK32), 9)


def unit(word: int) -> Scalar:
    """A word as a float32 in [0, 1)."""
    return F(word & 0x7FFFFFFF) * F(4.6566127342e-10)


def rounded(function: Callable[[float], float], x: Scalar) -> Scalar:
    """A function of a float32, computed in double and rounded once."""
    return F(function(float(x)))


def fused(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """a * b + c, rounded once."""
    return F(float(a) * float(b) + float(c))


def log(x: Scalar) -> Scalar:
    """Natural logarithm; minus infinity at zero."""
    return F(-math.inf) if x == 0 else rounded(math.log, x)


def box_muller(a: int, b: int) -> tuple[Scalar, Scalar]:
    """Two standard normals from two words."""
    radius = np.sqrt(F(-2) * log(max(unit(a), EPSILON)))
    angle = TWO_PI * unit(b)
    return radius * rounded(math.cos, angle), radius * rounded(math.sin, angle)


def to_bfloat(x: Scalar) -> float:
    """The nearest bfloat16, ties to even, through exact arithmetic on doubles."""
    value = float(x)
    if value == 0 or math.isinf(value) or math.isnan(value):
        return value
    exponent = max(math.frexp(value)[1], -125)  # below the smallest normal the spacing stays
    spacing = math.ldexp(1.0, exponent - 8)
    result = round(value / spacing) * spacing
    return math.copysign(math.inf, value) if abs(result) >= 2.0**128 else math.copysign(result, value)


def narrow(kind: str, x: Scalar) -> Number:
    """A float32 as an element of the type named in Metal's way."""
    if kind == "float":
        return float(x)
    if kind == "half":
        with np.errstate(over="ignore"):
            return float(np.float16(x))
    if kind == "bfloat":
        return to_bfloat(x)
    if kind == "bool":
        return int(x != 0)
    bits = INT_BITS[kind]
    low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if math.isnan(x) else int(min(max(float(x), low), high))


def narrow_integer(kind: str, value: int) -> Number:
    """A 64-bit integer as an element: cut to its width, or rounded to a float."""
    if kind == "bool":
        return int(value != 0)
    if kind not in INT_BITS:
        return narrow(kind, F(value))
    bits = INT_BITS[kind]
    value &= 2**bits - 1
    return value - 2**bits if not kind.startswith("u") and value >= 2 ** (bits - 1) else value


class Reference:
    """Seed, offset and words of a generator, with one method a distribution; each returns the elements as a list."""

    def __init__(self, seed: int | None = None, offset: int = 0) -> None:
        self.seed = DEFAULT_SEED
        self.words = [1, 0, 0, 0, 0, 0, 0]
        if seed is not None:
            self.seed = seed
            self.words = [1, 1, 1, 1, 1, seed & MASK32, seed >> 32]
        self.offset = offset

    def state(self) -> bytes:
        """The 44 bytes of get_state()."""
        return struct.pack("<7IQQ", *self.words, self.seed, self.offset)

    def take(self, n: int, each: int = 4, advance: int | None = None) -> list[Words]:
        """The blocks of one launch over n elements, and the offset moved on."""
        count = -(-n // each)
        first = self.offset
        self.offset = (self.offset + (count if advance is None else advance)) & MASK64
        return [block(self.seed, first + i) for i in range(count)]

    def units(self, n: int, advance: int | None = None) -> list[Scalar]:
        """n uniforms."""
        return [unit(word) for words in self.take(n, advance=advance) for word in words][:n]

    def normals(self, n: int) -> list[Scalar]:
        """n standard normals."""
        return [z for a, b, c, d in self.take(n) for z in (*box_muller(a, b), *box_muller(c, d))][:n]

    def uniform(self, kind: str, n: int, low: float, high: float) -> list[Number]:
        """Uniform in [low, high)."""
        scale = F(high) - F(low)
        return [narrow(kind, fused(scale, u, F(low))) for u in self.units(n)]

    def normal(self, kind: str, n: int, mean: float, std: float) -> list[Number]:
        """Normal."""
        return [narrow(kind, fused(F(std), z, F(mean))) for z in self.normals(n)]

    def exponential(self, kind: str, n: int, rate: float) -> list[Number]:
        """Exponential."""
        return [narrow(kind, -log(ONE - min(u, ONE - EPSILON)) / F(rate)) for u in self.units(n)]

    def cauchy(self, kind: str, n: int, median: float, sigma: float) -> list[Number]:
        """Cauchy."""
        inside = (min(max(u, EPSILON), ONE - EPSILON) - F(0.5) for u in self.units(n))
        return [narrow(kind, fused(F(sigma), rounded(math.tan, F(math.pi) * x), F(median))) for x in inside]

    def log_normal(self, kind: str, n: int, mean: float, std: float) -> list[Number]:
        """Log-normal."""
        return [narrow(kind, rounded(math.exp, fused(F(std), z, F(mean)))) for z in self.normals(n)]

    def geometric(self, kind: str, n: int, p: float) -> list[Number]:
        """Geometric, from 1 on."""
        failure = F(math.log1p(-p))
        return [narrow(kind, np.ceil(log(max(u, EPSILON)) / failure)) for u in self.units(n)]

    def bernoulli(self, kind: str, n: int, p: float) -> list[Number]:
        """Zeros and ones with one probability."""
        return [narrow(kind, F(u < F(p))) for u in self.units(n)]

    def bernoulli_tensor(self, kind: str, n: int, *p: float) -> list[Number]:
        """Zeros and ones with a probability each; uses a quarter of the blocks it skips."""
        return [narrow(kind, F(u < F(one))) for u, one in zip(self.units(n, advance=n), p, strict=True)]

    def random_int(self, kind: str, n: int, base: int, span: int) -> list[Number]:
        """Whole numbers in [base, base + span), or of the whole width when span is 0 or 2**64 - 1."""
        span = 0 if span == MASK64 else span
        values: list[int] = []
        if BYTES[kind] == 8:
            for a, b, c, d in self.take(n, each=2):
                values += [(pair if span == 0 else pair % span) for pair in (a << 32 | b, c << 32 | d)]
        else:
            for words in self.take(n):
                for word in words:
                    signed = word - 2**32 if word >= 2**31 else word
                    values.append(signed if span == 0 else word % (span & MASK32))
        wrapped = ((value + base) & MASK64 for value in values[:n])
        return [narrow_integer(kind, value - 2**64 if value >= 2**63 else value) for value in wrapped]

    def streams(self, n: int) -> list[Iterator[Words]]:
        """One endless stream of blocks an element, 32 blocks apart."""
        first = self.offset
        self.offset += 32 * n

        def blocks(start: int) -> Iterator[Words]:
            while True:
                yield block(self.seed, start)
                start += 1

        return [blocks(first + 32 * i) for i in range(n)]

    def gamma(self, kind: str, n: int, *alpha: float) -> list[Number]:
        """Standard gamma."""
        pairs = zip(self.streams(n), alpha, strict=True)
        return [narrow(kind, one_gamma(F(narrow(kind, F(a))), stream)) for stream, a in pairs]

    def dirichlet(self, kind: str, rows: int, columns: int, *alpha: float) -> list[Number]:
        """Rows of gammas over their sum."""
        pairs = zip(self.streams(rows * columns), alpha, strict=True)
        gammas = [one_gamma(F(narrow(kind, F(a))), stream) for stream, a in pairs]
        result: list[Number] = []
        for row in range(rows):
            part = gammas[row * columns : (row + 1) * columns]
            total = F(0)
            for value in part:
                total = total + value
            result += [narrow(kind, min(max(value / total, TINY), ONE - EPSILON)) for value in part]
        return result

    def poisson(self, kind: str, n: int, *rate: float) -> list[Number]:
        """Poisson counts."""
        pairs = zip(self.streams(n), rate, strict=True)
        return [narrow(kind, one_poisson(F(narrow(kind, F(r))), stream)) for stream, r in pairs]

    def binomial(self, kind: str, n: int, *inputs: float) -> list[Number]:
        """Binomial counts; inputs are n numbers of trials, then n probabilities."""
        numbers = [F(narrow(kind, F(x))) for x in inputs]
        triples = zip(self.streams(n), numbers[:n], numbers[n:], strict=True)
        return [narrow(kind, one_binomial(count, p, stream)) for stream, count, p in triples]

    def randperm(self, kind: str, n: int, contiguous: int = 1) -> list[Number]:
        """A permutation of range(n) by the path that its size and type choose."""
        if n <= 384 and kind in ("int", "long") and contiguous:
            order = fisher_yates(list(range(n)), self.seed, self.offset)
            self.offset += -(-(n - 1) // 4)
        elif n < 2**15:
            keys = self.units(n)
            order = sorted(range(n), key=lambda i: float(keys[i]))
        else:
            whole = self.random_int("int", n, 0, 2**24)
            order = sorted(range(n), key=lambda i: whole[i])
            start = 0
            while start < n:
                stop = start + 1
                while stop < n and whole[order[stop]] == whole[order[start]]:
                    stop += 1
                order[start:stop] = fisher_yates(order[start:stop], self.seed, self.offset + start)
                start = stop
            self.offset += n
        return [narrow_integer(kind, index) for index in order]

    def multinomial(
        self, kind: str, rows: int, categories: int, samples: int, replacement: int, *weights: float
    ) -> list[Number]:
        """The rows in which an exponential draw was zero, then rows times samples indices."""
        p = [F(narrow(kind, F(w))) for w in weights]
        result: list[int] = []
        zero_rows = 0
        if replacement and samples > 1:
            u = self.units(rows * samples)
            for row in range(rows):
                total, sums = F(0), []
                for i in range(categories):
                    total = total + p[row * categories + i]
                    sums.append(total)
                for value in u[row * samples : (row + 1) * samples]:
                    sought = value * total
                    reached = [i for i in range(categories) if sums[i] >= sought]
                    result.append(reached[0] if reached else categories - 1)
            return [0, *result]
        q = [abs(F(x)) for x in self.exponential(kind, rows * categories, 1.0)]
        for row in range(rows):
            places = range(row * categories, (row + 1) * categories)
            zero_rows += any(q[i] == 0 for i in places)
            with np.errstate(divide="ignore"):
                ratios = [0.0 if p[i] == 0 else narrow(kind, p[i] / q[i]) for i in places]
            result += sorted(range(categories), key=lambda i: (-ratios[i], i))[:samples]
        return [zero_rows, *result]

    def dropout(self, kind: str, n: int, p: float, *x: float) -> list[Number]:
        """The n outputs, then the n elements of the mask."""
        kept = F(1.0 - p)
        scale = F(0) if kept == 0 else ONE / kept
        mask = [u < kept for u in self.units(n)]
        values = [F(narrow(kind, F(one))) * scale if keep else F(0) for one, keep in zip(x, mask, strict=True)]
        return [*(narrow(kind, value) for value in values), *(int(keep) for keep in mask)]


def fisher_yates(data: list[int], seed: int, index: int) -> list[int]:
    """Swaps from the last place down; a block feeds four swaps."""
    words: Sequence[int] = ()
    for used, i in enumerate(range(len(data) - 1, 0, -1)):
        if used % 4 == 0:
            words = block(seed, index + used // 4)
        j = words[used % 4] % (i + 1)
        data[i], data[j] = data[j], data[i]
    return data


def one_gamma(alpha: Scalar, stream: Iterator[Words]) -> Scalar:
    """Marsaglia and Tsang's method, with the power boost below one."""
    if alpha == 0:
        return F(0)
    scale = ONE
    if alpha < 1:
        scale = F(math.pow(float(ONE - unit(next(stream)[0])), float(ONE / alpha)))
        alpha = alpha + ONE
    d = alpha - ONE / F(3)
    c = ONE / np.sqrt(F(9) * d)
    while True:
        root = F(-1)
        while root <= 0:
            a, b, _, _ = next(stream)
            x = np.sqrt(F(-2) * log(ONE - unit(a))) * rounded(math.cos, TWO_PI * (ONE - unit(b)))
            root = fused(c, x, ONE)
        v = root * root * root
        u = ONE - unit(next(stream)[0])
        square = x * x
        if u < fused(F(-0.0331) * square, square, ONE) or log(u) < F(0.5) * square + d * (ONE - v + log(v)):
            return max(scale * d * v, TINY)


def one_poisson(rate: Scalar, stream: Iterator[Words]) -> Scalar:
    """Knuth's product below ten, Hoermann's transformed rejection from ten on."""
    if not 0 < rate < math.inf:
        return F(0)
    if rate < 10:
        product, count = ONE, -1
        while count < 0 or product > rounded(math.exp, -rate):
            product = product * unit(next(stream)[0])
            count += 1
        return F(count)
    b = F(0.931) + F(2.53) * np.sqrt(rate)
    a = F(-0.059) + F(0.02483) * b
    alpha = F(1.1239) + F(1.1328) / (b - F(3.4))
    below = F(0.9277) - F(3.6224) / (b - F(2))
    while True:
        u = unit(next(stream)[0]) - F(0.5)
        v = ONE - unit(next(stream)[0])
        us = F(0.5) - abs(u)
        k = np.floor((F(2) * a / us + b) * u + rate + F(0.43))
        if k < 0:
            continue
        if us >= F(0.07) and v <= below:
            return k
        if us < F(0.013) and v > us:
            continue
        left = log(v) + log(alpha) - log(a / (us * us) + b)
        if left <= -rate + k * log(rate) - F(math.lgamma(float(k) + 1)):
            return k


def one_binomial(count: Scalar, p: Scalar, stream: Iterator[Words]) -> Scalar:
    """Inversion for small means, BTRS for large ones, mirrored above one half."""
    if count <= 0 or p <= 0:
        return F(0)
    if p >= 1:
        return count
    if p > F(0.5):
        return count - rare_binomial(count, ONE - p, stream)
    return rare_binomial(count, p, stream)


def rare_binomial(count: Scalar, p: Scalar, stream: Iterator[Words]) -> Scalar:
    """Binomial with p at most one half."""
    if count * p < 10:
        position, successes = F(0), F(0)
        while True:
            position = position + np.ceil(log(unit(next(stream)[0])) / rounded(math.log1p, -p))
            if position > count:
                return successes
            successes = successes + ONE
    deviation = np.sqrt(count * p * (ONE - p))
    b = F(1.15) + F(2.53) * deviation
    a = F(-0.0873) + F(0.0248) * b + F(0.01) * p
    odds = p / (ONE - p)
    mode = np.floor((count + ONE) * p)
    while True:
        u = unit(next(stream)[0]) - F(0.5)
        v = unit(next(stream)[0])
        us = F(0.5) - abs(u)
        k = np.floor((F(2) * a / us + b) * u + (count * p + F(0.5)))
        if k < 0 or k > count:
            continue
        if us >= F(0.07) and v <= F(0.92) - F(4.2) / b:
            return k
        # The acceptance test in double: the logarithm of the ratio of the two probabilities, which is what the formula
        # of the kernel approximates. A difference shows only for draws on the border.
        left = math.log(float(v * (F(2.83) + F(5.1) / b) * deviation / (a / (us * us) + b)))
        n, m, q = float(count), float(mode), float(k)
        ratio = math.lgamma(m + 1) + math.lgamma(n - m + 1) - math.lgamma(q + 1) - math.lgamma(n - q + 1)
        if left <= ratio + (q - m) * math.log(float(odds)):
            return k
