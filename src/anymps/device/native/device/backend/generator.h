// The mps random generator: seed, offset and the 44-byte state of the real MPSGeneratorImpl.
#pragma once

#include "rules/rules.h"
#include "model/model.h"

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <optional>

namespace anymps {

class MpsGenerator final : public c10::GeneratorImpl {
 public:
  explicit MpsGenerator(const RandomState& state);

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

  // What the kernels draw from. The caller holds the generator's mutex.
  RandomState& state() {
    return state_;
  }

 private:
  MpsGenerator* clone_impl() const override;

  RandomState state_;
};

const at::Generator& default_generator();
at::Generator new_generator();

// The generator that `rule`'s operator draws from; refuses one of another device with the text of most operators.
at::Generator mps_generator(const Rule& rule, const std::optional<at::Generator>& given);

// A CPU generator that stands for an mps generator during one call: seeded from its seed and offset, which moves on. Used
// for the operators whose stream on the real device is not known.
class HostGenerator {
 public:
  HostGenerator(const Rule& rule, const std::optional<at::Generator>& given);
  const at::Generator& host() const {
    return host_;
  }

 private:
  at::Generator host_;
};

}  // namespace anymps
