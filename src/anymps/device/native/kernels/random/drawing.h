// What all operators that draw random numbers share: the generator's lock, the stream of philox.h, torch's own checks.
//
// From torch 2.13 on most mps distributions are torch's device-independent templates (DistributionTemplates.h) over a
// Metal kernel. The same templates run here, on host aliases, over the same stream; so their checks, their order and
// their texts are those of the installed torch. What has no template follows pytorch's Distributions.mm and Dropout.mm.
#pragma once

#define AT_PER_OPERATOR_HEADERS  // the templates would include every operator of torch otherwise

#include "device/device.h"
#include "kernels/redirect/kernel_table.h"
#include "kernels/redirect/unboxed.h"
#include "model/model.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <anymps/release.h>
#include <c10/util/Exception.h>

#include <mutex>

namespace anymps {
namespace drawing {  // the short names below belong to these files, also where files are compiled together

namespace templates = at::native::templates;
using MaybeGenerator = std::optional<at::Generator>;

// The release's kernels, over torch's threads.
const Launch& launch();

// Throws KernelMissing for an element type that no kernel of this name can have.
ElementType element_type(const char* kernel, c10::ScalarType type);

// A check whose answer the real device raises at the next wait, or reads back and raises at once.
void report(const Rule& rule, const std::string& message);

inline at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

// Calls body(state) with the lock held. Errors are reported after it is released: reporting takes the GIL, whose holder
// may be waiting for this very lock.
template <class Body>
void draw(const Rule& rule, const MaybeGenerator& given, const Body& body) {
  if constexpr (!release::metal_philox) {
    TORCH_WARN_ONCE(
        "anymps: on a Mac the random numbers of torch 2.11 and 2.12 come from Apple's MPSGraph, whose stream is not public; "
        "these come from the Metal generator of torch 2.13, so that the same seed gives other numbers");
  }
  const at::Generator generator = mps_generator(rule, given);
  try {
    auto* mps = generator.get<MpsGenerator>();
    std::lock_guard<std::mutex> lock(mps->mutex_);
    body(mps->state());
  } catch (const KernelMissing& missing) {
    refuse(Refusal::Dtype, rule, ErrorClass::Runtime, missing.what());
  } catch (const TypeRefused& refused) {
    refuse(Refusal::Dtype, rule, ErrorClass::Type, refused.what());
  } catch (const DispatchMissing& missing) {
    refuse(Refusal::Dtype, rule, ErrorClass::NotImplemented, missing.what());
  } catch (const RangeRefused& refused) {
    refuse(Refusal::Dtype, rule, ErrorClass::Runtime, refused.what());
  } catch (const std::length_error& too_long) {
    refuse(Refusal::Memory, rule, ErrorClass::Runtime, too_long.what());
  }
}

// Fewer numbers are sooner drawn here and sent than a card's kernel is launched for them.
constexpr int64_t kDrawnOnCard = 4096;

// Calls write(state, pointer, count, type) for the whole target of `iter`, unless a card has drawn what `on_card` says. As the Metal host code does, a target without
// gaps is filled in the order of its memory, whatever its strides (channels_last, a transposed tensor), any other one
// row by row through a temporary.
template <class Write>
void fill(
    const Rule& rule,
    at::TensorIteratorBase& iter,
    const MaybeGenerator& given,
    const char* kernel,
    const Write& write,
    const CardDraw* on_card = nullptr) {
  if (iter.numel() == 0) {
    return;
  }
  if (!iter.is_contiguous()) {
    const at::Tensor target = iter.tensor(0);
    const at::Tensor rows = at::empty(target.sizes(), target.options());
    auto rows_iter = at::TensorIterator::borrowing_nullary_op(rows);
    fill(rule, rows_iter, given, kernel, write, on_card);
    target.copy_(rows);
    return;
  }
  if (C10_UNLIKELY(!iter.tensor(0).is_cpu())) {
    const at::Tensor target = at::Tensor(iter.tensor(0)).as_strided({iter.numel()}, {1});
    bool drawn = false;
    if (on_card != nullptr && iter.numel() >= kDrawnOnCard) {
      draw(rule, given, [&](RandomState& state) {
        drawn = draw_on_card(*on_card, state, target, element_type(kernel, iter.dtype(0)), launch().release);
      });
    }
    if (drawn) {
      return;
    }
    const at::Tensor room = substrate().sending_room({iter.numel()}, iter.dtype(0));
    draw(rule, given, [&](RandomState& state) {
      write(state, room.mutable_data_ptr(), iter.numel(), element_type(kernel, iter.dtype(0)));
    });
    target.copy_(room, /*non_blocking=*/true);
    return;
  }
  draw(rule, given, [&](RandomState& state) {
    write(state, iter.data_ptr(0), iter.numel(), element_type(kernel, iter.dtype(0)));
  });
}

// One operator: its rule, known when its kernel is registered.
template <class Operator>
struct Drawing {
  static constexpr bool reads_memory = true;
  static inline const Rule* rule = nullptr;
};

// One that draws by `fill` alone, which takes tensors of any device.
template <class Operator>
struct Filling : Drawing<Operator> {
  static constexpr bool reads_memory = false;
};

// What the templates call. Their second parameter, a generator's type elsewhere, is the operator here.
template <class Operator>
struct ExponentialKernel {
  void operator()(at::TensorIterator& iter, double lambda, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "exponential", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_exponential(state, out, n, type, lambda, launch());
    });
  }
};

inline bool on_mps(const at::Tensor& tensor) {
  return tensor.is_mps();
}
template <class T>
bool on_mps(const T&) {
  return false;
}
inline bool on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu();
}
template <class T>
bool on_cpu(const T&) {
  return false;
}

// A generator counts for dispatch, so that CPU tensors with an mps generator get here. From torch 2.13 on the templates
// then choose the CPU's kernel by the tensor, and it is the CPU that refuses the generator.
template <class Signature, class Operator>
class Shared;

template <class Operator, class R, class... Args>
class Shared<R(Args...), Operator> final : public c10::OperatorKernel {
 public:
  explicit Shared(const Rule& rule) : on_device_(rule), op_(rule.op.typed<R(Args...)>()) {}

  R operator()(Args... args) {
    if (C10_UNLIKELY(!(on_mps(args) || ...) && (on_cpu(args) || ...))) {
      return op_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), std::forward<Args>(args)...);
    }
    return on_device_(std::forward<Args>(args)...);
  }

 private:
  Unboxed<R(Args...), Operator> on_device_;
  c10::TypedOperatorHandle<R(Args...)> op_;
};

// An operator that mps has to itself.
template <class Op, class Operator>
void add_own(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) {
    Operator::rule = &rule;
    return make_unboxed<Op, Operator>(rule);
  });
}

// An operator that mps shares with the other devices.
template <class Op, class Operator>
void add_shared(KernelTable& table) {
  if constexpr (release::random_operators_shared) {
    table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) {
      using Kernel = Shared<typename Op::schema, Operator>;
      Operator::rule = &rule;
      return c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(rule));
    });
  } else {
    add_own<Op, Operator>(table);
  }
}

// Each file adds its own.
void add_floats(KernelTable& table);       // random_floats.cpp
void add_integers(KernelTable& table);     // random_integers.cpp
void add_samplers(KernelTable& table);     // random_samplers.cpp
void add_multinomial(KernelTable& table);  // random_multinomial.cpp

}  // namespace drawing
}  // namespace anymps
