// The `cuda` substrate: mps storages own memory of an NVIDIA card, and CUDA's kernels compute on it.
//
// Nothing of CUDA is included or linked: torch registers its allocator, its kernels and its guard under the device's name, and
// what has none there is not needed. A call goes to the card unless that lacks a kernel, would stop at bad values, or refuses
// the arguments; then the CPU computes it on copies (away.h), and what it refuses too is refused in its words. The order of
// the card's one stream keeps copies and kernels apart. Only who reads a value waits.
#include "device/calls/alias.h"
#include "device/substrates/away.h"
#include "device/memory/books.h"
#include "device/memory/memory.h"
#include "device/substrates/substrate.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace anymps {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr int64_t kSentBytes = int64_t(1) << 22;  // copies to the card up to this size go by a room of ours, and nobody waits

// Where a card's kernels stop the card for a value, or follow one out of their tensor, and no index is guarded
// (kernels/checks/guarded_indices.h). Names without their overload.
const std::unordered_set<std::string>& never_on_card() {
  static const std::unordered_set<std::string> names{
      "aten::take",
      "aten::put_",
      "aten::put",
      "aten::masked_scatter",
      "aten::masked_scatter_",
      "aten::repeat_interleave",
      "aten::multi_margin_loss",
      "aten::multi_margin_loss_backward",
      "aten::multilabel_margin_loss_forward",
      "aten::multilabel_margin_loss_backward",
      "aten::_ctc_loss",
      "aten::_ctc_loss_backward",
      "aten::embedding_renorm_",
      "aten::bincount",
      "aten::segment_reduce",
      "aten::_segment_reduce_backward",
      "aten::fractional_max_pool2d",
      "aten::fractional_max_pool3d",
      "aten::binary_cross_entropy",
      "aten::lu_unpack",
      "aten::linalg_lu_solve",
      "aten::max_pool2d_with_indices_backward",
      "aten::max_pool3d_with_indices_backward",
      "aten::_embedding_bag_backward",
      "aten::_embedding_bag_dense_backward",
      "aten::_embedding_bag_per_sample_weights_backward",
      "aten::_sparse_coo_tensor_with_dims_and_tensors",
      "aten::sparse_mask",
      "aten::_sparse_mask_projection",
  };
  return names;
}

[[noreturn]] void refuse_full_card(const c10::Error& error, c10::Device card) {
  const std::string said = error.what_without_backtrace();
  const std::string first = said.substr(0, said.find(". GPU"));
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::OutOfMemoryError(
      here,
      "anymps: the NVIDIA card is full (" + card.str() + " of this machine), not the Mac, whose limit comes later: take a smaller batch or another "
      "Mac (--mac), or end what else runs on the card. " + first.substr(0, first.find('\n')));
}

// Calls that the Mac and the CPU refuse, and a card computes: a cast on the way.
bool takes_what_cpu_refuses(const Rule& rule, const torch::jit::Stack& stack) {
  return rule.name == "aten::_log_softmax" && stack.back().isBool() && stack.back().toBool();
}

// Without a word in the environment cuBLAS may choose otherwise from run to run, and torch refuses every product. With it torch
// reads that word again at each product, which costs more than a small one: so it is said when it is asked for.
void make_products_deterministic() {
#if !defined(_WIN32)
  static const bool once = [] {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
    return true;
  }();
  (void)once;
#endif
}

class CudaSubstrate final : public Substrate {
 public:
  CudaSubstrate(c10::Device card, bool always_away)
      : Substrate(card, card.is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU), card_(card), always_away_(always_away) {
    if (card.is_cuda()) {
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
      enter();
    }
    memory_ = c10::GetAllocator(card.type());
  }

  at::DataPtr allocate(size_t nbytes) override {
    Block* block = books().allocate(nbytes);
    at::DataPtr bytes;
    try {
      bytes = take(nbytes);
    } catch (...) {
      books().release(block);
      throw;
    }
    void* data = bytes.get();
    return mps_pointer(data, new Buffer(std::move(bytes), block));
  }

