// Allocation, views, storages, copies and reads: the operators that are about memory rather than arithmetic.
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/redirect/unboxed.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_copy_from_and_resize_ops.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/record_stream_ops.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/set_ops.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unfold_ops.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_ops.h>
#include <anymps/release.h>

namespace anymps {
namespace {

void check_not_pinned(std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

template <class Op>
const Rule& rule_of() {
  static const Rule* rule = find_rule(full_name<Op>());
  return *rule;
}

// Allocations write no entry, but their buffers have a line.
template <class Op>
void note_bare(const at::Tensor& result) {
  if (C10_UNLIKELY(recording())) {
    tape::note_empty(rule_of<Op>(), result.unsafeGetTensorImpl());
  }
}

// The checks come in the order of the real backend's empty_mps (torch 2.13, EmptyTensor.cpp).
at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device>,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> memory_format) {
  if (layout.value_or(c10::Layout::Strided) != c10::Layout::Strided) {
    refuse(Refusal::Layout, allocation_rule(), ErrorClass::NotImplemented, "only strided tensors are supported on MPS");
  }
  check_not_pinned(pin_memory);
  check_rank(size.size());
  at::detail::check_size_nonnegative(size);
  const c10::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  check_allocatable(type);
  at::Tensor result(at::detail::empty_generic(
      size, mps_allocator(), c10::DispatchKeySet(c10::DispatchKey::MPS), type, memory_format));
  note_bare<at::_ops::empty_memory_format>(result);
  return result;
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device>,
    std::optional<bool> pin_memory) {
  check_not_pinned(pin_memory);
  const c10::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  if (type == c10::ScalarType::Double) {  // complex128 is not checked here on the real backend either
    check_allocatable(type);
  }
  at::Tensor result(at::detail::empty_strided_generic(
      size, stride, mps_allocator(), c10::DispatchKeySet(c10::DispatchKey::MPS), type));
  note_bare<at::_ops::empty_strided>(result);
  return result;
}

bool plain_device(const at::Tensor& tensor) {
  return tensor.is_mps() || tensor.is_cpu();
}

bool castable(c10::ScalarType dtype) {
  return ((texts().castable >> static_cast<int>(dtype)) & 1) != 0;
}

[[noreturn]] void refuse_cast(c10::ScalarType dtype, const at::Tensor& culprit) {
  const Limit& said = texts().refused_cast;
  const Refusal kind = dtype == c10::ScalarType::Double ? Refusal::Float64
      : dtype == c10::ScalarType::ComplexDouble         ? Refusal::Complex128
                                                        : Refusal::Dtype;
  refuse(kind, rule_of<at::_ops::copy_>(), static_cast<ErrorClass>(said.error), fill_in(said.text, c10::toString(dtype)), culprit);
}

// The bytes are copied as they lie (Copy.mm, torch 2.13: a blit). Else a kernel moves them, which has to know the dtype.
bool copies_as_it_lies(const at::Tensor& self, const at::Tensor& source) {
  return self.strides().equals(source.strides()) && source.is_non_overlapping_and_dense() && self.is_conj() == source.is_conj() &&
      self.is_neg() == source.is_neg();
}

// Casts happen on the GPU, in a kernel or a graph that knows both dtypes (anymps/rules/_casts.py). Towards the CPU that is,
// up to torch 2.13, a cast into a temporary of the target's dtype, which float64 cannot have (nor complex128, from 2.12 on).
// 2.13 and 2.14 look at no other target of that copy (pytorch issue 197715): a Mac says nothing and writes nothing, here the
// values arrive.
void check_cast(const at::Tensor& self, const at::Tensor& source) {
  const c10::ScalarType to = self.scalar_type(), from = source.scalar_type();
  if (C10_LIKELY(castable(to) && castable(from))) {
    return;
  }
  const bool to_cpu = !self.is_mps();
  if (to == from) {
    if (release::metal_casts && !copies_as_it_lies(self, source)) {
      refuse_cast(from, source);
    }
    return;
  }
  if (to_cpu && release::cpu_copy_to_float64 == release::CpuCopyToFloat64::Refused) {
    check_allocatable(to);
  }
  const bool target_unseen = to_cpu && release::cpu_copy_target_unseen;
  if (!castable(to) && !target_unseen) {
    refuse_cast(to, source);
  }
  if (!castable(from)) {
    refuse_cast(from, source);
  }
}

// CPU to mps, mps to CPU, mps to mps. Broadcasting, dtype conversion, conj and neg bits are the substrate's copy's.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(source.defined(), "src is undefined");
  if (self.is_same(source)) {
    return self;
  }
  if (source.is_meta() || self.is_meta() || !plain_device(self) || !plain_device(source)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !source.is_meta(), "Cannot copy out of meta tensor; no data!");
    if (self.is_meta()) {
      return self;
    }
    TORCH_CHECK(false, "MPS copies are between mps and cpu only, got ", source.device(), " to ", self.device());
  }
  if (self.numel() == 0 || source.numel() == 0) {  // nothing moves; the shapes are checked all the same (torch 2.13, Copy.cpp)
    const auto shape = at::infer_size(self.sizes(), source.sizes());
    TORCH_CHECK(
        self.sizes().equals(shape), "output with shape ", self.sizes(), " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
    return self;
  }
  const Direction direction = !source.is_mps() ? Direction::CpuToMps : (!self.is_mps() ? Direction::MpsToCpu : Direction::MpsToMps);
  if (direction != Direction::CpuToMps) {
    check_cast(self, source);
  }
  enter_device();
  const Rule& rule = rule_of<at::_ops::copy_>();
  if (direction != Direction::CpuToMps && rule.hazards != nullptr) {
    check_hazards(rule, self, source);
  }
  Span span(rule);
  span.fate(Fate::Copy);
  span.input(source.unsafeGetTensorImpl());
  span.input(self.unsafeGetTensorImpl());
  bool early = false;
  if (direction != Direction::MpsToMps) {
    early = non_blocking && nonblocking::returns_early(self, source);
    if (!early) {
      span.wait(direction == Direction::CpuToMps ? Wait::CopyToMps : Wait::CopyToCpu);
    }
    span.moved(direction, static_cast<int64_t>(self.nbytes()), early);
  } else {
    span.moved(direction, static_cast<int64_t>(self.nbytes()), false);
  }
  {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    substrate().copy(self, source);
  }
  const std::array<const c10::TensorImpl*, 2> inputs{source.unsafeGetTensorImpl(), self.unsafeGetTensorImpl()};
  span.end(inputs, {});
  const bool holds_data = substrate().holds_data();
  if (C10_UNLIKELY(recording()) && direction != Direction::MpsToMps && holds_data) {
    if (direction == Direction::MpsToCpu) {
      roundtrip::left(self);
    } else {
      roundtrip::returned(source);
    }
  }
  if (C10_UNLIKELY(recording()) && direction == Direction::CpuToMps) {
    note_copy_to_mps(source);
  }
  if (span.waits()) {
    host_has_waited();
  } else if (!holds_data || observed()) {
    // no bytes that anybody could touch too early, or the observer tells of it
  } else if (early && direction == Direction::CpuToMps) {
    nonblocking::started_to_mps(source, source.scalar_type() != self.scalar_type());
  } else if (early) {
    nonblocking::started_to_cpu(self);
  }
  return self;
}

// Without the check of shapes: an empty destination takes the source's (torch 2.13, Copy.mm).
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  if (self.numel() == 0) {
    return destination;
  }
  if (destination.numel() == 0) {
    destination.resize_(self.sizes());
  }
  at::Tensor target = destination;
  copy(target, self, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (!self.sizes().equals(destination.sizes())) {
    destination.resize_(self.sizes());
  }
  return copy_from(self, destination, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  // Text of torch 2.13, aten/src/ATen/native/mps/operations/Scalar.mm
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  enter_device();
  Span span(rule_of<at::_ops::_local_scalar_dense>());
  span.wait(Wait::Item);
  span.input(self.unsafeGetTensorImpl());
  span.moved(Direction::MpsToCpu, static_cast<int64_t>(self.element_size()), false);
  c10::Scalar value = [&] {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    return substrate().read(self);
  }();
  const std::array<const c10::TensorImpl*, 1> inputs{self.unsafeGetTensorImpl()};
  span.end(inputs, {});
  host_has_waited();
  return value;
}

template <class T>
decltype(auto) in_ints(T&& value) {
  using Plain = std::decay_t<T>;
  if constexpr (std::is_same_v<Plain, c10::SymIntArrayRef>) {
    return C10_AS_INTARRAYREF_SLOW(value);
  } else if constexpr (std::is_same_v<Plain, c10::SymInt>) {
    return value.guard_int(__FILE__, __LINE__);
  } else if constexpr (std::is_same_v<Plain, std::optional<c10::SymInt>>) {
    return value.has_value() ? std::make_optional(value->guard_int(__FILE__, __LINE__)) : std::optional<int64_t>();
  } else {
    return std::forward<T>(value);
  }
}

// A kernel of the operator's own signature, which calls with boxes need: they have sizes as SymInt where an extension on the
// stable ABI calls without autograd.
template <auto* function, class Signature>
struct Plain;
template <auto* function, class R, class... Args>
struct Plain<function, R(Args...)> {
  static R call(Args... args) {
    return function(in_ints(std::forward<Args>(args))...);
  }
};

template <class Op, auto* function>
void add_plain(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), [](const Rule&) {
    return c10::KernelFunction::makeFromUnboxedRuntimeFunction(&Plain<function, typename Op::schema>::call);
  });
}

