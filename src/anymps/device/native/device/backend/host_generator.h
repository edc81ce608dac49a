// Random numbers on the host: the stand-in generator for operators without a Metal kernel.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Generator.h>

#include <optional>

namespace anymps {

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
