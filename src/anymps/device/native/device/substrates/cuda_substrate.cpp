// The `cuda` substrate: mps storages own memory of an NVIDIA GPU, and CUDA's kernels compute on it.
//
// Nothing of CUDA is included or linked: torch registers its allocator, its kernels and its guard under the device's name, and
// what has none there is not needed. A call goes to the GPU unless that lacks a kernel, would stop at bad values, or refuses
// the arguments; then the CPU computes it on copies (host_fallback.h), and what it refuses too is refused in its words. The order of
// the GPU's one stream keeps copies and kernels apart. Only who reads a value waits.
#include "device/calls/alias.h"
#include "device/errors/refusals.h"
#include "device/substrates/host_fallback.h"
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

constexpr int64_t kSentBytes = int64_t(1) << 22;  // copies to the GPU up to this size go through pinned memory, and nobody waits

[[noreturn]] void refuse_full_gpu(const c10::Error& error, c10::Device gpu) {
  const std::string said = error.what_without_backtrace();
  const std::string first = said.substr(0, said.find(". GPU"));
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::OutOfMemoryError(
      here,
      "anymps: the NVIDIA GPU is full (" + gpu.str() + " of this machine), not the Mac, whose limit comes later: take a smaller batch or another "
      "Mac (--mac), or end what else runs on the GPU. " + first.substr(0, first.find('\n')));
}

// Without a word in the environment cuBLAS may choose otherwise from run to run, and torch refuses every product. With it torch
// reads that word again at each product, which costs more than a small one: so it is said when it is asked for.
void make_products_deterministic() {
  [[maybe_unused]] static const int said = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
}

bool has_outs(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return !arguments.empty() && arguments.back().is_out();
}

// How tensors that were given for results lay in memory, for a kernel that has changed that before it raised: the CPU's
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

