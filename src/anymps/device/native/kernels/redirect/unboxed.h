// Typed kernels for the operators of a training step: the same as the redirect in boxed.cpp, without the boxing.
#pragma once

#include "device/device.h"
#include "kernels/kernels.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <forward_list>
#include <tuple>
#include <type_traits>
#include <utility>

namespace anymps {

// Holds the host side of a call's arguments while the CPU kernel runs, each where a reference to it stays good.
struct HostArguments {
  struct Slot {
    at::Tensor tensor;
    at::Tensor* written = nullptr;  // the caller's tensor behind it, if it is written
    bool borrowed = false;          // the call holds it, and nobody puts another in its place: it is not counted once more

    Slot() = default;
    ~Slot() {
      release();
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    void borrow(c10::TensorImpl* alias) {
      tensor = at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(alias));
      borrowed = true;
    }
    void replace(const at::Tensor& other) {
      release();
      tensor = other;
    }

   private:
    void release() {
      if (std::exchange(borrowed, false)) {
        tensor.unsafeReleaseTensorImpl();
      }
    }
  };
  HostArguments(Call& call, Slot* slots) : call(call), slots(slots) {}
  Call& call;
  Slot* slots;  // one for each tensor of the signature
  size_t used = 0;
  std::forward_list<std::vector<at::Tensor>> lists;  // costs nothing while empty

  at::Tensor& take(const at::Tensor& tensor, size_t position, bool is_written) {
    Slot& slot = slots[used++];
    if (is_written) {
      slot.written = const_cast<at::Tensor*>(&tensor);
    }
    if (C10_LIKELY(!is_written && tensor.defined() && call.on_host())) {
      slot.borrow(call.alias_of(tensor, false, position));
    } else {
      slot.tensor = call.to_alias(tensor, is_written, position);
    }
    return slot.tensor;
  }
  template <class Tensors>
  std::vector<at::Tensor>& take_all(const Tensors& tensors, size_t position) {
    std::vector<at::Tensor>& list = lists.emplace_front();
    for (const at::Tensor& tensor : tensors) {
      list.push_back(call.to_alias(tensor, false, position));
    }
    return list;
  }
};

// How one argument type is shown to a visitor, before the call.
template <class T>
void show(ArgumentVisitor&, const T&) {}
inline void show(ArgumentVisitor& visitor, const at::Tensor& tensor) {
  visitor.input(tensor);
}
inline void show(ArgumentVisitor& visitor, at::Tensor& tensor) {
  visitor.output(tensor);
}
inline void show(ArgumentVisitor& visitor, const std::optional<at::Tensor>& tensor) {
  visitor.input(tensor.value_or(at::Tensor()));
}
inline void show(ArgumentVisitor& visitor, at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    visitor.input(tensor);
  }
}
inline void show(ArgumentVisitor& visitor, const at::ITensorListRef& tensors) {
  for (const at::Tensor& tensor : tensors) {
    visitor.input(tensor);
  }
}
inline void show(ArgumentVisitor& visitor, const c10::List<std::optional<at::Tensor>>& tensors) {
  for (const std::optional<at::Tensor>& tensor : tensors) {
    visitor.input(tensor.value_or(at::Tensor()));
  }
}
inline void show(ArgumentVisitor& visitor, const c10::Scalar& value) {
  if (!value.isComplex() && !value.isSymbolic()) {
    visitor.number(value.toDouble());
  }
}

