// Where the bytes of an mps tensor live and what computes on them: one interface, a file for each implementation.
//
// Unified memory means that one buffer serves both processors. `host` takes that at its word: every mps storage owns host
// bytes, and CPU kernels work on them. `shape` owns no bytes: meta kernels work out the shapes. `cuda` has its bytes on a GPU,
// whose kernels compute; what these lack is computed by the CPU, on copies. What a kernel is given in place of an mps tensor
// is an *alias* of it (alias.h), a tensor of the device that computes.
#pragma once

#include "rules/rules.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>
#include <c10/core/Scalar.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace anymps {

// Is shown the arguments of a call, one after the other. Undefined tensors are shown, too.
class ArgumentVisitor {
 public:
  virtual void input(const at::Tensor& tensor) = 0;
  virtual void output(const at::Tensor& tensor) = 0;  // one that the call writes
  virtual void number(double value) = 0;

  void value(const c10::IValue& value, bool written);  // a boxed argument: each tensor and number in it

 protected:
  ~ArgumentVisitor() = default;
};

// Shows a call's arguments to a visitor. Refers to the function that it is made of.
class ArgumentWalk {
 public:
  template <class Walk>
  ArgumentWalk(const Walk& walk)
      : walk_(&walk), show_([](const void* function, ArgumentVisitor& visitor) { (*static_cast<const Walk*>(function))(visitor); }) {}

  void operator()(ArgumentVisitor& visitor) const {
    show_(walk_, visitor);
  }

 private:
  const void* walk_;
  void (*show_)(const void*, ArgumentVisitor&);
};

// How one call is computed, for a substrate that chooses.
class Computation {
 public:
  // On aliases, by the kernels of `key`: widened and with its indices made harmless where the operator needs it.
  virtual void by_kernels(c10::DispatchKeySet key, torch::jit::Stack* stack, size_t first) const = 0;
  // On CPU tensors, with all that the rules of this operator ask for there.
  virtual void by_cpu(torch::jit::Stack* stack, size_t first) const = 0;
  // What `by_kernels` asks for: kernels of the operator for the substrate's key; nothing, as it finds its way on any device; or
  // memory that the CPU reads, so that there is `by_cpu` alone.
  enum class Needs : uint8_t { Kernels, Nothing, CpuMemory };
  virtual Needs needs() const = 0;

 protected:
  ~Computation() = default;
};

class Substrate {
 public:
  // Where aliases lie, and the key of the kernels that compute on them.
  Substrate(c10::Device alias_device, c10::DispatchKey compute_key) : alias_device_(alias_device), compute_key_(compute_key) {}
  virtual ~Substrate() = default;
  Substrate(const Substrate&) = delete;
  Substrate& operator=(const Substrate&) = delete;

  // --- memory

  // A new buffer of `nbytes` > 0, entered in the allocator's books. Raises where the Mac has no room for it, before any
  // memory of this machine is taken.
  virtual at::DataPtr allocate(size_t nbytes) = 0;

