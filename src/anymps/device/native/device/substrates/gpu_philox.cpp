// One kernel, compiled by the runtime compiler that comes with CUDA builds of torch, and launched by the driver's own functions.
//
// Both libraries are loaded when the first large draw comes, and their functions declared here: no header of CUDA is needed, and
// nothing is linked. The stream is the default one, on which all of torch's kernels run here.
#include "device/substrates/gpu_philox.h"

#include "locks/locks.h"

#include <ATen/Context.h>

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>

#include <dlfcn.h>

namespace anymps {
namespace gpu_philox {  // the short names below belong to this file, also where files are compiled together
namespace {

// The engine of model/philox_engine.h and the conversions of model/philox_elements.h. A thread makes one block of words.
const char* const kSource = R"cuda(
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 half_of(float value) {
  u32 bits = __float_as_uint(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  bits &= 0x7FFFFFFFu;
  if (bits >= 0x47800000u) return sign | (bits > 0x7F800000u ? 0x7E00u : 0x7C00u);
  if (bits < 0x38800000u) return sign | (__float_as_uint(__fadd_rn(__uint_as_float(bits), 0.5f)) - 0x3F000000u);
  bits += 0x0FFFu + ((bits >> 13) & 1u);
  return sign | ((bits - 0x38000000u) >> 13);
}
__device__ float of_half(u32 half) {
  const u32 sign = (half & 0x8000u) << 16, rest = half & 0x7FFFu;
  if (rest >= 0x7C00u) return __uint_as_float(sign | 0x7F800000u | ((rest & 0x03FFu) << 13));
  if (rest >= 0x0400u) return __uint_as_float(sign | ((rest << 13) + 0x38000000u));
  return __uint_as_float(sign | __float_as_uint(__fmul_rn((float)rest, 5.9604644775390625e-8f)));
}
__device__ u32 bfloat_of(float value) {
  const u32 bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return ((bits >> 16) & 0x8000u) | 0x7FC0u;
  return ((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16) & 0xFFFFu;
}
__device__ float unit_of(u32 word) {
  return __fmul_rn((float)(int)(word & 0x7FFFFFFFu), 4.6566127342e-10f);
}
// form: 0 integer, 1 float, 2 half, 3 bfloat, 4 bool
__device__ u64 bits_of(float value, int form) {
  return form == 1 ? __float_as_uint(value) : form == 2 ? half_of(value) : bfloat_of(value);
}
__device__ void put(void* out, u64 place, u64 bits, int size) {
  if (size == 1) ((unsigned char*)out)[place] = (unsigned char)bits;
  else if (size == 2) ((unsigned short*)out)[place] = (unsigned short)bits;
  else if (size == 4) ((u32*)out)[place] = (u32)bits;
  else ((u64*)out)[place] = bits;
}

// kind: 0 uniform, 1 bernoulli, 2 integers
extern "C" __global__ void draw(void* out, u64 n, u64 seed, u64 offset, int kind, int form, int size, float low, float high,
                                u64 one, u64 base, u64 range, int below_high) {
  const int each = kind == 2 && size == 8 ? 2 : 4;
  const u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (block * each >= n) return;
  const u64 index = offset + block;
  u32 w0 = 0, w1 = 0, w2 = (u32)(index >> 32), w3 = (u32)index, x = (u32)(seed >> 32), y = (u32)seed;
  for (int round = 0; round < 9; ++round) {
    const u64 a = (u64)0xD2511F53u * w0, b = (u64)0xCD9E8D57u * w2;
    w0 = (u32)(b >> 32) ^ w1 ^ x;
    w1 = (u32)b;
    w2 = (u32)(a >> 32) ^ w3 ^ y;
    w3 = (u32)a;
    x += 0x9E3779B9u;
    y += 0xBB67AE85u;
  }
  const u32 words[4] = {w0, w1, w2, w3};
  for (int i = 0; i < each; ++i) {
    const u64 place = block * each + i;
    if (place >= n) return;
    u64 bits;
    if (kind == 0) {
      const float scale = __fsub_rn(high, low);
      const float value = __double2float_rn(__dadd_rn(__dmul_rn((double)scale, (double)unit_of(words[i])), (double)low));
      bits = bits_of(value, form);
      const float rounded = form == 1 ? value : form == 2 ? of_half((u32)bits) : __uint_as_float((u32)bits << 16);
      if (below_high && rounded == high) bits = bits_of(low, form);
    } else if (kind == 1) {
      bits = unit_of(words[i]) < high ? one : 0;
    } else {
      u64 value;
      if (size == 8) {
        const u64 word = ((u64)words[2 * i] << 32) | words[2 * i + 1];
        value = range == 0 ? word : word % range;
      } else {
        value = range == 0 ? (u64)(long long)(int)words[i] : words[i] % (u32)range;
      }
      value += base;
      bits = form == 0 ? value : form == 4 ? (u64)(value != 0) : bits_of(__ll2float_rn((long long)value), form);
    }
    put(out, place, bits, size);
  }
}
)cuda";

using Handle = void*;

// The library beside torch's own that brings the runtime compiler and the driver.
Handle open_libraries() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &here) == 0 || here.dli_fname == nullptr) {
    return nullptr;
  }
  const std::string path = here.dli_fname;
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  return dlopen((folder + "libcaffe2_nvrtc.so").c_str(), RTLD_LAZY | RTLD_LOCAL);
}

// Whether a function of those libraries is there and answers that it went well; `arguments` have the types of its parameters.
template <class... Arguments>
bool goes_well(const char* name, Arguments... arguments) {
  static const Handle libraries = open_libraries();
  const auto function = libraries == nullptr ? nullptr : reinterpret_cast<int (*)(Arguments...)>(dlsym(libraries, name));
  return function != nullptr && function(arguments...) == 0;
}

// The kernel for a GPU, or null.
Handle compiled(int gpu) {
  int device = 0, major = 0, minor = 0;
  constexpr int capability_major = 75, capability_minor = 76;  // CUdevice_attribute, cuda.h
  Handle program = nullptr;
  if (!goes_well("cuDeviceGet", &device, gpu) || !goes_well("cuDeviceGetAttribute", &major, capability_major, device) ||
      !goes_well("cuDeviceGetAttribute", &minor, capability_minor, device) ||
      !goes_well<Handle*, const char*, const char*, int, const char* const*, const char* const*>(
          "nvrtcCreateProgram", &program, kSource, "philox.cu", 0, nullptr, nullptr)) {
    return nullptr;
  }
  const std::string target = "--gpu-architecture=compute_" + std::to_string(major) + std::to_string(minor);
  const char* const options[] = {target.c_str(), "--fmad=false"};
  Handle module = nullptr, kernel = nullptr;
  size_t size = 0;
  if (goes_well<Handle, int, const char* const*>("nvrtcCompileProgram", program, 2, options) && goes_well("nvrtcGetPTXSize", program, &size)) {
    std::string text(size, '\0');
    if (goes_well("nvrtcGetPTX", program, text.data()) && goes_well<Handle*, const void*>("cuModuleLoadData", &module, text.c_str()) &&
        !goes_well<Handle*, Handle, const char*>("cuModuleGetFunction", &kernel, module, "draw")) {
      kernel = nullptr;
    }
  }
  goes_well("nvrtcDestroyProgram", &program);
  return kernel;
}

bool launch_draw(int gpu, uint64_t blocks, std::array<void*, 13>& arguments) {
  static Mutex mutex;
  static std::unordered_map<int, Handle> kernels;
  Handle kernel = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto known = kernels.find(gpu);
    kernel = known != kernels.end() ? known->second : (kernels[gpu] = compiled(gpu));
  }
  constexpr unsigned threads = 256;
  const auto groups = static_cast<unsigned>((blocks + threads - 1) / threads);
  return kernel != nullptr &&
      goes_well<Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**>(
             "cuLaunchKernel", kernel, groups, 1, 1, threads, 1, 1, 0, nullptr, arguments.data(), nullptr);
}

