// Operators that draw random numbers.
#include "random.h"

#include "generator.h"
#include "unboxed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_ops.h>

#include <mutex>

namespace anymps {
namespace {

uint64_t scramble(uint64_t value) {  // splitmix64, so that neighbouring offsets give unrelated streams
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

}  // namespace

HostGenerator::HostGenerator(const Rule&, const std::optional<at::Generator>& given) {
  at::Generator generator = mps_generator(given);
  auto* mps = generator.get<MpsGenerator>();
  std::lock_guard<std::mutex> lock(mps->mutex_);
  const uint64_t offset = mps->advance(1);
  host_ = at::make_generator<at::CPUGeneratorImpl>(scramble(mps->current_seed() ^ scramble(offset)));
}

void add_random_kernels(KernelTable&) {}

}  // namespace anymps