  // Makes memory that a kernel has allocated and filled a buffer, without a copy. Nothing for 0 bytes.
  virtual at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) = 0;

  // Memory that the CPU reads and writes, entered in the books as a buffer of the Mac: one memory serves both processors there.
  virtual at::DataPtr allocate_pinned(size_t nbytes) {
    return allocate(nbytes);
  }

  // Comes before torch's `resize_`, which moves bytes by memcpy if the storage has to grow.
  virtual void before_resize(const at::Tensor&, c10::IntArrayRef) {}

  // Comes before torch's `set_`, which does the same to a storage that is to hold `nbytes`.
  virtual void before_set(c10::StorageImpl*, size_t) {}

  // Whether every tensor has its data at any time. If not, kernels that look at values are left out, and nobody watches
  // over bytes.
  virtual bool holds_data() const {
    return true;
  }

  // For a substrate that keeps the values of small buffers only: how large one may be.
  virtual void keep_values_up_to(size_t) {}

  // --- alias

  c10::Device alias_device() const {
    return alias_device_;
  }

  // The address that an alias has for the bytes of `storage`, an mps one.
  virtual void* alias_address(const c10::StorageImpl* storage) const {
    return storage->data_ptr().get();
  }

  // Whether a kernel has given `alias`, the storage of an alias of `storage`, other memory of the same size.
  virtual bool has_moved(const c10::StorageImpl* alias, const c10::StorageImpl* storage) const {
    return alias->data_ptr().get() != storage->data_ptr().get();
  }

  // The key set of the alias of a tensor with the key set `mps`.
  virtual c10::DispatchKeySet alias_keys(c10::DispatchKeySet mps) const = 0;

  // A CPU tensor over the values of `tensor`, an mps one, for a call that is computed on the host.
  virtual c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) = 0;

  // What kernels of this substrate get in place of a tensor of the CPU.
  virtual at::Tensor alias_of_foreign(const at::Tensor& tensor) = 0;

  // --- compute

  c10::DispatchKeySet compute_key() const {
    return c10::DispatchKeySet(compute_key_);
  }

  // Whether a call is computed by the CPU's kernels on host aliases, and not by those of this substrate. Asked before the
  // arguments are converted. If so, the outputs are ready to be written.
  virtual bool computes_on_host(const Rule& rule, ArgumentWalk arguments) = 0;

  // Whether typed kernels call those of `compute_key` at once, and leave `compute` to boxed calls.
  virtual bool computes_at_once() const {
    return true;
  }

  // Runs the operator on aliases, for a call that is not computed on the host. `given` are its arguments as the caller gave
  // them, none from a typed kernel; arguments and results on the stack as for a boxed kernel. `sparse`: its sparse kernel.
  virtual void compute(
      const Rule& rule,
      const c10::OperatorHandle& op,
      torch::jit::Stack* stack,
      c10::ArrayRef<c10::IValue> given,
      const Computation& how,
      bool sparse) = 0;

  // Whether this operator is computed without more ado, by its kernels for `compute_key`, or else by other operators. Only where
  // not `computes_at_once`.
  virtual bool computes_plainly(const Rule&, bool /*by_its_kernels*/) const {
    return true;
  }

  // A CPU tensor to be filled and sent to an alias by `copy_(staging, non_blocking=true)`, for which nobody waits.
  virtual at::Tensor staging_buffer(c10::IntArrayRef sizes, c10::ScalarType type);

  // After kernels of this substrate have written `tensor`, an mps one.
  virtual void wrote(const at::Tensor&) {}

  // A copy between mps and CPU or within mps, both defined.
  virtual void copy(const at::Tensor& destination, const at::Tensor& source) = 0;

  // The first element.
  virtual c10::Scalar read(const at::Tensor& tensor) = 0;

  // A CPU tensor for a tensor whose values are not known, undefined for one whose values are. Raises RuntimeError, in our
  // words, where it would be too large.
  virtual at::Tensor stand_in(const at::Tensor&) {
    return {};
  }

  // How often each operator was computed by the CPU on copies, by name: by a substrate that has kernels of its own.
  virtual std::map<std::string, int64_t> host_fallbacks() {
    return {};
  }

  // Raises NotImplementedError, in our words, if it cannot compute on sparse tensors.
  virtual void check_sparse() const {}

 private:
  const c10::Device alias_device_;
  const c10::DispatchKey compute_key_;
};

// Each implementation enters itself, by the name that `anymps.enable(substrate=...)` takes.
struct SubstrateEntry {
  using Maker = std::unique_ptr<Substrate> (*)(int gpu);
  SubstrateEntry(const char* name, Maker make);
};

// Raises std::invalid_argument, in our words, for a name that there is not. Once, before anything is allocated. `gpu` is the
// number of the GPU for a substrate that has one; -1 where the CPU is to play it, -2 where it moreover computes all calls
// on copies: to test the ways of calls without one.
void choose_substrate(const std::string& name, int gpu);

namespace detail {
extern Substrate* chosen;
}

// The one in force. Only after the choice.
inline Substrate& substrate() {
  return *detail::chosen;
}

// Whether an operator has a kernel for this key, or is made of others. Torch has a fallback for Meta that only raises, so that every
// operator seems to have one there: it does not count.
bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key);

// Marks on the tape that an answer was assumed, as the values were not known.
void assume(const std::string& what);

// Replaces each tensor of a value, undefined ones too, with what `convert(tensor)` gives for it.
template <class Convert>
void replace_tensors(c10::IValue& value, Convert&& convert) {
  if (value.isTensor()) {
    value = convert(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> converted;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      converted.push_back(convert(tensor));
    }
    value = std::move(converted);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> converted;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      converted.push_back(tensor.has_value() ? std::optional<at::Tensor>(convert(*tensor)) : std::nullopt);
    }
    value = std::move(converted);
  }
}

}  // namespace anymps
