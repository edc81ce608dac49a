// Typed kernels for the operators that make up most training steps; every other operator takes the boxed redirect.
#include <anymps/typed_kernels.h>

#include <ATen/EmptyTensor.h>

namespace anymps {
namespace {

// That of the calling thread; a new one while somebody else holds it or its memory.
const at::Tensor& float_number() {
  thread_local at::Tensor number;  // written again for each call
  if (C10_UNLIKELY(!number.defined() || number.use_count() != 1 || number.storage().use_count() != 1)) {
    number = at::Tensor(at::detail::empty_cpu({}, c10::ScalarType::Float));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return number;
}

}  // namespace

// Half-precision kernels take the number as it is, so only float32 is cast early.
const at::Tensor* number_in_dtype_of(const at::Tensor& tensor, const at::Tensor& number) {
  if (!number.unsafeGetTensorImpl()->is_wrapped_number() || !number.is_cpu() || !tensor.is_cpu() ||
      tensor.scalar_type() != c10::ScalarType::Float || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return nullptr;
  }
  float value;
  if (number.scalar_type() == c10::ScalarType::Double) {
    value = static_cast<float>(*number.const_data_ptr<double>());
  } else if (number.scalar_type() == c10::ScalarType::Long) {
    value = static_cast<float>(*number.const_data_ptr<int64_t>());
  } else {
    return nullptr;
  }
  const at::Tensor& in_float = float_number();
  *static_cast<float*>(in_float.unsafeGetTensorImpl()->mutable_data()) = value;
  return &in_float;
}

void add_step_kernels(KernelTable& table) {
  add_typed_kernels(table);
}

}  // namespace anymps
