// Operators as compiled programs call them: `aoti_torch_mps_<operator>`, as torch's c_shim_mps.h declares them. A Mac's are written
// by hand or generated one by one; here one function calls any operator, by its schema.
#include "compiled/compiled.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#ifndef __APPLE__  // torch has them there

namespace anymps::compiled {
namespace {

using c10::IValue;
using c10::TypeKind;
using Arguments = c10::ArrayRef<const void*>;  // where each argument of the C function lies

// `sort_stable` is aten::sort.stable, `fill__Scalar` aten::fill_.Scalar; of two versions the second has `_v2`.
c10::OperatorHandle find_operator(const std::string& name) {
  for (size_t cut = name.size(); cut != std::string::npos && cut > 0; cut = name.rfind('_', cut - 1)) {
    const std::string overload = name.substr(std::min(cut + 1, name.size()));
    const bool version = overload.size() == 2 && overload[0] == 'v';
    if (const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, cut), version ? "" : overload})) {
      return *found;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "no operator for aoti_torch_mps_", name);
}

template <class T>
const T& read(const void* at) {
  return *static_cast<const T*>(at);
}

IValue one_value(const c10::Type& type, const void* at) {
  switch (type.kind()) {
    case TypeKind::OptionalType: {
      const void* value = read<const void*>(at);
      return value == nullptr ? IValue() : one_value(*type.castRaw<c10::OptionalType>()->getElementType(), value);
    }
    case TypeKind::TensorType:
      return *read<const at::Tensor*>(at);
    case TypeKind::GeneratorType:
      return *read<const at::Generator*>(at);
    case TypeKind::BoolType:
      return read<int32_t>(at) != 0;
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
      return int64_t{read<int32_t>(at)};
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return read<int64_t>(at);
    case TypeKind::FloatType:
    case TypeKind::NumberType:
      return read<double>(at);
    case TypeKind::StringType:
      return std::string(read<const char*>(at));
    default:
      TORCH_INTERNAL_ASSERT(false, "no argument of a C function is a ", type.str());
  }
}

IValue list_of_values(const c10::ListType& type, const void* at, size_t count) {
  const auto& element = type.getElementType();
  const size_t width = element->kind() == TypeKind::BoolType ? sizeof(int32_t) : sizeof(void*);
  c10::impl::GenericList list(element->kind() == TypeKind::SymIntType ? c10::IntType::get() : element);
  for (size_t i = 0; i < count; ++i) {
    list.push_back(one_value(*element, static_cast<const char*>(at) + i * width));
  }
  return list;
}

// Takes the next argument of the operator. A list's length and a device's index are an argument of their own.
IValue take(const c10::TypePtr& type, Arguments& given) {
  const void* at = given.front();
  given = given.slice(1);
  const auto* optional = type->castRaw<c10::OptionalType>();
  const auto& inner = optional != nullptr ? optional->getElementType() : type;
  const auto* list = inner->castRaw<c10::ListType>();
  if (list == nullptr && inner->kind() != TypeKind::DeviceObjType) {
    return one_value(*type, at);
  }
  const void* second = given.front();
  given = given.slice(1);
  if (optional != nullptr && (at = read<const void*>(at)) == nullptr) {
    return {};
  }
  if (list == nullptr) {
    return c10::Device(static_cast<c10::DeviceType>(read<int32_t>(at)), static_cast<c10::DeviceIndex>(read<int32_t>(second)));
  }
  return list_of_values(*list, read<const void*>(at), static_cast<size_t>(read<int64_t>(second)));
}

void give(IValue&& result, void* to) {
  if (result.isTensor()) {
    *static_cast<AtenTensorHandle*>(to) = torch::aot_inductor::new_tensor_handle(std::move(result).toTensor());
  } else if (result.isInt()) {
    *static_cast<int64_t*>(to) = result.toInt();
  } else {
    *static_cast<double*>(to) = result.toDouble();
  }
}

AOTITorchError call_operator(c10::OperatorHandle (*find)(), Arguments given) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const c10::OperatorHandle op = find();
    const c10::FunctionSchema& schema = op.schema();
    const size_t results = schema.is_mutable() ? 0 : schema.returns().size();
    Arguments inputs = given.slice(0, given.size() - results);
    torch::jit::Stack stack(schema.arguments().size());
    for (const bool out : {true, false}) {  // what an operator writes to comes first
      for (size_t i = 0; i < stack.size(); ++i) {
        const c10::Argument& argument = schema.arguments()[i];
        if (argument.is_out() == out) {
          // An earlier version of the function lacks the last arguments.
          stack[i] = inputs.empty() ? argument.default_value().value_or(IValue()) : take(argument.real_type(), inputs);
        }
      }
    }
    TORCH_INTERNAL_ASSERT(inputs.empty());
    // The Mac's functions call the backend's kernel too, below autograd and autocast.
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::MPS), &stack);
    for (size_t i = 0; i < results; ++i) {
      if (void* to = read<void*>(given[given.size() - results + i])) {
        give(std::move(stack[i]), to);
      }
    }
  })
}

}  // namespace
}  // namespace anymps::compiled

#include <anymps/operator_shims.h>

#endif
