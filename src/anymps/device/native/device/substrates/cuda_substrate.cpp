// The `cuda` substrate: mps storages own memory of an NVIDIA card, and CUDA's kernels compute on it.
//
// Nothing of CUDA is included or linked: torch registers its allocator, its kernels and its guard under the device's name, and
// what has none there is not needed. A call goes to the card unless that lacks a kernel, would stop at bad values, or refuses
// the arguments; then the CPU computes it on copies (host_fallback.h), and what it refuses too is refused in its words. The order of
// the card's one stream keeps copies and kernels apart. Only who reads a value waits.
#include "device/calls/alias.h"
#include "device/errors/refusals.h"
#include "device/substrates/host_fallback.h"
#include "device/substrates/card_limits.h"
#include "device/memory/books.h"
#include "device/memory/memory.h"
#include "device/interface/substrate.h"
#include "locks/locks.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace anymps {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr int64_t kSentBytes = int64_t(1) << 22;  // copies to the card up to this size go by a room of ours, and nobody waits

[[noreturn]] void refuse_full_card(const c10::Error& error, c10::Device card) {
  const std::string said = error.what_without_backtrace();
  const std::string first = said.substr(0, said.find(". GPU"));
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::OutOfMemoryError(
      here,
      "anymps: the NVIDIA card is full (" + card.str() + " of this machine), not the Mac, whose limit comes later: take a smaller batch or another "
      "Mac (--mac), or end what else runs on the card. " + first.substr(0, first.find('\n')));
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

bool has_outs(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return !arguments.empty() && arguments.back().is_out();
}

// How tensors that were given for results lay in memory, for a kernel that has laid them out anew before it raised: the CPU's
// kernel is to find them as they were.
class Outs {
 public:
  Outs(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> given) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = arguments.size(); i-- > 0 && arguments[i].is_out();) {
      if (given[i].isTensor() && given[i].toTensor().defined() && !given[i].toTensor().is_sparse()) {
        const at::Tensor& tensor = given[i].toTensor();
        outs_.push_back({tensor, tensor.sizes().vec(), tensor.strides().vec()});
      }
    }
  }
  void restore() const {
    for (const auto& [tensor, sizes, strides] : outs_) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    }
  }

 private:
  struct Out {
    at::Tensor tensor;
    std::vector<int64_t> sizes, strides;
  };
  std::vector<Out> outs_;
};

// While it lives, a warning of this thread is told the first time only.
class WarnOnce final : public c10::WarningHandler {
 public:
  WarnOnce() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~WarnOnce() override {
    c10::WarningUtils::set_warning_handler(before_);
  }
  void process(const c10::Warning& warning) override {
    if (std::find(told_.begin(), told_.end(), warning.msg()) == told_.end()) {
      told_.push_back(warning.msg());
      before_->process(warning);
    }
  }

 private:
  c10::WarningHandler* const before_;
  std::vector<std::string> told_;
};

