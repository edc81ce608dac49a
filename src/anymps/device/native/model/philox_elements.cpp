// Names and sizes of the element types, for the rest of the core.
#include "model/philox_elements.h"

namespace anymps {

std::size_t element_size(ElementType type) {
  std::size_t size = 0;
  philox::visit(philox::Every{}, type, [&](auto tag) { size = sizeof(tag); });
  return size;
}

const char* metal_name(ElementType type) {
  const char* name = "";
  philox::visit(philox::Every{}, type, [&](auto tag) { name = philox::Element<decltype(tag)>::metal; });
  return name;
}

const char* scalar_name(ElementType type) {
  const char* name = "";
  philox::visit(philox::Every{}, type, [&](auto tag) { name = philox::Element<decltype(tag)>::scalar; });
  return name;
}

}  // namespace anymps