bool is_float(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16;
}

bool is_unsigned_wide(ElementType type) {
  return type == ElementType::u16 || type == ElementType::u32 || type == ElementType::u64;
}

// Whether the model has a kernel for it; what it lacks it refuses in its own words.
bool serves(const GpuDraw& draw, ElementType type, int64_t n) {
  if (launch_sizes(n, element_size(type)).size() != 1) {
    return false;
  }
  switch (draw.kind) {
    case GpuDraw::Kind::Uniform: return is_float(type);
    case GpuDraw::Kind::Bernoulli: return !is_unsigned_wide(type);
    case GpuDraw::Kind::Integers:
      return element_size(type) == 8 || draw.range == 0 || static_cast<uint32_t>(draw.range) != 0;
  }
  return false;
}

uint64_t one_as(ElementType type) {
  return type == ElementType::f32 ? 0x3F800000 : type == ElementType::f16 ? 0x3C00 : type == ElementType::bf16 ? 0x3F80 : 1;
}

}  // namespace
}  // namespace gpu_philox

bool draw_on_gpu(const GpuDraw& draw, RandomState& state, const at::Tensor& target, ElementType type, int release) {
  using namespace gpu_philox;
  const int64_t n = target.numel();
  if (!target.is_cuda() || !serves(draw, type, n)) {
    return false;
  }
  int kind = static_cast<int>(draw.kind), size = static_cast<int>(element_size(type)), below_high = release >= 15;
  int form = type == ElementType::f32 ? 1 : type == ElementType::f16 ? 2 : type == ElementType::bf16 ? 3 : type == ElementType::boolean ? 4 : 0;
  const bool uniform = draw.kind == GpuDraw::Kind::Uniform;
  float low = uniform ? static_cast<float>(draw.first) : 0, high = static_cast<float>(uniform ? draw.second : draw.first);
  uint64_t count = static_cast<uint64_t>(n), seed = state.seed, offset = state.offset, one = one_as(type);
  uint64_t base = static_cast<uint64_t>(draw.base), range = draw.range == ~uint64_t{0} ? 0 : draw.range;
  void* out = target.mutable_data_ptr();
  const uint64_t each = draw.kind == GpuDraw::Kind::Integers && size == 8 ? 2 : 4, blocks = (count + each - 1) / each;
  std::array<void*, 13> arguments{&out, &count, &seed, &offset, &kind, &form, &size, &low, &high, &one, &base, &range, &below_high};
  if (!launch_draw(target.device().index(), blocks, arguments)) {
    return false;
  }
  state.offset += blocks;
  return true;
}

}  // namespace anymps