// How one argument type crosses to the host. Everything that holds no tensor passes as it is.
template <class T>
struct Cross {
  static T in(HostArguments&, size_t, T value) {
    return std::forward<T>(value);
  }
};
template <>
struct Cross<const at::Tensor&> {
  static const at::Tensor& in(HostArguments& host, size_t position, const at::Tensor& tensor) {
    return host.take(tensor, position, false);
  }
};
template <>
struct Cross<at::Tensor&> {
  static at::Tensor& in(HostArguments& host, size_t position, at::Tensor& tensor) {
    return host.take(tensor, position, true);
  }
};
template <>
struct Cross<const std::optional<at::Tensor>&> {
  static std::optional<at::Tensor> in(HostArguments& host, size_t position, const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() ? std::optional<at::Tensor>(host.take(*tensor, position, false)) : std::nullopt;
  }
};
template <>
struct Cross<at::TensorList> {
  static at::TensorList in(HostArguments& host, size_t position, at::TensorList tensors) {
    return host.take_all(tensors, position);
  }
};
template <>
struct Cross<const at::ITensorListRef&> {
  static at::ITensorListRef in(HostArguments& host, size_t position, const at::ITensorListRef& tensors) {
    return at::ITensorListRef(host.take_all(tensors, position));
  }
};
template <>
struct Cross<const c10::List<std::optional<at::Tensor>>&> {
  static c10::List<std::optional<at::Tensor>> in(
      HostArguments& host, size_t position, const c10::List<std::optional<at::Tensor>>& tensors) {
    c10::List<std::optional<at::Tensor>> result;
    result.reserve(tensors.size());
    for (const std::optional<at::Tensor>& tensor : tensors) {
      result.push_back(tensor.has_value() ? std::optional<at::Tensor>(host.call.to_alias(*tensor, false, position)) : std::nullopt);
    }
    return result;
  }
};

// How one result type comes back.
template <class R>
struct Return {
  static R out(HostArguments&, R value) {
    return value;
  }
};
template <>
struct Return<at::Tensor> {
  static at::Tensor out(HostArguments& host, at::Tensor&& result) {
    return host.call.to_mps(std::move(result));
  }
};
template <>
struct Return<at::Tensor&> {
  static at::Tensor& out(HostArguments& host, at::Tensor& result) {
    for (size_t i = 0; i < host.used; ++i) {
      if (&host.slots[i].tensor == &result) {
        return *host.slots[i].written;
      }
    }
    TORCH_INTERNAL_ASSERT(false, "anymps: an operator returned a reference to none of its arguments");
  }
};
template <>
struct Return<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> out(HostArguments& host, std::vector<at::Tensor>&& results) {
    for (at::Tensor& result : results) {
      result = host.call.to_mps(std::move(result));
    }
    return std::move(results);
  }
};
template <class... R>
struct Return<std::tuple<R...>> {
  static std::tuple<R...> out(HostArguments& host, std::tuple<R...>&& results) {
    return std::apply(
        [&](auto&&... parts) { return std::tuple<R...>(Return<R>::out(host, std::forward<R>(parts))...); }, std::move(results));
  }
};

// Whether an argument takes one of the slots.
template <class T>
constexpr bool is_one_tensor =
    std::is_same_v<std::decay_t<T>, at::Tensor> || std::is_same_v<std::decay_t<T>, std::optional<at::Tensor>>;

// What computes a typed kernel: a type with a static `call` of the operator's signature, perhaps with the rule before it, that
// computes on aliases. One made of operators of torch finds the kernels of any device.
struct HostKernel {
  static constexpr bool is_operator = false;   // the operator's own kernel, without a `call`
  static constexpr bool takes_number = false;  // arithmetic of two tensors, of which the second one may be a number of Python's
  static constexpr bool reads_memory = false;  // looks into memory, which has to be the CPU's then
};
struct OnCpu : HostKernel {
  static constexpr bool is_operator = true;
};
struct OnCpuWithNumber : OnCpu {
  static constexpr bool takes_number = true;
};

template <class Host, class Void, class... Args>
struct TakesRule : std::false_type {};
template <class Host, class... Args>
struct TakesRule<Host, std::void_t<decltype(Host::call(std::declval<const Rule&>(), std::declval<Args>()...))>, Args...>
    : std::true_type {};

// `number` in float32, if that is what the CPU's kernel would cast it to beside `tensor`; else nullptr. The kernel's own cast is
// four operators, more than the arithmetic on a small tensor (boxed.cpp). Holds until the thread's next call.
const at::Tensor* number_in_dtype_of(const at::Tensor& tensor, const at::Tensor& number);

