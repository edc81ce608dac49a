"""Textures, samplers and argument buffers: what torch binds to no kernel is refused by name."""

from __future__ import annotations

import pytest
import torch

from metal.forms import error_of
from metal_shaders import HEAD

pytestmark = pytest.mark.usefixtures("virtual_device")

NO_TEXTURES = (
    "the virtual mps device has no textures, and torch.mps.compile_shader binds none on a Mac either; pass the tensor "
    "as a buffer (`device const float*`) and compute the index in the kernel"
)
NO_SAMPLERS = (
    "the virtual mps device has no samplers, and torch.mps.compile_shader binds none on a Mac either; pass the tensor "
    "as a buffer (`device const float*`) and interpolate in the kernel"
)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "kernel void f(device float* out,\n"
            "              texture2d<float, access::read> image [[texture(0)]]) { out[0] = image.read(uint2(0)).x; }",
            "the parameter 'image' of 'f' is a texture, 'texture2d<float, access::read>' (program_source:4): "
            + NO_TEXTURES,
        ),
        (
            "kernel void f(array<metal::texture2d_array<half>, 4> all [[texture(0)]], device float* out) {}",
            "the parameter 'all' of 'f' is a texture, 'array<metal::texture2d_array<half>, 4>' (program_source:3): "
            + NO_TEXTURES,
        ),
        (
            "struct Images { int n; depth2d<float> far [[id(1)]]; };",
            "'far' is a texture, 'depth2d<float>' (program_source:3): " + NO_TEXTURES,
        ),
        (
            "float at(float2 where, sampler how) { return 0; }",
            "the parameter 'how' of 'at' is a sampler, 'sampler' (program_source:3): " + NO_SAMPLERS,
        ),
        (
            "\nconstexpr sampler linear(filter::linear);",
            "'linear' is a sampler, 'constexpr sampler' (program_source:4): " + NO_SAMPLERS,
        ),
    ],
)
def test_textures_and_samplers_are_named(source: str, said: str) -> None:
    """Which one, its type and its line, and what to do."""
    assert error_of(torch.mps.compile_shader, HEAD + source) == f"anymps: {said}"


def test_kernels_without_textures_run() -> None:
    """A library has some: they are refused by themselves, and so is what needs them."""
    shader = torch.mps.compile_shader(
        HEAD
        + """
constexpr sampler linear(filter::linear);
struct Image { texture2d<float> t; float scale; float at(float2 p) { return t.sample(linear, p).x * scale; } };
float look(texture2d<float> t, float2 p) { return t.sample(linear, p).x; }
float look(device float* x, uint i) { return x[i]; }
float deep(Image image) { return image.at(float2(0)); }
kernel void draws(texture2d<float, access::write> to [[texture(0)]], uint2 i [[thread_position_in_grid]]) {
  to.write(float4(1), i);
}
kernel void reads(device float* x, constant Image& image) { x[0] = deep(image); }
kernel void rays(device float* x, raytracing::instance_acceleration_structure s [[buffer(1)]]) { x[0] = 1; }
template <typename T> kernel void instance(device T* x, texture2d<T> t) { x[0] = t.read(uint2(0)).x; }
template [[host_name("of_float")]] kernel void instance<float>(device float*, texture2d<float>);
kernel void twice(device float* x, uint i [[thread_position_in_grid]]) {
  float linear = 2;
  x[i] = look(x, i) * linear;
}
"""
    )
    x = torch.ones(4, device="mps")
    shader.twice(x)
    assert x.tolist() == [2] * 4
    assert dir(shader) == ["draws", "of_float", "rays", "reads", "twice"]
    refused = {
        "draws": "anymps: the parameter 'to' of 'draws' is a texture, 'texture2d<float, access::write>' "
        f"(program_source:9): {NO_TEXTURES}",
        "reads": f"anymps: 't' is a texture, 'texture2d<float>' (program_source:5): {NO_TEXTURES}",
        "rays": "anymps: ray tracing (program_source:13) cannot be used on the virtual mps device",
        "of_float": "anymps: the parameter 't' of 'instance' is a texture, 'texture2d<T>' (program_source:14): "
        + NO_TEXTURES,
    }
    for name, said in refused.items():
        assert error_of(getattr, shader, name) == said


def test_names_of_a_program_are_no_samplers() -> None:
    """A variable may have the name of a type that the program does not use."""
    text = "kernel void f(device float* o) { int sampler = 3; float texture2d = 2; o[0] = sampler * (texture2d < 3); }"
    out = torch.zeros(1, device="mps")
    torch.mps.compile_shader(HEAD + text).f(out)
    assert out.item() == 3


ARGUMENTS = (
    HEAD
    + """
struct Row { device float* values; };
struct Mixed { constant int& size() constant; int n [[id(0)]]; device float* out [[id(1)]]; Row row; };
struct Nested { Row rows[2]; };
kernel void mixed(device float* out, constant Mixed& given [[buffer(1)]]) { out[0] = given.n; }
kernel void nested(device float* out, constant Nested* given) { out[0] = given->rows[1].values[2]; }
kernel void own(device float* out) { Mixed all; all.out = out; all.out[0] = 5; }
"""
)


def test_argument_buffers_are_named() -> None:
    """A struct of pointers and numbers cannot be filled; the other kernels run."""
    shader = torch.mps.compile_shader(ARGUMENTS)
    assert error_of(getattr, shader, "mixed") == (
        "anymps: the parameter 'given' of 'mixed' is an argument buffer, 'constant Mixed&' (program_source:7): its "
        "member 'out' is a pointer, and neither the virtual mps device nor torch.mps.compile_shader on a Mac gives "
        "Python an address to put there; give each tensor a parameter of its own, and the numbers another"
    )
    out = torch.zeros(1, device="mps")
    shader.own(out)
    assert out.item() == 5


def test_a_struct_of_pointers_is_a_list_of_tensors() -> None:
    """torch gives a kernel their addresses, one behind the other."""
    out, a, b = torch.zeros(1, device="mps"), torch.zeros(3, device="mps"), torch.arange(3.0, device="mps")
    torch.mps.compile_shader(ARGUMENTS).nested(out, [a, b], threads=1)
    assert out.item() == 2