  at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) override {
    if (memory.get() == nullptr || nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    if (memory.device().type() == card_.type()) {
      void* data = memory.get();
      Block* block = books().allocate(nbytes);
      return mps_pointer(data, new Buffer(std::move(memory), block));
    }
    at::DataPtr fresh = allocate(nbytes);
    at::Tensor target = bytes_at(fresh.get(), nbytes);
    send(target, at::from_blob(memory.get(), {static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(c10::kByte)));
    return fresh;
  }

  // Where a storage has to grow, with room for its bytes on the card.
  void before_resize(const at::Tensor& tensor, c10::IntArrayRef size) override {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    const size_t had = storage->nbytes();
    const size_t nbytes = at::detail::computeStorageNbytesContiguous(size, tensor.itemsize(), tensor.storage_offset());
    if (c10::multiply_integers(size) == 0 || nbytes <= had || had == 0 || !storage->resizable()) {
      return;
    }
    at::DataPtr grown = storage->allocator()->allocate(nbytes);
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    bytes_at(grown.get(), had).copy_(bytes_at(storage->data_ptr().get(), had));
    storage->set_data_ptr_noswap(std::move(grown));
    storage->set_nbytes(nbytes);
  }

  bool holds_data() const override {
    return true;
  }

  at::DataPtr allocate_pinned(size_t nbytes) override {
    Block* block = books().allocate(nbytes);
    at::DataPtr bytes;
    try {
      bytes = card_.is_cuda() ? at::getHostAllocator(c10::DeviceType::CUDA)->allocate(nbytes) : c10::GetCPUAllocator()->allocate(nbytes);
    } catch (...) {
      books().release(block);
      throw;
    }
    void* data = bytes.get();
    return mps_pointer(data, new Buffer(std::move(bytes), block));
  }

  void* alias_address(const c10::StorageImpl* storage) const override {
    return storage->data_ptr().get();
  }
  bool has_moved(const c10::StorageImpl* alias, const c10::StorageImpl* storage) const override {
    return alias->data_ptr().get() != storage->data_ptr().get();
  }
  DispatchKeySet alias_keys(DispatchKeySet mps) const override {
    return card_.is_cuda() ? backend_keys(mps, c10::BackendComponent::CUDABit) : host_keys(mps);
  }

  c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) override {
    return at::Tensor(alias(tensor)).cpu().getIntrusivePtr();
  }

  // Kernels of the card take a single value of the CPU.
  at::Tensor alias_of_foreign(const at::Tensor& tensor) override {
    return tensor.dim() > 0 && tensor.is_cpu() && card_.is_cuda() ? tensor.to(tensor.options().device(card_)) : tensor;
  }

  bool computes_on_host(const Rule&, ArgumentWalk) override {
    enter();
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms())) {
      make_products_deterministic();
    }
    return false;
  }
  bool computes_at_once() const override {
    return false;
  }
  bool computes_plainly(const Rule& rule) const override {
    return !always_away_ && rule.indices == nullptr && rule.name != "aten::_log_softmax" && rule.name.rfind("aten::nll_loss", 0) != 0 &&
        rule.name.rfind("aten::embedding_dense_backward", 0) != 0 && goes_to_card(rule, rule.op, false);
  }

  void compute(
      const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue>, const Computation& how,
      bool sparse) override {
    const size_t first = stack->size() - op.schema().arguments().size();
    const Computation::Needs needs = how.needs();
    if (always_away_ || takes_what_cpu_refuses(rule, *stack) || needs == Computation::Needs::CpuMemory || (needs == Computation::Needs::Kernels && !on_card(rule, op, sparse))) {
      go_away(rule, op, stack, first, how);
      return;
    }
    const torch::jit::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    const DispatchKey key = card_.is_cuda() ? (sparse ? DispatchKey::SparseCUDA : DispatchKey::CUDA)
                                            : (sparse ? DispatchKey::SparseCPU : DispatchKey::CPU);
    try {
      how.by_kernels(DispatchKeySet(key), stack, first);
      return;
    } catch (const c10::OutOfMemoryError& error) {
      refuse_full_card(error, card_);
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::Error&) {
      // The CPU has the kernel, or the words.
    }
    stack->resize(first);
    stack->insert(stack->end(), given.begin(), given.end());
    go_away(rule, op, stack, first, how);
  }

  std::map<std::string, int64_t> computed_away() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return away_;
  }

  void wrote(const at::Tensor&) override {}

  void copy(const at::Tensor& destination, const at::Tensor& source) override {
    enter();
    at::Tensor target = on_this_side(destination);
    const at::Tensor from = on_this_side(source);
    if (card_.is_cuda() && target.is_cuda() && from.is_cpu()) {
      send(target, from);
    } else {
      at::native::copy_(target, from, /*non_blocking=*/false);
    }
  }

  c10::Scalar read(const at::Tensor& tensor) override {
    enter();
    return at::_ops::_local_scalar_dense::redispatch(compute_key(), on_this_side(tensor));
  }

  at::Tensor stand_in(const at::Tensor&) override {
    return {};
  }
  void check_sparse() const override {}

  at::Tensor sending_room(c10::IntArrayRef sizes, c10::ScalarType type) override {
    if (!card_.is_cuda()) {
      return Substrate::sending_room(sizes, type);
    }
    return at::Tensor(at::detail::empty_generic(
        sizes, at::getHostAllocator(c10::DeviceType::CUDA), DispatchKeySet(DispatchKey::CPU), type, std::nullopt));
  }

 private:
  void go_away(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first, const Computation& how) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++away_[rule.name];
    }
    compute_away(rule, op, stack, first, how, card_);
  }

  // The thread's current card, which torch's allocator looks at.
  void enter() const {
    thread_local bool entered = false;
    if (C10_UNLIKELY(!entered) && card_.is_cuda()) {
      c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->setDevice(card_);
      entered = true;
    }
  }

  at::DataPtr take(size_t nbytes) const {
    enter();
    try {
      return memory_->allocate(nbytes);
    } catch (const c10::OutOfMemoryError& error) {
      refuse_full_card(error, card_);
    }
  }

  at::Tensor bytes_at(void* address, size_t nbytes) const {
    return at::for_blob(address, {static_cast<int64_t>(nbytes)})
        .options(at::TensorOptions().dtype(c10::kByte).device(card_))
        .target_device(card_)
        .make_tensor();
  }

  at::Tensor on_this_side(const at::Tensor& tensor) const {
    return tensor.is_mps() ? at::Tensor(alias(tensor.unsafeGetTensorImpl())) : tensor;
  }

  // From the CPU to the card. A small copy waits for nothing: its bytes go by a room that lives until they have gone.
  void send(at::Tensor& target, const at::Tensor& source) {
    if (card_.is_cuda() && source.numel() > 0 && static_cast<int64_t>(source.nbytes()) <= kSentBytes && !source.is_sparse()) {
      at::Tensor room = sending_room(source.sizes(), source.scalar_type());
      at::native::copy_(room, source, false);
      at::native::copy_(target, room, /*non_blocking=*/true);
    } else {
      at::native::copy_(target, source, /*non_blocking=*/false);
    }
  }

  bool goes_to_card(const Rule& rule, const c10::OperatorHandle& op, bool sparse) const {
    if ((rule.flags & kRandom) != 0 || rule.generator_argument >= 0) {
      return false;  // the Mac's stream, or one that stands for it
    }
    if (never_on_card().count(rule.name.substr(0, rule.name.find('.'))) != 0 || never_on_card().count(rule.name) != 0) {
      return false;
    }
    if (!card_.is_cuda()) {
      return true;
    }
    for (const DispatchKey key :
         {sparse ? DispatchKey::SparseCUDA : DispatchKey::CUDA,
          DispatchKey::CompositeExplicitAutogradNonFunctional,
          DispatchKey::CompositeExplicitAutograd,
          DispatchKey::CompositeImplicitAutograd}) {
      if (op.hasKernelForDispatchKey(key)) {
        return true;
      }
    }
    return false;
  }

  bool on_card(const Rule& rule, const c10::OperatorHandle& op, bool sparse) {
    const uint64_t place = uint64_t{rule.id} * 2 + (sparse ? 1 : 0);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = on_card_.find(place);
    if (known != on_card_.end()) {
      return known->second;
    }
    return on_card_[place] = goes_to_card(rule, op, sparse);
  }

  const c10::Device card_;
  const bool always_away_;
  c10::Allocator* memory_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, bool> on_card_;  // by rule and kind of kernel
  std::map<std::string, int64_t> away_;
};

const SubstrateEntry cuda_entry("cuda", [](int card) -> std::unique_ptr<Substrate> {
  const c10::Device where = card < 0 ? c10::Device(c10::DeviceType::CPU)
                                     : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(card));
  return std::make_unique<CudaSubstrate>(where, card == -2);
});

}  // namespace
}  // namespace anymps