template <class R, class... Args>
C10_NOINLINE R call_boxed(const c10::KernelFunction& kernel, const Rule& rule, c10::DispatchKeySet keys, Args... args) {
  return kernel.call<R, Args...>(rule.op, keys, std::forward<Args>(args)...);
}

inline bool is_on(c10::DeviceType type, const at::Tensor& tensor) {
  return tensor.device().type() == type;
}
template <class T>
bool is_on(c10::DeviceType, const T&) {
  return false;
}

// One of an operator that mps `shares` gets calls with CPU tensors, too (kernels/random/drawing.h).
template <class Signature, class Host, bool shares = false>
class Unboxed;

template <class Host, bool shares, class R, class... Args>
class Unboxed<R(Args...), Host, shares> final : public c10::OperatorKernel {
 public:
  explicit Unboxed(const Rule& rule, bool on_aliases = false)
      : rule_(rule), op_(rule.op.typed<R(Args...)>()), on_aliases_(on_aliases) {
    if (!on_aliases) {
      ways_.arrange(rule, own(), Host::reads_memory);
    }
  }
  static c10::KernelFunction make(const Rule& rule, bool on_aliases = false) {
    return c10::KernelFunction::makeFromUnboxedFunctor<false, Unboxed>(std::make_unique<Unboxed>(rule, on_aliases));
  }

