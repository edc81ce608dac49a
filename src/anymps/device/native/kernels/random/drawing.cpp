// Splitting the work over threads, element types, checks that are told late; and the table of all that draws.
#include "kernels/random/drawing.h"

#include <ATen/ops/from_blob.h>

#include <mutex>

namespace anymps {
namespace drawing {
namespace {

constexpr int64_t kGrain = 4096;  // blocks a thread takes at least
constexpr int64_t kDrawnOnGpu = 4096;  // fewer numbers are sooner drawn here and sent than a GPU's kernel is launched

// Splits the work over torch's threads. at::parallel_for is inline and would be compiled here, serial without OpenMP;
// TensorIterator's loop over imagined bytes reaches the one inside torch, with its pool and its number of threads.
void parallel_for(int64_t count, const ParallelBody& body) {
  if (count <= kGrain) {
    body(0, count);
    return;
  }
  char origin = 0;  // never read or written: only distances from it count
  const at::Tensor bytes = at::from_blob(&origin, {count}, at::TensorOptions().dtype(c10::kByte).device(c10::kCPU));
  auto iter = at::TensorIterator::borrowing_nullary_op(bytes);
  iter.for_each(
      [&](char** data, const int64_t*, int64_t n, int64_t) {  // one dimension: the outer size is 1
        const int64_t begin = data[0] - &origin;
        body(begin, begin + n);
      },
      kGrain);
}

}  // namespace

const Launch& launch() {
  static const Launch the_launch{&parallel_for, release::philox_kernels};
  return the_launch;
}

std::optional<ElementType> element_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return ElementType::f32;
    case c10::ScalarType::Half: return ElementType::f16;
    case c10::ScalarType::BFloat16: return ElementType::bf16;
    case c10::ScalarType::Byte: return ElementType::u8;
    case c10::ScalarType::Char: return ElementType::i8;
    case c10::ScalarType::Short: return ElementType::i16;
    case c10::ScalarType::Int: return ElementType::i32;
    case c10::ScalarType::Long: return ElementType::i64;
    case c10::ScalarType::UInt16: return ElementType::u16;
    case c10::ScalarType::UInt32: return ElementType::u32;
    case c10::ScalarType::UInt64: return ElementType::u64;
    case c10::ScalarType::Bool: return ElementType::boolean;
    default: return std::nullopt;
  }
}

ElementType element_type(const char* kernel, c10::ScalarType type) {
  if (const std::optional<ElementType> element = element_of(type)) {
    return *element;
  }
  const bool complex = type == c10::ScalarType::ComplexFloat || type == c10::ScalarType::ComplexHalf;
  throw KernelMissing(
      complex ? std::string("Failed to create function state object for: ") + kernel +
              (type == c10::ScalarType::ComplexFloat ? "_float2" : "_half2")
              : std::string("Undefined type ") + c10::toString(type));  // OperationUtils.mm, scalarToMetalTypeString
}

void report(const Rule& rule, const std::string& message) {
  if constexpr (release::late_random_checks) {
    delayed::note(Refusal::Index, rule, message);
  } else {
    refuse(Refusal::Argument, rule, ErrorClass::Runtime, message);
  }
}

void draw(const Rule& rule, const MaybeGenerator& given, c10::function_ref<void(RandomState&)> body) {
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

void fill(
    const Rule& rule,
    at::TensorIteratorBase& iter,
    const MaybeGenerator& given,
    const char* kernel,
    Write write,
    const GpuDraw* on_gpu) {
  if (iter.numel() == 0) {
    return;
  }
  if (!iter.is_contiguous()) {
    const at::Tensor target = iter.tensor(0);
    const at::Tensor rows = at::empty(target.sizes(), target.options());
    auto rows_iter = at::TensorIterator::borrowing_nullary_op(rows);
    fill(rule, rows_iter, given, kernel, write, on_gpu);
    target.copy_(rows);
    return;
  }
  if (C10_UNLIKELY(!iter.tensor(0).is_cpu())) {
    const at::Tensor target = at::Tensor(iter.tensor(0)).as_strided({iter.numel()}, {1});
    bool drawn = false;
    if (on_gpu != nullptr && iter.numel() >= kDrawnOnGpu) {
      draw(rule, given, [&](RandomState& state) {
        drawn = draw_on_gpu(*on_gpu, state, target, element_type(kernel, iter.dtype(0)), launch().release);
      });
    }
    if (drawn) {
      return;
    }
    const at::Tensor staging = substrate().staging_buffer({iter.numel()}, iter.dtype(0));
    draw(rule, given, [&](RandomState& state) {
      write(state, staging.mutable_data_ptr(), iter.numel(), element_type(kernel, iter.dtype(0)));
    });
    target.copy_(staging, /*non_blocking=*/true);
    return;
  }
  draw(rule, given, [&](RandomState& state) {
    write(state, iter.data_ptr(0), iter.numel(), element_type(kernel, iter.dtype(0)));
  });
}

}  // namespace drawing

void add_random_kernels(KernelTable& table) {
  drawing::add_fills(table);
  drawing::add_samplers(table);
}

}  // namespace anymps
