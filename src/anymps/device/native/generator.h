// The mps random generator: seed, offset and the 44-byte state of the real MPSGeneratorImpl.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <array>

namespace anymps {

class MpsGenerator final : public c10::GeneratorImpl {
 public:
  explicit MpsGenerator(uint64_t seed);

  static c10::DeviceType device_type() {
    return c10::DeviceType::MPS;
  }

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Moves the offset on by `blocks` and returns where it was. The caller holds the generator's mutex.
  uint64_t advance(uint64_t blocks);

 private:
  MpsGenerator* clone_impl() const override;

  std::array<uint32_t, 7> words_{1, 0, 0, 0, 0, 0, 0};
  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator();
at::Generator new_generator();

// The generator to use for an optional argument; raises the real text for one of another device.
at::Generator mps_generator(const std::optional<at::Generator>& given);

}  // namespace anymps