  R operator()(Args... args) {
    if constexpr (!Host::is_operator) {
      if (C10_UNLIKELY(on_aliases_)) {
        return call_host(rule_, std::forward<Args>(args)...);
      }
    }
    if constexpr (shares) {
      if (C10_UNLIKELY(!(is_on(c10::DeviceType::MPS, args) || ...) && (is_on(c10::DeviceType::CPU, args) || ...))) {
        return op_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), std::forward<Args>(args)...);
      }
    }
    try {
      return enter(std::forward<Args>(args)...);
    } catch (const c10::Error& error) {
      rethrow_as_ours(error);
    }
  }

 private:
  R enter(Args... args) {
    const bool offered = Host::is_operator && rule_.offered;
    if (C10_UNLIKELY(offered) || C10_UNLIKELY((rule_.widened | rule_.refused) != 0 && starts_elsewise(args...)) ||
        C10_UNLIKELY((lacks_kernel(args) || ...)) || C10_UNLIKELY(alerts(rule_))) {
      return call_boxed<R, Args...>(ways_.redirect, rule_, c10::DispatchKeySet(c10::DispatchKey::MPS), std::forward<Args>(args)...);
    }
    if (C10_UNLIKELY(rule_.hazards != nullptr)) {  // the boxed form looks by itself
      check_hazards(rule_, args...);
    }
    return run(std::index_sequence_for<Args...>(), std::forward<Args>(args)...);
  }

  // Whether the first argument has a dtype that the CPU kernel lacks, or that MPS refuses.
  template <class First, class... Rest>
  bool starts_elsewise(const First& first, const Rest&...) const {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return first.defined() && (((rule_.widened | rule_.refused) >> static_cast<int>(first.scalar_type())) & 1);
    } else if constexpr (std::is_same_v<First, at::ITensorListRef>) {
      return first.size() != 0 && starts_elsewise(*first.begin());
    } else {
      return false;
    }
  }

  // Whether no Metal kernel has the dtype of an argument: the boxed form says so.
  template <class T>
  bool lacks_kernel(const T& argument) const {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return argument.defined() && ((rule_.kernel.missing >> static_cast<int>(argument.scalar_type())) & 1) &&
          !argument.unsafeGetTensorImpl()->is_wrapped_number();  // a number of Python is cast before
    } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
      return argument.size() != 0 && lacks_kernel(*argument.begin());
    } else {
      return false;
    }
  }

  template <size_t... Positions>
  R run(std::index_sequence<Positions...>, Args... args) {
    Call call(rule_, false, substrate().computes_on_host(rule_, [&](ArgumentVisitor& visitor) { (show(visitor, args), ...); }));
    if (C10_UNLIKELY(rule_.form.any()) && call.span().on()) {
      (note_form(call.span().form(), Positions, args), ...);
    }
    std::array<HostArguments::Slot, (size_t{0} + ... + size_t{is_one_tensor<Args>})> slots;
    HostArguments host(call, slots.data());
    // Braces keep the order: left to right, as the real kernels check their arguments.
    std::tuple<decltype(Cross<Args>::in(host, Positions, std::forward<Args>(args)))...> converted{
        Cross<Args>::in(host, Positions, std::forward<Args>(args))...};
    if constexpr (Host::takes_number) {
      if (const at::Tensor* number = number_in_dtype_of(slots[0].tensor, slots[1].tensor)) {
        slots[1].replace(*number);
      }
    }
    if constexpr (std::is_void_v<R>) {
      compute(call, std::forward<decltype(Cross<Args>::in(host, Positions, std::declval<Args>()))>(std::get<Positions>(converted))...);
      call.finish();
    } else {
      R result = Return<R>::out(
          host,
          compute(call, std::forward<decltype(Cross<Args>::in(host, Positions, std::declval<Args>()))>(std::get<Positions>(converted))...));
      call.finish();
      return std::forward<R>(result);
    }
  }

  // `Host` as a kernel of its operator that is called with aliases.
  static BoxedWays::Own own() {
    return Host::is_operator ? BoxedWays::Own() : [](const Rule& rule) { return make(rule, /*on_aliases=*/true); };
  }

  template <class... HostArgs>
  static R call_host(const Rule& rule, HostArgs&&... args) {
    if constexpr (TakesRule<Host, void, HostArgs...>::value) {
      return Host::call(rule, std::forward<HostArgs>(args)...);
    } else {
      return Host::call(std::forward<HostArgs>(args)...);
    }
  }

  template <class... HostArgs>
  R call_kernel(const Call& call, HostArgs&&... args) {
    if constexpr (Host::is_operator) {
      return op_.redispatch(call.key(), std::forward<HostArgs>(args)...);
    } else {
      return call_host(rule_, std::forward<HostArgs>(args)...);
    }
  }

  // By the substrate's kernels, with its arrangements for calls that these do not take. The arguments are needed once more
  // then, so that none is moved from.
  template <class... HostArgs>
  R compute_arranged(const Call& call, HostArgs&... args) {
    if (C10_LIKELY(ways_.plain)) {
      const uint64_t refusals = refusals_of_this_thread();
      try {
        return call_kernel(call, args...);
      } catch (const c10::Error&) {
        if (refusals_of_this_thread() != refusals) {
          throw;  // the Mac's own
        }  // else below it says so again, or the CPU knows better
      }
    }
    return call_boxed<R, Args...>(ways_.arranged, rule_, call.key(), args...);
  }

  template <class T>
  void note_form(Form& form, size_t position, const T& argument) const {
    if (Form::Numbers* numbers = form.of(rule_.form, position)) {
      note_numbers(*numbers, argument);
    }
  }

  template <class... HostArgs>
  R compute(const Call& call, HostArgs&&... args) {
    if (C10_UNLIKELY(ways_.arranged.isValid()) && !call.on_host()) {
      return compute_arranged(call, args...);
    }
    const OneThread alone(call.is_small());
    return call_kernel(call, std::forward<HostArgs>(args)...);
  }

  const Rule& rule_;
  c10::TypedOperatorHandle<R(Args...)> op_;
  const bool on_aliases_;
  BoxedWays ways_;
};

// Enters a typed kernel of an operator into the table.
template <class Op, class Host = OnCpu, bool shares = false>
void add_unboxed(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) { return Unboxed<typename Op::schema, Host, shares>::make(rule); });
}

}  // namespace anymps
