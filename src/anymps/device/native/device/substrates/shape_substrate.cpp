// The `shape` substrate: tensors have shapes and memory in the books but no values; meta kernels work out the shapes.
//
// Only small tensors whose values follow from known ones keep bytes, because programs branch on them (masks, lengths, a
// gradient scaler's factor). A number read back that is not known is 0 and a truth value False.
#include "device/calls/alias.h"
#include "device/memory/books.h"
#include "device/memory/memory.h"
#include "device/substrates/shape_compute.h"
#include "device/interface/substrate.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/count_nonzero.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <cstring>

namespace anymps {
namespace {

constexpr int64_t kFewElements = int64_t(1) << 17;   // computed for real if known: a batch of token ids, not an activation
constexpr int64_t kClearedBytes = int64_t(1) << 26;  // beyond this a CPU copy of unknown values keeps what memory held

// A buffer keeps the bytes of known values up to this size: room for a batch of token ids and its masks, while a model of
// billions of parameters stays far below what a laptop has.
size_t known_bytes = size_t(1) << 20;

// Addresses of buffers: distinct, aligned, and never mapped, so that a wild read stops the process.
constexpr uintptr_t kShapeBase = uintptr_t(1) << 60;

// What is known of a buffer's values: nothing was written yet, all of it, or not any more.
enum class Values : uint8_t { Blank, Known, Unknown };

// It has memory only while its values are known.
struct ShapeBuffer final : Buffer {
  ShapeBuffer(at::DataPtr&& bytes, Block* block, Values values) : Buffer(std::move(bytes), block), values(values) {}

  std::atomic<Values> values;
};

at::DataPtr new_buffer(at::DataPtr&& bytes, size_t nbytes, Values values) {
  Block* block = books().allocate(nbytes);
  auto* buffer = new ShapeBuffer(std::move(bytes), block, values);
  return mps_pointer(reinterpret_cast<void*>(kShapeBase + HeapModel::block_address(block)), buffer);
}

ShapeBuffer* buffer_behind(const at::Tensor& tensor) {
  return static_cast<ShapeBuffer*>(buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr()));
}

// Whether the values of an mps tensor are known after a write of known values to all or, if `covers` is false, to a part of
// it. Bytes are made ready then.
bool take_values(const at::Tensor& tensor, bool covers) {
  ShapeBuffer* buffer = buffer_behind(tensor);
  const size_t nbytes = tensor.storage().nbytes();
  if (buffer == nullptr || nbytes > known_bytes) {
    return false;
  }
  const Values values = buffer->values.load();
  if (values == Values::Unknown && !(covers && tensor.is_non_overlapping_and_dense() && tensor.nbytes() == nbytes)) {
    return false;
  }
  if (buffer->memory.get() == nullptr) {
    buffer->memory = c10::GetCPUAllocator()->allocate(nbytes);
    std::memset(buffer->memory.get(), 0, nbytes);
  }
  buffer->values.store(Values::Known);
  return true;
}

// Whether the values of a tensor are known. One that is not on mps is known, unless it has no values itself.
bool has_values(const at::Tensor& tensor) {
  if (!tensor.is_mps()) {
    return !tensor.is_meta();
  }
  if (tensor.numel() == 0) {
    return true;
  }
  if (tensor.is_sparse()) {
    return false;
  }
  const ShapeBuffer* buffer = buffer_behind(tensor);
  return buffer != nullptr && (buffer->values.load() == Values::Known || (buffer->values.load() == Values::Blank && take_values(tensor, false)));
}

c10::intrusive_ptr<c10::TensorImpl> bytes_alias(const c10::TensorImpl* tensor) {
  const Buffer* buffer = buffer_of(tensor->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
  return alias_over_bytes(tensor, buffer == nullptr ? nullptr : buffer->memory.get());
}

at::Tensor with_bytes(const at::Tensor& tensor) {
  return tensor.is_mps() ? at::Tensor(bytes_alias(tensor.unsafeGetTensorImpl())) : tensor;
}

// How many elements each mask among the arguments selects, in their order; -1 where its values are unknown.
std::vector<int64_t> count_selected(c10::ArrayRef<c10::IValue> given) {
  std::vector<int64_t> counts;
  const auto look = [&](const at::Tensor& tensor) {
    if (is_mask(tensor)) {
      counts.push_back(has_values(tensor) ? with_bytes(tensor).count_nonzero().item<int64_t>() : -1);
    }
  };
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (size_t i = 1; i < given.size(); ++i) {
    if (given[i].isTensor()) {
      look(given[i].toTensor());
    } else if (given[i].isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : given[i].toOptionalTensorVector()) {
        look(tensor.value_or(at::Tensor()));
      }
    }
  }
  return counts;
}

// Whether a call can be computed: all values that go in are known, and there are few of them.
class Survey final : public ArgumentVisitor {
 public:
  explicit Survey(const Rule& rule) : known_((rule.flags & kRandom) == 0 && rule.generator_argument < 0) {}

  void input(const at::Tensor& tensor) override {
    if (known_ && tensor.defined()) {
      elements_ += tensor.numel();
      known_ = elements_ <= kFewElements && !tensor.is_sparse() && has_values(tensor);
    }
  }

