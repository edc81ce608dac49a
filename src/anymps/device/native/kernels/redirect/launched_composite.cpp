// Operators that this torch makes of others on mps, and that PyTorch's own kernels of a later release compute in one call.
#include "kernels/redirect/boxed.h"

#include "device/device.h"
#include "kernels/redirect/boxed_arguments.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace anymps {
namespace {

using torch::jit::Stack;

// A backend without kernels of its own: what it is given is the composite one.
constexpr c10::DispatchKeySet kComposite(c10::DispatchKey::VE);

bool is_plain(const c10::IValue& value) {
  return !value.isTensor() || !value.toTensor().defined() ||
      (value.toTensor().is_mps() && value.toTensor().layout() == c10::kStrided);
}

class LaunchedComposite final : public c10::OperatorKernel {
 public:
  explicit LaunchedComposite(const Rule& rule) : rule_(rule) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    if (!launched(*stack)) {
      op.redispatchBoxed(kComposite, stack);
    }
  }

 private:
  // Whether a kernel has computed it. If not, the stack is as it was, and the tape tells of the operators that follow.
  bool launched(Stack& stack) const {
    const auto& schema = rule_.op.schema().arguments();
    const size_t first = stack.size() - schema.size();
    const Stack given(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
    if (!std::all_of(given.begin(), given.end(), is_plain)) {
      return false;
    }
    try {
      Call call(rule_, /*sparse=*/false, /*on_host=*/true);
      convert_arguments(rule_, schema, stack, [&](const at::Tensor& tensor, bool written, size_t position) {
        return call.to_alias(tensor, written, position);
      }, call.device());
      if (!launch(rule_, stack, given)) {
        call.leave();
        std::copy(given.begin(), given.end(), stack.begin() + static_cast<std::ptrdiff_t>(first));
        return false;
      }
      convert_results(stack, first, [&](at::Tensor&& result, size_t) { return call.to_mps(std::move(result)); });
      call.finish();
      return true;
    } catch (const c10::Error& error) {
      rethrow_as_ours(error);
    }
  }

  const Rule& rule_;
};

}  // namespace

c10::KernelFunction make_launched_composite(const Rule& rule) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<LaunchedComposite>(rule));
}

}  // namespace anymps
