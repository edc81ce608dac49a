// `_foreach_*` on a card. MPS has no kernel for lists, so a Mac runs one operator for each tensor, and that is what is checked,
// booked and recorded here, too. Their arithmetic is done by CUDA's kernel for the whole list.
//
// Only where both give the same bits: float32 alone, where each element is computed by the same operations in the same order.
// A division by numbers is a product with their reciprocals in CUDA's kernel of one tensor, and so it is here; `addcmul` and
// `addcdiv` share one function with their list's kernels from torch 2.11 on (ATen/native/cuda/DeviceAddCmulCdiv.cuh).
#include "device/device.h"
#include "kernels/redirect/kernel_table.h"
#include "kernels/redirect/lists.h"
#include "kernels/redirect/single_calls.h"
#include "recorder/recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <forward_list>
#include <limits>

namespace anymps {
namespace lists {
namespace {

std::atomic<bool> in_one{true};
std::atomic<int64_t> computed{0};

// The memory of a dense tensor.
struct Range {
  const char* begin;
  const char* end;
  size_t index;
};

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_mps() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
      tensor.numel() > 0 && tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg();
}

bool is_plain(const at::Scalar& number) {
  if (!number.isFloatingPoint() && !number.isIntegral(/*includeBool=*/false)) {
    return false;
  }
  return !number.isSymbolic() && std::abs(number.toDouble()) <= std::numeric_limits<float>::max();
}

// Whether the list's kernel may take these calls.
class Fit {
 public:
  explicit Fit(at::TensorList tensors) : tensors_(tensors) {
    // Who watches operators is to see each call; who follows what came from mps on the CPU has nothing to see in them.
    const bool watched = at::hasCallbacks() && !roundtrip::watches_alone();
    ok_ = in_one.load(std::memory_order_relaxed) && tensors.size() > 1 && !watched &&
        std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return is_plain(tensor); });
  }

  // What is written, for calls in place: no call may see what another one writes.
  void write() {
    if (!ok_) {
      return;
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      written_.push_back(range_of(tensors_[i], i));
    }
    std::sort(written_.begin(), written_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < written_.size(); ++i) {
      ok_ = ok_ && written_[i - 1].end <= written_[i].begin;
    }
  }

  void take(at::TensorList others) {
    ok_ = ok_ && others.size() == tensors_.size();
    for (size_t i = 0; ok_ && i < others.size(); ++i) {
      ok_ = is_plain(others[i]) && others[i].sizes().equals(tensors_[i].sizes()) &&
          others[i].strides().equals(tensors_[i].strides()) && !meets_another(range_of(others[i], i));
    }
  }
  void take(const at::Scalar& number) {
    ok_ = ok_ && is_plain(number);
  }
  void take(at::ArrayRef<at::Scalar> numbers) {
    ok_ = ok_ && numbers.size() == tensors_.size() &&
        std::all_of(numbers.begin(), numbers.end(), [](const at::Scalar& number) { return is_plain(number); });
  }

  bool ok() const {
    return ok_;
  }

 private:
  static Range range_of(const at::Tensor& tensor, size_t index) {
    const auto* begin = static_cast<const char*>(tensor.unsafeGetTensorImpl()->data());
    return {begin, begin + tensor.nbytes(), index};
  }
  // It may be the very tensor that its own call writes.
  bool meets_another(const Range& read) const {
    auto next = std::upper_bound(
        written_.begin(), written_.end(), read.begin, [](const char* place, const Range& range) { return place < range.end; });
    for (; next != written_.end() && next->begin < read.end; ++next) {
      if (next->index != read.index || next->begin != read.begin) {
        return true;
      }
    }
    return false;
  }

  const at::TensorList tensors_;
  std::vector<Range> written_;
  bool ok_ = false;
};

// The first `count` calls of a list, on aliases.
class Aliases {
 public:
  explicit Aliases(size_t count) : count_(count) {}
  ~Aliases() {
    for (auto& [originals, list] : lists_) {
      for (size_t i = 0; i < list.size(); ++i) {
        give_back(originals[i].unsafeGetTensorImpl(), list[i].unsafeReleaseIntrusivePtr());
      }
    }
  }
  Aliases(const Aliases&) = delete;
  Aliases& operator=(const Aliases&) = delete;

  at::TensorList of(at::TensorList originals) {
    auto& [given, list] = lists_.emplace_front(originals.slice(0, count_), std::vector<at::Tensor>());
    list.reserve(count_);
    for (const at::Tensor& tensor : given) {
      list.push_back(at::Tensor(alias(tensor.unsafeGetTensorImpl())));
    }
    return list;
  }
  const at::Scalar& of(const at::Scalar& number) const {
    return number;
  }
  at::ArrayRef<at::Scalar> of(at::ArrayRef<at::Scalar> numbers) const {
    return numbers.slice(0, count_);
  }

