// The generator's seed, offset and serialised state (torch 2.11 to 2.15, aten/src/ATen/mps/MPSGeneratorImpl.{h,mm}).
#include "device/backend/generator.h"

#include "device/errors/refusals.h"
#include "locks/locks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <anymps/release.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
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

MpsGenerator::MpsGenerator(const RandomState& state)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::MPS, 0), c10::DispatchKeySet(c10::DispatchKey::MPS)), state_(state) {}

void MpsGenerator::set_current_seed(uint64_t seed) {
  state_.manual_seed(seed);
}

void MpsGenerator::set_offset(uint64_t offset) {
  state_.offset = offset;
}

uint64_t MpsGenerator::get_offset() const {
  return state_.offset;
}

uint64_t MpsGenerator::current_seed() const {
  return state_.seed;
}

uint64_t MpsGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> MpsGenerator::get_state() const {
  const at::Tensor state = at::Tensor(at::detail::empty_generic(
      {static_cast<int64_t>(kRandomStateBytes)},
      c10::GetCPUAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::ScalarType::Byte,
      std::nullopt));
  const auto bytes = state_.serialize();
  std::memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  return state.getIntrusivePtr();
}

void MpsGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  const auto size = static_cast<size_t>(state.numel());
  TORCH_CHECK(size == kRandomStateBytes, "RNG state is wrong size");
  state_ = RandomState::deserialize(state.data(), size);
}

MpsGenerator* MpsGenerator::clone_impl() const {
  if constexpr (release::clone_keeps_generator_state) {
    return new MpsGenerator(state_);
  }
  // A new generator with the same seed: offset and words are lost (MPSGeneratorImpl::clone_impl).
  RandomState fresh;
  fresh.manual_seed(state_.seed);
  return new MpsGenerator(fresh);
}

const at::Generator& default_generator() {
  static const at::Generator* generator = [] {
    auto* made = new at::Generator(new_generator());
    made->seed();  // from the operating system, as on a Mac
    fork_waits_for(made->mutex());
    return made;
  }();
  return *generator;
}

at::Generator new_generator() {
  return at::make_generator<MpsGenerator>(RandomState());
}

at::Generator mps_generator(const Rule& rule, const std::optional<at::Generator>& given) {
  if (!given.has_value() || !given->defined()) {
    return default_generator();
  }
  if (given->device().type() != c10::DeviceType::MPS) {
    const std::string found = c10::DeviceTypeName(given->device().type(), /*lower_case=*/true);
    refuse(Refusal::Generator, rule, ErrorClass::Runtime, "Expected a 'mps' device type for generator but found '" + found + "'");
  }
  return *given;
}

HostGenerator::HostGenerator(const Rule& rule, const std::optional<at::Generator>& given) {
  const at::Generator generator = mps_generator(rule, given);
  auto* mps = generator.get<MpsGenerator>();
  std::lock_guard<std::mutex> lock(mps->mutex_);
  const uint64_t offset = mps->state().offset++;
  host_ = at::make_generator<at::CPUGeneratorImpl>(scramble(mps->current_seed() ^ scramble(offset)));
}

}  // namespace anymps