  void output(const at::Tensor& tensor) override {
    if (known_ && tensor.defined() && tensor.numel() > 0) {
      outputs_.push_back(tensor);
    }
  }

  void number(double value) override {
    numbers_ = std::max(numbers_, std::abs(value));
  }

  bool known() {
    // Numbers alone decide the size of what `arange` and its like make.
    if (!known_ || (elements_ == 0 && outputs_.empty() && numbers_ > static_cast<double>(kFewElements))) {
      return false;
    }
    for (const at::Tensor& tensor : outputs_) {
      if (!take_values(tensor, false)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool known_;
  double numbers_ = 0;  // the largest
  int64_t elements_ = 0;
  std::vector<at::Tensor> outputs_;
};

class ShapeSubstrate final : public Substrate {
 public:
  ShapeSubstrate() : Substrate(c10::DeviceType::Meta, c10::DispatchKey::Meta) {}

  at::DataPtr allocate(size_t nbytes) override {
    return new_buffer(at::DataPtr(), nbytes, Values::Blank);
  }

  at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) override {
    if (nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    const bool known = memory.get() != nullptr && nbytes <= known_bytes;
    return new_buffer(known ? std::move(memory) : at::DataPtr(), nbytes, known ? Values::Known : Values::Unknown);
  }

  void before_resize(const at::Tensor& tensor, c10::IntArrayRef size) override;

  bool holds_data() const override {
    return false;
  }

  void keep_values_up_to(size_t bytes) override {
    known_bytes = bytes;
  }

  void* alias_address(const c10::StorageImpl*) const override {
    return nullptr;
  }

  bool has_moved(const c10::StorageImpl*, const c10::StorageImpl*) const override {
    return false;  // shapes have no address
  }

  c10::DispatchKeySet alias_keys(c10::DispatchKeySet mps) const override {
    return backend_keys(mps, c10::BackendComponent::MetaBit);
  }

  c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) override {
    return bytes_alias(tensor);
  }

  at::Tensor alias_of_foreign(const at::Tensor& tensor) override {
    return tensor.dim() > 0 && tensor.is_cpu() ? shape_of(tensor) : tensor;  // meta kernels take CPU scalars only
  }

  bool computes_on_host(const Rule& rule, ArgumentWalk arguments) override {
    Survey seen(rule);
    arguments(seen);
    return seen.known();
  }

  void compute(
      const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue> given, const Computation&,
      bool) override {
    compute_shapes(rule, op, stack, count_selected(given));
  }

  void wrote(const at::Tensor& tensor) override {
    if (ShapeBuffer* buffer = buffer_behind(tensor)) {
      buffer->values.store(Values::Unknown);
      buffer->memory.clear();
    }
  }

  void copy(const at::Tensor& destination, const at::Tensor& source) override;
  c10::Scalar read(const at::Tensor& tensor) override;

  at::Tensor stand_in(const at::Tensor& tensor) override {
    return has_values(tensor) ? at::Tensor() : zeros_like_on_cpu(tensor);
  }

  void check_sparse() const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "anymps: sparse tensors have no shapes to plan with; run this part on the host substrate");
  }
};

// Gives the storage room, so that torch's own `resize_` has no bytes to copy.
void ShapeSubstrate::before_resize(const at::Tensor& tensor, c10::IntArrayRef size) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(size, tensor.itemsize(), tensor.storage_offset());
  if (c10::multiply_integers(size) == 0 || nbytes <= storage->nbytes() || storage->nbytes() == 0 || !storage->resizable()) {
    return;
  }
  storage->set_data_ptr_noswap(storage->allocator()->allocate(nbytes));
  storage->set_nbytes(nbytes);
}

void ShapeSubstrate::copy(const at::Tensor& destination, const at::Tensor& source) {
  const at::Tensor target = shape_of(destination);
  at::_ops::copy_::redispatch(compute_key(), const_cast<at::Tensor&>(target), shape_of(source), false);  // refuses what does not broadcast
  const bool known = has_values(source);
  if (destination.is_mps()) {
    if (known && source.numel() <= kFewElements && take_values(destination, true)) {
      at::Tensor bytes = with_bytes(destination);
      at::native::copy_(bytes, with_bytes(source), false);
    } else {
      wrote(destination);
    }
    return;
  }
  if (known) {
    at::Tensor bytes = destination;
    at::native::copy_(bytes, with_bytes(source), false);
    return;
  }
  if (static_cast<int64_t>(destination.nbytes()) <= kClearedBytes) {
    at::Tensor zeros = destination;
    zeros.zero_();
  }
  assume("copy to cpu");
}

c10::Scalar ShapeSubstrate::read(const at::Tensor& tensor) {
  if (has_values(tensor)) {
    return at::native::_local_scalar_dense_cpu(with_bytes(tensor));
  }
  assume("item");
  const auto type = tensor.scalar_type();
  if (type == c10::ScalarType::Bool) {
    return false;
  }
  return c10::isIntegralType(type, false) ? c10::Scalar(int64_t(0)) : c10::Scalar(0.0);
}

const SubstrateEntry shape_entry("shape", [](int) -> std::unique_ptr<Substrate> { return std::make_unique<ShapeSubstrate>(); });

}  // namespace
}  // namespace anymps
