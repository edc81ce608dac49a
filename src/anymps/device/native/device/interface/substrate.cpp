// The choice of the substrate, and the walk over boxed arguments.
#include "device/interface/substrate.h"

#include "recorder/recorder.h"

#include <ATen/EmptyTensor.h>

#include <stdexcept>

namespace anymps {
namespace {

std::map<std::string, SubstrateEntry::Maker>& makers() {
  static std::map<std::string, SubstrateEntry::Maker> by_name;
  return by_name;
}

}  // namespace

namespace detail {
Substrate* chosen = nullptr;
}

SubstrateEntry::SubstrateEntry(const char* name, Maker make) {
  makers()[name] = make;
}

at::Tensor Substrate::staging_buffer(c10::IntArrayRef sizes, c10::ScalarType type) {
  return at::detail::empty_cpu(sizes, type);
}

void choose_substrate(const std::string& name, int gpu) {
  const auto found = makers().find(name);
  if (found == makers().end()) {
    throw std::invalid_argument("anymps: the native core has no substrate " + name);
  }
  detail::chosen = found->second(gpu).release();  // for the life of the process, as tensors are destroyed to its very end
  hazard_checks::read_values(detail::chosen->computes_at_once() && detail::chosen->holds_data());
}

bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  for (const c10::DispatchKey one :
       {key,
        c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
        c10::DispatchKey::CompositeExplicitAutograd,
        c10::DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(one)) {
      return true;
    }
  }
  return false;
}

void assume(const std::string& what) {
  if (recording()) {
    const int64_t now = now_ns();
    tape::mark(mark_rule("anymps::assumed." + what), 0, now, now, Wait::None);
  }
}

void ArgumentVisitor::value(const c10::IValue& value, bool written) {
  if (value.isTensor()) {
    written ? output(value.toTensor()) : input(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      written ? output(tensor) : input(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      input(tensor.value_or(at::Tensor()));
    }
  } else if (value.isInt()) {
    number(static_cast<double>(value.toInt()));
  } else if (value.isDouble()) {
    number(value.toDouble());
  } else if (value.isIntList()) {
    double product = 1;
    for (const int64_t size : value.toIntVector()) {
      product *= static_cast<double>(size);
    }
    number(product);
  }
}

}  // namespace anymps
