// Names and sizes of the element types, and their conversions for the rest of the core.
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

std::uint16_t float_to_half(float value) { return philox::to_half(value); }
float half_to_float(std::uint16_t bits) { return philox::from_half(bits); }
std::uint16_t float_to_bfloat16(float value) { return philox::to_bfloat16(value); }
float bfloat16_to_float(std::uint16_t bits) { return philox::from_bfloat16(bits); }

}  // namespace anymps