class CudaSubstrate final : public Substrate {
 public:
  CudaSubstrate(c10::Device card, bool always_falls_back)
      : Substrate(card, card.is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU), card_(card),
        guard_(card.is_cuda() ? c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA) : nullptr), always_falls_back_(always_falls_back) {
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
    if (c10::multiply_integers(size) > 0) {
      grow(storage, at::detail::computeStorageNbytesContiguous(size, tensor.itemsize(), tensor.storage_offset()));
    }
  }
  void before_set(c10::StorageImpl* storage, size_t nbytes) override {
    grow(storage, nbytes);
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
  bool computes_plainly(const Rule& rule, bool looked_at) const override {
    return !always_falls_back_ && (looked_at || (!is_looked_at(rule) && card_limit(rule.name) == nullptr)) && !has_outs(rule.op) &&
        goes_to_card(rule, rule.op, false);
  }

  bool computes_at_will(const Rule& rule) const override {
    return !always_falls_back_ && !is_looked_at(rule) && card_limit(rule.name) == nullptr && !has_outs(rule.op) && !is_random(rule);
  }

  void compute(
      const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue>, const Computation& how,
      bool sparse) override {
    const size_t first = stack->size() - op.schema().arguments().size();
    const torch::jit::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    const Way way = way_of(rule, op, sparse);
    const bool refused = way.limit != nullptr && way.limit->refused != nullptr && way.limit->refused(given);
    const Computation::Needs needs = how.needs();
    if (always_falls_back_ || refused || needs == Computation::Needs::CpuMemory || (needs == Computation::Needs::Kernels && !way.on_card)) {
      fall_back_to_host(rule, op, stack, first, how);
      return;
    }
    const DispatchKey key = card_.is_cuda() ? (sparse ? DispatchKey::SparseCUDA : DispatchKey::CUDA)
                                            : (sparse ? DispatchKey::SparseCPU : DispatchKey::CPU);
    const Outs outs(op, given);
    const uint64_t refusals = refusals_of_this_thread();
    WarnOnce warnings;  // what the card's kernel has warned of is not said again by the CPU's
    try {
      if (way.limit != nullptr && way.limit->before != nullptr) {
        way.limit->before(*stack, first);
      }
      {
        how.by_kernels(DispatchKeySet(key), stack, first);
      }
      if (way.limit != nullptr && way.limit->after != nullptr) {
        way.limit->after(given, *stack, first);
      }
      return;
    } catch (const c10::OutOfMemoryError& error) {
      refuse_full_card(error, card_);
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::Error&) {
      if (refusals_of_this_thread() != refusals) {
        throw;  // the Mac's own, said and noted
      }
      // The CPU has the kernel, or the words.
    }
    outs.restore();
    stack->resize(first);
    stack->insert(stack->end(), given.begin(), given.end());
    fall_back_to_host(rule, op, stack, first, how);
  }

  std::map<std::string, int64_t> host_fallbacks() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return host_fallbacks_;
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

  at::Tensor staging_buffer(c10::IntArrayRef sizes, c10::ScalarType type) override {
    if (!card_.is_cuda()) {
      return Substrate::staging_buffer(sizes, type);
    }
    return at::Tensor(at::detail::empty_generic(
        sizes, at::getHostAllocator(c10::DeviceType::CUDA), DispatchKeySet(DispatchKey::CPU), type, std::nullopt));
  }

 private:
  void fall_back_to_host(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first, const Computation& how) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++host_fallbacks_[rule.name];
    }
    run_host_fallback(rule, op, stack, first, how, card_);
  }

  // Makes the card the thread's current one, which torch's allocator and kernels look at. Each time: autograd sets the current
  // device of a thread that it gives a nested backward pass to 0, that of mps.
  void enter() const {
    if (guard_ != nullptr && C10_UNLIKELY(guard_->getDevice() != card_)) {
      guard_->setDevice(card_);
    }
  }

  void grow(c10::StorageImpl* storage, size_t nbytes) {
    const size_t had = storage->nbytes();
    if (nbytes <= had || had == 0 || !storage->resizable() || storage->device_type() != c10::DeviceType::MPS) {
      return;
    }
    at::DataPtr grown = storage->allocator()->allocate(nbytes);
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    bytes_at(grown.get(), had).copy_(bytes_at(storage->data_ptr().get(), had));
    storage->set_data_ptr_noswap(std::move(grown));
    storage->set_nbytes(nbytes);
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
      at::Tensor staging = staging_buffer(source.sizes(), source.scalar_type());
      at::native::copy_(staging, source, false);
      at::native::copy_(target, staging, /*non_blocking=*/true);
    } else {
      at::native::copy_(target, source, /*non_blocking=*/false);
    }
  }

  // Drawn from the Mac's stream, or one that stands for it.
  static bool is_random(const Rule& rule) {
    return (rule.flags & kRandom) != 0 || rule.generator_argument >= 0;
  }

  bool goes_to_card(const Rule& rule, const c10::OperatorHandle& op, bool sparse) const {
    if (is_random(rule)) {
      return false;
    }
    if (const CardLimit* limit = card_limit(rule.name); limit != nullptr && limit->never) {
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

  struct Way {
    bool on_card = false;  // its kernels compute there, unless they want memory of the CPU
    const CardLimit* limit = nullptr;
  };

  Way way_of(const Rule& rule, const c10::OperatorHandle& op, bool sparse) {
    const uint64_t place = uint64_t{rule.id} * 2 + (sparse ? 1 : 0);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = ways_.find(place);
    if (known != ways_.end()) {
      return known->second;
    }
    return ways_[place] = Way{goes_to_card(rule, op, sparse), card_limit(rule.name)};
  }

  const c10::Device card_;
  const c10::impl::DeviceGuardImplInterface* const guard_;  // null where the CPU plays the card
  const bool always_falls_back_;
  c10::Allocator* memory_;
  Mutex mutex_;
  std::unordered_map<uint64_t, Way> ways_;  // by rule and kind of kernel
  std::map<std::string, int64_t> host_fallbacks_;
};

const SubstrateEntry cuda_entry("cuda", [](int card) -> std::unique_ptr<Substrate> {
  const c10::Device where = card < 0 ? c10::Device(c10::DeviceType::CPU)
                                     : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(card));
  return std::make_unique<CudaSubstrate>(where, card == -2);
});

}  // namespace
}  // namespace anymps