 private:
  const size_t count_;
  std::forward_list<std::pair<at::TensorList, std::vector<at::Tensor>>> lists_;
};

// Neither autograd nor the tracer is to see operators on aliases.
struct Unseen {
  c10::impl::ExcludeDispatchKeyGuard guard{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::DispatchKeySet(c10::DispatchKey::Tracer)};
};

// By the list's own kernel.
struct Itself {
  template <class Handle, class... Args>
  static void compute(const Handle& op, c10::DispatchKeySet key, Args... args) {
    op.redispatch(key, args...);
  }
};

// A division by numbers, as CUDA's kernel of one tensor does it.
struct ByReciprocals {
  template <class Handle>
  static void compute(const Handle& op, c10::DispatchKeySet key, at::TensorList tensors, at::ArrayRef<at::Scalar> numbers) {
    if (!key.has(c10::DispatchKey::CUDA)) {
      op.redispatch(key, tensors, numbers);
      return;
    }
    std::vector<at::Scalar> factors;
    factors.reserve(numbers.size());
    for (const at::Scalar& number : numbers) {
      factors.emplace_back(1.0f / static_cast<float>(number.toDouble()));
    }
    at::_ops::_foreach_mul__ScalarList::redispatch(key, tensors, factors);
  }
  template <class Handle>
  static void compute(const Handle& op, c10::DispatchKeySet key, at::TensorList tensors, const at::Scalar& number) {
    if (!key.has(c10::DispatchKey::CUDA)) {
      op.redispatch(key, tensors, number);
      return;
    }
    at::_ops::_foreach_mul__Scalar::redispatch(key, tensors, at::Scalar(1.0f / static_cast<float>(number.toDouble())));
  }
};

// Torch's own way for lists that no kernel takes: one call for each tensor. The CPU has it for all of these.
template <class Handle, class... Args>
auto one_by_one(const Handle& op, Args... args) {
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), args...);
}

const at::Tensor& of_call(at::TensorList tensors, size_t index) {
  return tensors[index];
}
const at::Scalar& of_call(at::ArrayRef<at::Scalar> numbers, size_t index) {
  return numbers[index];
}
const at::Scalar& of_call(const at::Scalar& number, size_t) {
  return number;
}

// `Each`: the operator that torch's own way calls for each tensor, and how.
template <class Signature, class Each, class How>
class InPlace;

template <class Each, class How, class... Rest>
class InPlace<void(at::TensorList, Rest...), Each, How> final : public c10::OperatorKernel {
 public:
  explicit InPlace(const c10::OperatorHandle& op)
      : op_(op.typed<void(at::TensorList, Rest...)>()), rule_(rule_named(Each::name)) {}

  void operator()(at::TensorList tensors, Rest... rest) {
    enter_device();
    Fit fit(tensors);
    fit.write();
    (fit.take(rest), ...);
    if (!fit.ok()) {
      one_by_one(op_, tensors, rest...);
      return;
    }
    const card_traffic::Passage passage(/*on_card=*/true);
    size_t done = 0;
    try {
      for (SingleCalls calls(rule_); done < tensors.size(); ++done) {
        Each::write(calls, tensors[done], of_call(rest, done)...);
        if (!c10::InferenceMode::is_enabled() && !tensors[done].is_inference()) {
          tensors[done].unsafeGetTensorImpl()->bump_version();  // for autograd, as each call by itself does
        }
      }
    } catch (...) {
      compute(done, tensors, rest...);  // the calls before the one that raised
      throw;
    }
    compute(done, tensors, rest...);
  }

 private:
  void compute(size_t done, at::TensorList tensors, Rest... rest) const {
    if (done == 0) {
      return;
    }
    const Unseen unseen;
    Aliases aliases(done);
    computed.fetch_add(1, std::memory_order_relaxed);
    const at::TensorList own = aliases.of(tensors);
    How::compute(op_, substrate().compute_key(), own, aliases.of(rest)...);
  }

  const c10::TypedOperatorHandle<void(at::TensorList, Rest...)> op_;
  const Rule& rule_;
};

// One tensor in, a new one out.
template <class Each>
class Fresh final : public c10::OperatorKernel {
 public:
  using Signature = std::vector<at::Tensor>(at::TensorList);
  explicit Fresh(const c10::OperatorHandle& op) : op_(op.typed<Signature>()), rule_(rule_named(Each::name)) {}

