// Typed kernels for the operators of a training step: the same as the redirect in boxed.cpp, without the boxing.
#pragma once

#include "device/device.h"
#include "kernels/redirect/boxed.h"
#include "kernels/redirect/kernel_table.h"
#include "kernels/computed/python_numbers.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <forward_list>
#include <tuple>
#include <type_traits>

namespace anymps {

// Holds the host side of a call's arguments while the CPU kernel runs, each where a reference to it stays good.
struct HostArguments {
  struct Slot {
    at::Tensor tensor;
    at::Tensor* written = nullptr;  // the caller's tensor behind it, if it is written
  };
  HostArguments(Call& call, Slot* slots) : call(call), slots(slots) {}
  Call& call;
  Slot* slots;  // one for each tensor of the signature
  size_t used = 0;
  std::forward_list<std::vector<at::Tensor>> lists;  // costs nothing while empty

  at::Tensor& take(const at::Tensor& tensor, size_t position, bool is_written) {
    Slot& slot = slots[used++];
    slot.tensor = call.to_alias(tensor, is_written, position);
    if (is_written) {
      slot.written = const_cast<at::Tensor*>(&tensor);
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

// Runs the operator's CPU kernel.
struct OnCpu {};
// The same for arithmetic of two tensors, of which the second one may be a number of Python's.
struct OnCpuWithNumber {};

template <class Host, class Void, class... Args>
struct TakesRule : std::false_type {};
template <class Host, class... Args>
struct TakesRule<Host, std::void_t<decltype(Host::call(std::declval<const Rule&>(), std::declval<Args>()...))>, Args...>
    : std::true_type {};

// The same with a look at arguments and results where a card computes (kernels/checks/direct_calls.h).
template <class Looker>
struct OnCpuLookedAt {};

template <class Host>
struct LookOf {
  using Type = void;
};
template <class Looker>
struct LookOf<OnCpuLookedAt<Looker>> {
  using Type = Looker;
};
template <class Host>
constexpr bool is_looked_at_typed = !std::is_void_v<typename LookOf<Host>::Type>;

// Whether a `Host` looks into memory, which has to be the CPU's then; others are made of operators of torch, which find the
// kernels of any device.
template <class Host, class Void = void>
struct ReadsMemory : std::false_type {};
template <class Host>
struct ReadsMemory<Host, std::enable_if_t<Host::reads_memory>> : std::true_type {};

template <class Host>
constexpr bool is_operator_itself = std::is_same_v<Host, OnCpu> || std::is_same_v<Host, OnCpuWithNumber> || is_looked_at_typed<Host>;

// `Host` as a kernel of its operator, on aliases.
template <class Signature, class Host>
class OnAliases;

template <class Host, class R, class... Args>
class OnAliases<R(Args...), Host> final : public c10::OperatorKernel {
 public:
  explicit OnAliases(const Rule& rule) : rule_(rule) {}

  R operator()(Args... args) {
    if constexpr (TakesRule<Host, void, Args...>::value) {
      return Host::call(rule_, std::forward<Args>(args)...);
    } else {
      return Host::call(std::forward<Args>(args)...);
    }
  }

 private:
  const Rule& rule_;
};

// `Host` is OnCpu, OnCpuWithNumber, or a type with a static `call` of the operator's signature, perhaps with the rule before it, that
// computes on host tensors.
template <class Signature, class Host>
class Unboxed;

template <class Host, class R, class... Args>
class Unboxed<R(Args...), Host> final : public c10::OperatorKernel {
 public:
  explicit Unboxed(const Rule& rule) : rule_(rule), op_(rule.op.typed<R(Args...)>()) {
    if (rule.widened != 0 || rule.kernel.missing != 0 || rule.alert != nullptr || rule.offered) {
      boxed_ = make_redirect(rule, c10::DispatchKey::CPU);
    }
    if (C10_UNLIKELY(!substrate().computes_at_once())) {
      arrange();
    }
  }

  R operator()(Args... args) {
    try {
      return enter(std::forward<Args>(args)...);
    } catch (const c10::Error& error) {
      rethrow_as_ours(error);
    }
  }

 private:
  R enter(Args... args) {
    if constexpr (c10::impl::can_box_all<Args...>::value) {
      const bool offered = is_operator_itself<Host> && rule_.offered;
      if (C10_UNLIKELY(offered) || C10_UNLIKELY(rule_.widened != 0 && starts_widened(args...)) ||
          C10_UNLIKELY((lacks_kernel(args) || ...)) || C10_UNLIKELY(alerts(rule_))) {
        return boxed_.template call<R, Args...>(rule_.op, c10::DispatchKeySet(c10::DispatchKey::MPS), std::forward<Args>(args)...);
      }
    }
    if (C10_UNLIKELY(rule_.hazards != nullptr)) {  // the boxed form looks by itself
      check_hazards(rule_, args...);
    }
    return run(std::index_sequence_for<Args...>(), std::forward<Args>(args)...);
  }

  // Whether the first argument is a tensor whose dtype the CPU kernel lacks.
  template <class First, class... Rest>
  bool starts_widened(const First& first, const Rest&...) const {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return first.defined() && ((rule_.widened >> static_cast<int>(first.scalar_type())) & 1);
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
    if constexpr (std::is_same_v<Host, OnCpuWithNumber>) {
      take_number_in_dtype_of(slots[0].tensor, slots[1].tensor);
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

  void arrange() {
    if constexpr (c10::impl::can_box_all<Args...>::value) {
      c10::KernelFunction own;
      if constexpr (!is_operator_itself<Host>) {
        own = c10::KernelFunction::makeFromUnboxedFunctor<false, OnAliases<R(Args...), Host>>(
            std::make_unique<OnAliases<R(Args...), Host>>(rule_));
      }
      arranged_ = make_arranged(rule_, std::move(own), ReadsMemory<Host>::value);
      plain_ = is_operator_itself<Host> ? substrate().computes_plainly(rule_, is_looked_at_typed<Host>)
                                        : !ReadsMemory<Host>::value && substrate().computes_at_will(rule_);
    }
  }

  // By the substrate's kernels, with its arrangements for calls that these do not take. The arguments are needed once more
  // then, so that none is moved from.
  template <class... HostArgs>
  R compute_arranged(const Call& call, HostArgs&... args) {
    if constexpr (c10::impl::can_box_all<Args...>::value) {
      if (C10_LIKELY(plain_)) {
        const uint64_t refusals = refusals_of_this_thread();
        try {
          if constexpr (is_looked_at_typed<Host>) {
            using Looker = typename LookOf<Host>::Type;
            if (Looker::prepare(rule_, args...)) {
              R result = op_.redispatch(call.key(), args...);
              Looker::finish(result, args...);
              return result;
            }
          } else if constexpr (is_operator_itself<Host>) {
            return op_.redispatch(call.key(), args...);
          } else if constexpr (TakesRule<Host, void, HostArgs&...>::value) {
            return Host::call(rule_, args...);
          } else {
            return Host::call(args...);
          }
        } catch (const c10::Error&) {
          if (refusals_of_this_thread() != refusals) {
            throw;  // the Mac's own
          }  // else below it says so again, or the CPU knows better
        }
      }
      return arranged_.template call<R, Args...>(rule_.op, call.key(), args...);
    } else {
      TORCH_INTERNAL_ASSERT(false, "anymps: ", rule_.name, " has arguments that cannot be boxed");
    }
  }

  template <class T>
  void note_form(Form& form, size_t position, const T& argument) const {
    if (Form::Numbers* numbers = form.of(rule_.form, position)) {
      note_numbers(*numbers, argument);
    }
  }

  template <class... HostArgs>
  R compute(const Call& call, HostArgs&&... args) {
    if (C10_UNLIKELY(arranged_.isValid()) && !call.on_host()) {
      return compute_arranged(call, args...);
    }
    const OneThread alone(call.is_small());
    if constexpr (is_operator_itself<Host>) {
      return op_.redispatch(call.key(), std::forward<HostArgs>(args)...);
    } else if constexpr (TakesRule<Host, void, HostArgs...>::value) {
      return Host::call(rule_, std::forward<HostArgs>(args)...);
    } else {
      return Host::call(std::forward<HostArgs>(args)...);
    }
  }

  const Rule& rule_;
  c10::TypedOperatorHandle<R(Args...)> op_;
  c10::KernelFunction boxed_;  // for calls that need more than the CPU kernel
  c10::KernelFunction arranged_;  // for a substrate that does not compute at once; not valid for others
  bool plain_ = false;  // there: whether the operator's kernel, or `Host`, is tried first
};

template <class Op, class Host = OnCpu>
c10::KernelFunction make_unboxed(const Rule& rule) {
  using Kernel = Unboxed<typename Op::schema, Host>;
  return c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(rule));
}

// Enters a typed kernel of an operator into the table.
template <class Op, class Host = OnCpu>
void add_unboxed(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), &make_unboxed<Op, Host>);
}

}  // namespace anymps
