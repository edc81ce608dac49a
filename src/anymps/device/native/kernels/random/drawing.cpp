// Splitting the work over threads, element types, checks that are told late; and the table of all that draws.
#include "kernels/random/drawing.h"

#include <ATen/ops/from_blob.h>

namespace anymps {
namespace drawing {
namespace {

constexpr int64_t kGrain = 4096;  // blocks a thread takes at least

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

ElementType element_type(const char* kernel, c10::ScalarType type) {
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
    default: break;
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

}  // namespace drawing

void add_random_kernels(KernelTable& table) {
  drawing::add_floats(table);
  drawing::add_integers(table);
  drawing::add_samplers(table);
  drawing::add_multinomial(table);
}

}  // namespace anymps
