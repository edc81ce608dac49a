// Random numbers for kernels that draw them on the host.
#pragma once

#include "rule.h"

#include <ATen/core/Generator.h>

#include <optional>

namespace anymps {

// A CPU generator that stands for an mps generator during one call: seeded from its seed and offset, which moves on. Used
// for the distributions whose stream on the real device is not known.
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