  std::vector<at::Tensor> operator()(at::TensorList tensors) {
    enter_device();
    const card_traffic::Passage passage(/*on_card=*/true);
    const SingleCalls calls(rule_);
    std::vector<at::Tensor> results = compute(tensors);
    if (results.empty()) {
      return one_by_one(op_, tensors);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = calls.give(tensors[i], std::move(results[i]));
    }
    return results;
  }

 private:
  // Empty where single calls have to, or have to say why not.
  std::vector<at::Tensor> compute(at::TensorList tensors) const {
    if (!Fit(tensors).ok()) {
      return {};
    }
    try {
      const Unseen unseen;
      Aliases aliases(tensors.size());
      std::vector<at::Tensor> results = op_.redispatch(substrate().compute_key(), aliases.of(tensors));
      computed.fetch_add(1, std::memory_order_relaxed);
      return results;
    } catch (const c10::Error&) {
      return {};
    }
  }

  const c10::TypedOperatorHandle<Signature> op_;
  const Rule& rule_;
};

struct Add {
  static constexpr const char* name = "aten::add_.Tensor";
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Scalar& number) {
    calls.write(self, calls.as_tensor(number), at::Scalar(1));
  }
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    calls.write(self, other, alpha);
  }
};
struct Mul {
  static constexpr const char* name = "aten::mul_.Tensor";
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Tensor& other) {
    calls.write(self, other);
  }
};
struct MulOut {  // what `mul_` by a number is made of, which comes first there
  static constexpr const char* name = "aten::mul.out";
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Scalar& number) {
    calls.write(calls.as_tensor(number), self, self);
  }
};
struct Div {
  static constexpr const char* name = "aten::div_.Tensor";
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Scalar& number) {
    calls.write(self, calls.as_tensor(number));
  }
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Tensor& other) {
    calls.write(self, other);
  }
};
struct Lerp {
  static constexpr const char* name = "aten::lerp_.Scalar";
  static void write(SingleCalls& calls, const at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
    calls.write(self, end, weight);
  }
};
struct AddOfTwo {
  static void write(
      SingleCalls& calls, const at::Tensor& self, const at::Tensor& first, const at::Tensor& second, const at::Scalar& value) {
    calls.write(self, first, second, value);
  }
};
struct Addcmul : AddOfTwo {
  static constexpr const char* name = "aten::addcmul_";
};
struct Addcdiv : AddOfTwo {
  static constexpr const char* name = "aten::addcdiv_";
};
struct Sqrt {
  static constexpr const char* name = "aten::sqrt";
};

template <class Kernel>
c10::KernelFunction make(const c10::OperatorHandle& op) {
  return c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(op));
}

template <class Op, class Each, class How = Itself>
void add_in_place(ListTable& table) {
  table.emplace_back(full_name<Op>(), &make<InPlace<typename Op::schema, Each, How>>);
}

}  // namespace

void compute_in_one(bool on) {
  in_one.store(on);
}

int64_t computed_in_one() {
  return computed.load();
}

}  // namespace lists

void add_list_kernels(ListTable& table) {
  namespace ops = at::_ops;
  using namespace lists;
  add_in_place<ops::_foreach_add__Scalar, Add>(table);
  add_in_place<ops::_foreach_add__ScalarList, Add>(table);
  add_in_place<ops::_foreach_add__List, Add>(table);
  add_in_place<ops::_foreach_mul__Scalar, MulOut>(table);
  add_in_place<ops::_foreach_mul__ScalarList, MulOut>(table);
  add_in_place<ops::_foreach_mul__List, Mul>(table);
  add_in_place<ops::_foreach_div__Scalar, Div, ByReciprocals>(table);
  add_in_place<ops::_foreach_div__ScalarList, Div, ByReciprocals>(table);
  add_in_place<ops::_foreach_div__List, Div>(table);
  add_in_place<ops::_foreach_lerp__Scalar, Lerp>(table);
#if __has_include(<ATen/native/cuda/DeviceAddCmulCdiv.cuh>)
  add_in_place<ops::_foreach_addcmul__Scalar, Addcmul>(table);
  add_in_place<ops::_foreach_addcmul__ScalarList, Addcmul>(table);
  add_in_place<ops::_foreach_addcdiv__Scalar, Addcdiv>(table);
  add_in_place<ops::_foreach_addcdiv__ScalarList, Addcdiv>(table);
#endif
  table.emplace_back(full_name<ops::_foreach_sqrt>(), &make<Fresh<Sqrt>>);
}

}  // namespace anymps
