// The generator's seed, offset and serialised state (torch 2.7 to 2.15, aten/src/ATen/mps/MPSGeneratorImpl.{h,mm}).
#include "generator.h"

#include "registry.h"
#include "texts.h"

#include <ATen/Utils.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <mutex>

namespace anymps {
namespace {

constexpr size_t kStateBytes = 44;  // 7 words, seed, offset; little endian as on every Mac
constexpr uint64_t kDefaultSeed = 67280421310721;

}  // namespace

MpsGenerator::MpsGenerator(uint64_t seed)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::MPS, 0), c10::DispatchKeySet(c10::DispatchKey::MPS)), seed_(seed) {}

void MpsGenerator::set_current_seed(uint64_t seed) {
  words_ = {1, 1, 1, 1, 1, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  seed_ = seed;
  offset_ = 0;
}

void MpsGenerator::set_offset(uint64_t offset) {
  offset_ = offset;
}

uint64_t MpsGenerator::get_offset() const {
  return offset_;
}

uint64_t MpsGenerator::current_seed() const {
  return seed_;
}

uint64_t MpsGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> MpsGenerator::get_state() const {
  at::Tensor state = at::Tensor(at::detail::empty_generic(
      {static_cast<int64_t>(kStateBytes)},
      c10::GetCPUAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::ScalarType::Byte,
      std::nullopt));
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(bytes, words_.data(), 28);
  std::memcpy(bytes + 28, &seed_, 8);
  std::memcpy(bytes + 36, &offset_, 8);
  return state.getIntrusivePtr();
}

void MpsGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(static_cast<size_t>(state.numel()) == kStateBytes, "RNG state is wrong size");
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(words_.data(), bytes, 28);
  std::memcpy(&seed_, bytes + 28, 8);
  std::memcpy(&offset_, bytes + 36, 8);
}

uint64_t MpsGenerator::advance(uint64_t blocks) {
  const uint64_t before = offset_;
  offset_ += blocks;
  return before;
}

MpsGenerator* MpsGenerator::clone_impl() const {
  auto* copy = new MpsGenerator(seed_);
  copy->words_ = words_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator() {
  static const at::Generator* generator = [] {
    auto* made = new at::Generator(at::make_generator<MpsGenerator>(kDefaultSeed));
    made->seed();  // from the operating system, as on a Mac
    return made;
  }();
  return *generator;
}

at::Generator new_generator() {
  return at::make_generator<MpsGenerator>(kDefaultSeed);
}

at::Generator mps_generator(const std::optional<at::Generator>& given) {
  if (!given.has_value() || !given->defined()) {
    return default_generator();
  }
  if (given->device().type() != c10::DeviceType::MPS) {
    refuse(
        Refusal::Generator,
        allocation_rule(),
        ErrorClass::Runtime,
        "Expected a 'mps' device type for generator but found '" + c10::DeviceTypeName(given->device().type(), true) + "'");
  }
  return *given;
}

}  // namespace anymps
