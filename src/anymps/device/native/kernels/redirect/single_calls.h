// The calls of an operator, one for each tensor of a list, all but their arithmetic: checks, memory and entry.
#pragma once

#include "device/device.h"
#include "law/law.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

#include <utility>

namespace anymps {
namespace lists {

inline const Rule& rule_named(const char* operator_name) {
  const Rule* rule = find_rule(operator_name);
  TORCH_CHECK(rule != nullptr, "anymps: this torch has no operator ", operator_name);
  return *rule;
}

class SingleCalls {
 public:
  explicit SingleCalls(const Rule& rule)
      : rule_(rule), on_host_(substrate().computes_on_host(rule, [](ArgumentVisitor&) {})) {}

  // One that writes in place. The arguments are the operator's, in its order.
  template <class... Args>
  void write(const Args&... args) const {
    check(args...);
    Call call(rule_, /*sparse=*/false, on_host_);
    take(call, args...);
    call.finish();
  }
  // One whose result is the tensor that the list's kernel has made.
  at::Tensor give(const at::Tensor& tensor, at::Tensor&& made) const {
    check(tensor);
    Call call(rule_, /*sparse=*/false, on_host_);
    take(call, tensor);
    at::Tensor result = call.to_mps(std::move(made));
    call.finish();
    return result;
  }

  // A number as the tensor that torch puts beside another one; the last is kept, as many calls may have it.
  const at::Tensor& as_tensor(const at::Scalar& number) {
    if (&number != number_) {
      number_tensor_ = c10::scalar_to_tensor(number);
      number_tensor_.unsafeGetTensorImpl()->set_wrapped_number(true);
      number_ = &number;
    }
    return number_tensor_;
  }

 private:
  template <class... Args>
  void check(const Args&... args) const {
    if (C10_UNLIKELY(rule_.hazards != nullptr)) {
      check_hazards(rule_, args...);
    }
  }
  template <class... Args>
  void take(Call& call, const Args&... args) const {
    size_t position = 0;
    (take_one(call, args, position++), ...);
  }
  void take_one(Call& call, const at::Tensor& tensor, size_t position) const {
    call.show(tensor, ((rule_.writes >> position) & 1) != 0, position);
  }
  void take_one(Call&, const at::Scalar&, size_t) const {}

  const Rule& rule_;
  const bool on_host_;
  const at::Scalar* number_ = nullptr;
  at::Tensor number_tensor_;
};

}  // namespace lists
}  // namespace anymps
