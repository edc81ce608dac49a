// What all operators that draw random numbers share: the generator's lock, the stream of philox.h, torch's own checks.
//
// From torch 2.13 on most mps distributions are torch's device-independent templates (DistributionTemplates.h) over a
// Metal kernel. The same templates run here, on host aliases, over the same stream; so their checks, their order and
// their texts are those of the installed torch. What has no template follows pytorch's Distributions.mm and Dropout.mm.
#pragma once

#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/redirect/unboxed.h"
#include "model/model.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <anymps/release.h>
#include <c10/util/Exception.h>
#include <c10/util/FunctionRef.h>

namespace anymps {
namespace drawing {  // the short names below belong to these files, also where files are compiled together

namespace templates = at::native::templates;
using MaybeGenerator = std::optional<at::Generator>;

// The release's kernels, over torch's threads.
const Launch& launch();

// Nothing for a complex number and for what Metal has no name for.
std::optional<ElementType> element_of(c10::ScalarType type);
// Throws KernelMissing for an element type that no kernel of this name can have.
ElementType element_type(const char* kernel, c10::ScalarType type);

// A check whose answer the real device raises at the next wait, or reads back and raises at once.
void report(const Rule& rule, const std::string& message);

inline at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

// Calls body(state) with the lock held. Errors are reported after it is released: reporting takes the GIL, whose holder
// may be waiting for this very lock.
void draw(const Rule& rule, const MaybeGenerator& given, c10::function_ref<void(RandomState&)> body);

// Calls write(state, pointer, count, type) for the whole target of `iter`, unless a GPU has drawn what `on_gpu` says. As the
// Metal host code does, a target without gaps is filled in the order of its memory, whatever its strides (channels_last, a
// transposed tensor), any other one row by row through a temporary.
using Write = c10::function_ref<void(RandomState&, void*, int64_t, ElementType)>;
void fill(
    const Rule& rule,
    at::TensorIteratorBase& iter,
    const MaybeGenerator& given,
    const char* kernel,
    Write write,
    const GpuDraw* on_gpu = nullptr);

// The same by a function of philox.h, with its numbers.
template <class Operator, class Kernel, class... Numbers>
void fill_by(at::TensorIteratorBase& iter, const MaybeGenerator& given, const char* kernel, Kernel* write, Numbers... numbers) {
  fill(*Operator::rule, iter, given, kernel, [&](RandomState& state, void* out, int64_t n, ElementType type) {
    write(state, out, n, type, numbers..., launch());
  });
}

// One operator: its rule, known when its kernel is registered.
template <class Operator>
struct Drawing : HostKernel {
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
    fill_by<Operator>(iter, given, "exponential", &fill_exponential, lambda);
  }
};

// Enters an operator that mps has to itself, or shares with the other devices: a generator counts for dispatch, so that CPU
// tensors with an mps generator get here. From torch 2.13 on the templates then choose the CPU's kernel by the tensor, and it is
// the CPU that refuses the generator.
template <class Op, class Operator, bool shares = false>
void add_own(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) {
    Operator::rule = &rule;
    return Unboxed<typename Op::schema, Operator, shares>::make(rule);
  });
}
template <class Op, class Operator>
void add_shared(KernelTable& table) {
  add_own<Op, Operator, release::random_operators_shared>(table);
}

// Each file adds its own.
void add_fills(KernelTable& table);     // random_fills.cpp
void add_samplers(KernelTable& table);  // random_samplers.cpp

}  // namespace drawing
}  // namespace anymps
