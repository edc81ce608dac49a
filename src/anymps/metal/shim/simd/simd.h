// The types that a host program shares with its shaders.
#pragma once

#include <msl/all.h>

using simd_float2 = float2;
using simd_float3 = float3;
using simd_float4 = float4;
using simd_int2 = int2;
using simd_int3 = int3;
using simd_int4 = int4;
using simd_uint2 = uint2;
using simd_uint3 = uint3;
using simd_uint4 = uint4;
using vector_float2 = float2;
using vector_float3 = float3;
using vector_float4 = float4;
using vector_uint2 = uint2;
using vector_uint3 = uint3;
using vector_uint4 = uint4;