class CudaSubstrate final : public Substrate {
 public:
  CudaSubstrate(c10::Device gpu, bool by_fallback_alone)
      : Substrate(gpu, gpu.is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU), gpu_(gpu),
        guard_(gpu.is_cuda() ? c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA) : nullptr), by_fallback_alone_(by_fallback_alone) {
    if (gpu.is_cuda()) {
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
      enter();
    }
    memory_ = c10::GetAllocator(gpu.type());
  }

  at::DataPtr allocate(size_t nbytes) override {
    return mps_memory(nbytes, [&] { return take(nbytes); });
  }

  at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) override {
    if (memory.get() == nullptr || nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    if (memory.device().type() == gpu_.type()) {
      return mps_memory(nbytes, [&] { return std::move(memory); });
    }
    at::DataPtr fresh = allocate(nbytes);
    at::Tensor target = bytes_at(fresh.get(), nbytes);
    send(target, at::from_blob(memory.get(), {static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(c10::kByte)));
    return fresh;
  }

  // Where a storage has to grow, with room for its bytes on the GPU.
  void before_resize(const at::Tensor& tensor, c10::IntArrayRef size) override {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (c10::multiply_integers(size) > 0) {
      grow(storage, at::detail::computeStorageNbytesContiguous(size, tensor.itemsize(), tensor.storage_offset()));
    }
  }
  void before_set(c10::StorageImpl* storage, size_t nbytes) override {
    grow(storage, nbytes);
  }

  at::DataPtr allocate_pinned(size_t nbytes) override {
    return mps_memory(nbytes, [&] {
      return gpu_.is_cuda() ? at::getHostAllocator(c10::DeviceType::CUDA)->allocate(nbytes) : c10::GetCPUAllocator()->allocate(nbytes);
    });
  }

  DispatchKeySet alias_keys(DispatchKeySet mps) const override {
    return gpu_.is_cuda() ? backend_keys(mps, c10::BackendComponent::CUDABit) : host_keys(mps);
  }

  c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) override {
    return at::Tensor(alias(tensor)).cpu().getIntrusivePtr();
  }

  // Kernels of the GPU take a single value of the CPU.
  at::Tensor alias_of_foreign(const at::Tensor& tensor) override {
    return tensor.dim() > 0 && tensor.is_cpu() && gpu_.is_cuda() ? tensor.to(tensor.options().device(gpu_)) : tensor;
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
  bool computes_plainly(const Rule& rule, bool by_its_kernels) const override {
    return !by_fallback_alone_ && gpu_limit(rule.name) == nullptr && !has_outs(rule.op) &&
        (by_its_kernels ? goes_to_gpu(rule, rule.op, false) : !is_random(rule));
  }

  void compute(
      const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue>, const Computation& how,
      bool sparse) override {
    const size_t first = stack->size() - op.schema().arguments().size();
    const torch::jit::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    const Way way = way_of(rule, op, sparse);
    const bool refused = way.limit != nullptr && way.limit->refused != nullptr && way.limit->refused(given);
    const Computation::Needs needs = how.needs();
    if (by_fallback_alone_ || refused || needs == Computation::Needs::CpuMemory || (needs == Computation::Needs::Kernels && !way.on_gpu)) {
      fall_back_to_host(rule, op, stack, first, how);
      return;
    }
    const DispatchKey key = gpu_.is_cuda() ? (sparse ? DispatchKey::SparseCUDA : DispatchKey::CUDA)
                                            : (sparse ? DispatchKey::SparseCPU : DispatchKey::CPU);
    const Outs outs(op, given);
    const uint64_t refusals = refusals_of_this_thread();
    try {
      if (way.limit != nullptr && way.limit->before != nullptr) {
        way.limit->before(*stack, first);
      }
      how.by_kernels(DispatchKeySet(key), stack, first);
      if (way.limit != nullptr && way.limit->after != nullptr) {
        way.limit->after(given, *stack, first);
      }
      return;
    } catch (const c10::OutOfMemoryError& error) {
      refuse_full_gpu(error, gpu_);
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

  void copy(const at::Tensor& destination, const at::Tensor& source) override {
    enter();
    auto [target, from] = aliases_of_copy(destination, source);
    if (gpu_.is_cuda() && target.is_cuda() && from.is_cpu()) {
      send(target, from);
    } else {
      at::native::copy_(target, from, /*non_blocking=*/false);
    }
  }

  c10::Scalar read(const at::Tensor& tensor) override {
    enter();
    return at::_ops::_local_scalar_dense::redispatch(compute_key(), alias_if_mps(tensor));
  }

  at::Tensor staging_buffer(c10::IntArrayRef sizes, c10::ScalarType type) override {
    if (!gpu_.is_cuda()) {
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
    run_host_fallback(rule, op, stack, first, how, gpu_);
  }

  // Makes the GPU the thread's current one, which torch's allocator and kernels look at. Each time: autograd sets the current
  // device of a thread that it gives a nested backward pass to 0, that of mps.
  void enter() const {
    if (guard_ != nullptr && C10_UNLIKELY(guard_->getDevice() != gpu_)) {
      guard_->setDevice(gpu_);
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
      refuse_full_gpu(error, gpu_);
    }
  }

  at::Tensor bytes_at(void* address, size_t nbytes) const {
    return at::for_blob(address, {static_cast<int64_t>(nbytes)})
        .options(at::TensorOptions().dtype(c10::kByte).device(gpu_))
        .target_device(gpu_)
        .make_tensor();
  }

  // From the CPU to the GPU. A small copy waits for nothing: its bytes go through pinned memory that lives until they have gone.
  void send(at::Tensor& target, const at::Tensor& source) {
    if (gpu_.is_cuda() && source.numel() > 0 && static_cast<int64_t>(source.nbytes()) <= kSentBytes && !source.is_sparse()) {
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

  bool goes_to_gpu(const Rule& rule, const c10::OperatorHandle& op, bool sparse) const {
    if (is_random(rule)) {
      return false;
    }
    if (const GpuLimit* limit = gpu_limit(rule.name); limit != nullptr && limit->never) {
      return false;
    }
    return !gpu_.is_cuda() || has_kernel(op, sparse ? DispatchKey::SparseCUDA : DispatchKey::CUDA);
  }

  struct Way {
    bool on_gpu = false;  // its kernels compute there, unless they want memory of the CPU
    const GpuLimit* limit = nullptr;
  };

  Way way_of(const Rule& rule, const c10::OperatorHandle& op, bool sparse) {
    const uint64_t place = uint64_t{rule.id} * 2 + (sparse ? 1 : 0);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = ways_.find(place);
    if (known != ways_.end()) {
      return known->second;
    }
    return ways_[place] = Way{goes_to_gpu(rule, op, sparse), gpu_limit(rule.name)};
  }

  const c10::Device gpu_;
  const c10::impl::DeviceGuardImplInterface* const guard_;  // null where the CPU plays the GPU
  const bool by_fallback_alone_;
  c10::Allocator* memory_;
  Mutex mutex_;
  std::unordered_map<uint64_t, Way> ways_;  // by rule and kind of kernel
  std::map<std::string, int64_t> host_fallbacks_;
};

const SubstrateEntry cuda_entry("cuda", [](int gpu) -> std::unique_ptr<Substrate> {
  const c10::Device where = gpu < 0 ? c10::Device(c10::DeviceType::CPU)
                                     : c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu));
  return std::make_unique<CudaSubstrate>(where, gpu == -2);
});

}  // namespace
}  // namespace anymps
