// Seeds of stand-in generators.
#include "device/backend/host_generator.h"

#include "device/backend/generator.h"

#include <ATen/CPUGeneratorImpl.h>

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

HostGenerator::HostGenerator(const Rule& rule, const std::optional<at::Generator>& given) {
  const at::Generator generator = mps_generator(rule, given);
  auto* mps = generator.get<MpsGenerator>();
  std::lock_guard<std::mutex> lock(mps->mutex_);
  const uint64_t offset = mps->state().offset++;
  host_ = at::make_generator<at::CPUGeneratorImpl>(scramble(mps->current_seed() ^ scramble(offset)));
}

}  // namespace anymps