// PyTorch's own functions below only look at sizes, strides and the storage's allocator, never at the device's data.
const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  substrate().before_resize(self, size);
  return at::native::resize_(self, size, format);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  if (offset >= 0 && stride.size() == size.size() && c10::multiply_integers(size) > 0) {
    substrate().before_set(
        source.unsafeGetStorageImpl(), at::detail::computeStorageNbytes(size, stride, self.itemsize(), static_cast<size_t>(offset)));
  }
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}
at::Tensor& set_empty(at::Tensor& self) {
  // Not torch's set_cpu_, which takes an empty storage of the CPU.
  return at::native::set_storage_cpu_(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, mps_allocator(), true), 0, {0}, {});
}
// A Mac holds the block back until the other stream is through with it; here every stream is.
void record_stream(at::Tensor&, c10::Stream stream) {
  streams::by_id(stream.id());
}

}  // namespace

void add_memory_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  add_plain<ops::empty_memory_format, &empty>(table);
  add_plain<ops::empty_strided, &empty_strided>(table);
  add_plain<ops::copy_, &copy>(table);
  add_plain<ops::_copy_from, &copy_from>(table);
  add_plain<ops::_copy_from_and_resize, &copy_from_and_resize>(table);
  add_plain<ops::_local_scalar_dense, &local_scalar_dense>(table);
  add_plain<ops::resize_, &resize>(table);
  add_plain<ops::set__source_Storage_storage_offset, &set_storage>(table);
  add_plain<ops::set__source_Storage, &at::native::set_>(table);
  add_plain<ops::set__source_Tensor, &at::native::set_tensor_>(table);
  add_plain<ops::set_, &set_empty>(table);
  add_plain<ops::view, &at::native::view>(table);
  add_plain<ops::as_strided, &at::native::as_strided_tensorimpl>(table);
  add_plain<ops::_reshape_alias, &at::native::_reshape_alias>(table);
  add_plain<ops::unfold, &at::native::unfold>(table);
  add_plain<ops::record_stream, &record_stream>(table);
}

}  // namespace anymps
