// Typed kernels for the operators that make up most training steps; every other operator takes the boxed redirect.
#include <anymps/typed_kernels.h>

#include <ATen/ops/index_select_ops.h>

namespace anymps {

void add_step_kernels(KernelTable& table) {
  add_typed_kernels(table);
  if (!substrate().computes_at_once()) {  // elsewhere the redirect looks at indices
    add_unboxed<at::_ops::index_select, direct_calls::IndexSelect>(table);
  }
}

}  // namespace anymps
