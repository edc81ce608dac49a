// Which calls are small: computed on the calling thread alone, as threads would wait for each other longer than they gain.
#include "device/calls/call.h"
#include "device/calls/one_thread.h"

#include <algorithm>
#include <array>

namespace anymps {
namespace {

constexpr size_t kShapeLooked = 8;  // dimensions of a call that may be small

// Multiplications of a product of matrices, or of a convolution with steps of one, which has the channels in place of the
// rows' length.
int64_t multiplications(Labor labor, const c10::TensorImpl* left, const c10::TensorImpl* right) {
  const c10::IntArrayRef sizes = left->sizes();
  if (sizes.empty() || left->numel() == 0) {
    return 0;
  }
  const bool convolves = labor == Labor::Convolution && sizes.size() > 1;
  int64_t shared = convolves ? sizes[1] : sizes.back();
  if (!convolves && sizes.size() == 3 && right->sizes().size() == 3) {
    shared *= sizes[0];  // of each matrix with its own
  }
  return left->numel() / shared * right->numel();
}

}  // namespace

bool Call::is_small() const {
  if (C10_UNLIKELY(!on_host_) || !has_several_threads()) {
    return false;
  }
  const LaborOfCall& labor = rule_.labor;
  int64_t elements = 0;
  for (const Argument& argument : arguments_) {
    elements += argument.original->numel();
  }
  if (elements > (labor.kind == Labor::Product ? kSmallFactors : kSmallCall)) {
    return false;
  }
  if (labor.kind == Labor::Broadcast) {
    return broadcasts_small();
  }
  if (labor.kind == Labor::Elements) {
    return true;
  }
  if (arguments_.size() <= labor.right) {
    return false;
  }
  const int64_t most = labor.kind == Labor::Convolution ? kSmallConvolution
      : elements > kSmallCall                           ? kSmallProductOfMany
                                                        : kSmallProduct;
  const c10::TensorImpl* left = arguments_[labor.left].original;
  return multiplications(labor.kind, left, arguments_[labor.right].original) <= most;
}

bool Call::broadcasts_small() const {
  std::array<int64_t, kShapeLooked> shape{};  // from the last dimension on
  int64_t most = 1;
  for (const Argument& argument : arguments_) {
    const c10::IntArrayRef sizes = argument.original->sizes();
    if (sizes.size() > shape.size()) {
      return false;
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      shape[i] = std::max(shape[i], sizes[sizes.size() - 1 - i]);
    }
  }
  for (const int64_t size : shape) {
    most *= std::max<int64_t>(size, 1);
    if (most > kSmallCall) {
      return false;
    }
  }
  return true;
}

}  // namespace anymps
