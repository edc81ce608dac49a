// A layout each: lists of tensors, along a dimension, rows, bags, and places in a plane.
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace anymps::indices {
namespace {

at::Tensor outside(const at::Tensor& index, int64_t low, int64_t high) {
  return index.lt(low).logical_or_(index.ge(high));
}

std::optional<BadIndex> first_bad(const at::Tensor& index, int64_t low, int64_t high) {
  if (!index.defined() || index.numel() == 0 || !c10::isIntegralType(index.scalar_type(), /*includeBool=*/false)) {
    return std::nullopt;
  }
  const auto [least, most] = index.aminmax();
  if (least.item<int64_t>() >= low && most.item<int64_t>() < high) {
    return std::nullopt;
  }
  BadIndex bad;
  bad.position = outside(index, low, high).flatten().nonzero().select(0, 0).item<int64_t>();
  bad.index = index.flatten().select(0, bad.position).item<int64_t>();
  return bad;
}

// One more place of zeros at the end of these dimensions, for bad indices to read from and write to.
at::Tensor with_padding(const at::Tensor& tensor, const std::vector<bool>& dimensions) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  for (size_t d = 0; d < sizes.size(); ++d) {
    sizes[d] += dimensions[d] ? 1 : 0;
  }
  at::Tensor padded = at::zeros(sizes, tensor.options());
  without_padding(padded, tensor.sizes()).copy_(tensor);
  return padded;
}

int64_t wrapped_dimension(const HostCall& arguments, const at::Tensor& self) {
  const c10::IValue* given = arguments.find("dim");
  const int64_t dim = given != nullptr && given->isInt() ? given->toInt() : 0;
  return dim < 0 ? dim + std::max<int64_t>(self.dim(), 1) : dim;
}

bool same_outside(const at::Tensor& one, const at::Tensor& other, int64_t dim) {
  for (int64_t d = 0; d < one.dim(); ++d) {
    if (d != dim && one.size(d) != other.size(d)) {
      return false;
    }
  }
  return true;
}

// index and _index_put_impl_: a list of tensors, each of which indexes a dimension, or a mask for several.
struct Advanced final : Layout {
  explicit Advanced(const HostCall& arguments) : arguments(arguments), self(arguments.front().toTensor()) {
    int64_t dim = 0;
    for (const std::optional<at::Tensor>& index : arguments.find("indices")->toOptionalTensorVector()) {
      tensors.push_back(index);
      dimensions.push_back(dim);
      const bool mask = index.has_value() && index->defined() &&
          (index->scalar_type() == c10::ScalarType::Bool || index->scalar_type() == c10::ScalarType::Byte);
      dim += mask ? index->dim() : 1;
      masks.push_back(mask);
    }
    valid = dim <= self.dim();
  }

  bool is_index(size_t i) const {
    return tensors[i].has_value() && tensors[i]->defined() && !masks[i];
  }

  // An index into a dimension of size 0 is refused for every device before its kernel runs (torch 2.13,
  // TensorAdvancedIndexing.cpp), and without anything to index no kernel looks.
  bool reaches_kernel() const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (is_index(i) && (self.size(dimensions[i]) == 0 || tensors[i]->numel() == 0)) {
        return false;
      }
      if (masks[i] && !tensors[i]->any().item<bool>()) {
        return false;
      }
    }
    return true;
  }

  std::optional<BadIndex> find() override {
    std::optional<BadIndex> found;
    int64_t place = 0;  // among the indices that the kernel gets: a mask becomes one for each of its dimensions
    for (size_t i = 0; valid && i < tensors.size(); ++i) {
      if (is_index(i)) {
        const int64_t size = self.size(dimensions[i]);
        std::optional<BadIndex> bad = first_bad(*tensors[i], -size, size);
        if (bad.has_value() && !found.has_value()) {
          found = bad;
          found->dimension = place;
          found->size = size;
        }
        ++place;
      } else if (masks[i]) {
        place += tensors[i]->dim();
      }
    }
    if (found.has_value() && !reaches_kernel()) {
      return std::nullopt;
    }
    return found;
  }

  void replace() override {
    std::vector<bool> padded(static_cast<size_t>(self.dim()), false);
    c10::List<std::optional<at::Tensor>> fixed;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!is_index(i)) {
        fixed.push_back(tensors[i]);
        continue;
      }
      const int64_t size = self.size(dimensions[i]);
      const at::Tensor index = tensors[i]->to(c10::kLong);
      padded[static_cast<size_t>(dimensions[i])] = true;
      fixed.push_back(at::where(index.lt(0), index.add(size), index).masked_fill_(outside(index, -size, size), size));
    }
    *arguments.find("indices") = std::move(fixed);
    arguments.front() = with_padding(self, padded);
  }

  const HostCall& arguments;
  at::Tensor self;
  std::vector<std::optional<at::Tensor>> tensors;
  std::vector<int64_t> dimensions;
  std::vector<bool> masks;
  bool valid = false;
};

// gather and the scatters: an index of the shape of the result, along one dimension.
struct Along final : Layout {
  Along(const Rule& rule, const HostCall& arguments)
      : arguments(arguments),
        fresh_output((rule.writes & 1) == 0 && !only_reads(rule)),
        self(arguments.front().toTensor()),
        index(arguments.tensor("index")),
        dim(wrapped_dimension(arguments, self)),
        size(self.dim() == 0 ? 1 : (dim < self.dim() ? self.size(dim) : 0)) {}

  std::optional<BadIndex> find() override {
    if (self.dim() != 0 && (dim < 0 || dim >= self.dim())) {
      return std::nullopt;
    }
    std::optional<BadIndex> bad = first_bad(index, 0, size);
    if (bad.has_value()) {
      bad->dimension = dim;
      bad->size = size;
      bad->strided = !is_dense();
    }
    return bad;
  }

  // can_use_dense_scatter and gather_metal in ScatterGather.mm
  bool is_dense() const {
    const at::Tensor source = arguments.tensor("src");
    const bool shapes = self.dim() == index.dim() && same_outside(self, index, dim) && index.is_contiguous();
    return shapes && (fresh_output || self.is_contiguous()) && (!source.defined() || (source.is_contiguous() && source.sizes().equals(index.sizes())));
  }

  void replace() override {
    if (self.dim() == 0) {
      *arguments.find("index") = index.clamp(0, 0);
      return;
    }
    std::vector<bool> padded(static_cast<size_t>(self.dim()), false);
    padded[static_cast<size_t>(dim)] = true;
    *arguments.find("index") = index.masked_fill(outside(index, 0, size), size);
    arguments.front() = with_padding(self, padded);
  }

  const HostCall& arguments;
  bool fresh_output;  // a scatter that copies `self` first, into a contiguous tensor
  at::Tensor self, index;
  int64_t dim, size;
};

// index_select and the like: a vector for one dimension. From torch 2.14 on the device clamps.
struct Select final : Layout {
  explicit Select(const HostCall& arguments)
      : arguments(arguments),
        self(arguments.front().toTensor()),
        index(arguments.tensor("index")),
        dim(wrapped_dimension(arguments, self)),
        size(self.dim() == 0 ? 1 : (dim >= 0 && dim < self.dim() ? self.size(dim) : 0)) {}

  std::optional<BadIndex> find() override {
    std::optional<BadIndex> bad = size == 0 ? std::nullopt : first_bad(index, 0, size);
    if (bad.has_value()) {
      bad->dimension = dim;
      bad->size = size;
    }
    return bad;
  }
  void replace() override {
    *arguments.find("index") = index.clamp(0, size - 1);
  }

  const HostCall& arguments;
  at::Tensor self, index;
  int64_t dim, size;
};

// Bags: rows of a weight. A bad one is read from a row of zeros.
struct Bag final : Layout {
  explicit Bag(const HostCall& arguments)
      : arguments(arguments), weight(arguments.tensor("weight")), index(arguments.tensor("indices")) {
    const c10::IValue* rows = arguments.find("num_weights");
    size = rows != nullptr && rows->isInt() ? rows->toInt() : (weight.defined() && weight.dim() == 2 ? weight.size(0) : -1);
  }

  std::optional<BadIndex> find() override {
    std::optional<BadIndex> bad = size < 0 ? std::nullopt : first_bad(index, 0, size);
    if (bad.has_value()) {
      bad->size = size;
    }
    return bad;
  }
  void replace() override {
    *arguments.find("indices") = index.masked_fill(outside(index, 0, size), size);
    *arguments.find("weight") = with_padding(weight, {true, false});
  }

  const HostCall& arguments;
  at::Tensor weight, index;
  int64_t size = -1;
};

// max_unpool: places in the plane that the result is. A bad one writes nothing.
struct Unpool final : Layout {
  explicit Unpool(const HostCall& arguments)
      : self(arguments.front().toTensor()), index(arguments.tensor("indices")), output(arguments.find("output_size")->toIntVector()) {
    for (const int64_t extent : output) {
      size *= extent;
    }
  }

  std::optional<BadIndex> find() override {
    std::optional<BadIndex> bad = first_bad(index, 0, size);
    if (bad.has_value()) {
      bad->size = size;
    }
    return bad;
  }
  void replace() override {}

  // With a place beside the plane for what is not to be written.
  at::Tensor result() const override {
    const int64_t spatial = -static_cast<int64_t>(output.size());
    const at::Tensor values = self.flatten(spatial);
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes.back() = size + 1;
    const at::Tensor places = index.masked_fill(outside(index, 0, size), size).flatten(spatial);
    at::Tensor plane = at::zeros(sizes, self.options()).scatter_(-1, places, values).narrow(-1, 0, size);
    sizes.pop_back();
    sizes.insert(sizes.end(), output.begin(), output.end());
    return plane.reshape(sizes);
  }

  at::Tensor self, index;
  std::vector<int64_t> output;
  int64_t size = 1;
};

}  // namespace

bool only_reads(const Rule& rule) {
  const auto is = [&](const char* name) { return rule.name.compare(0, std::string(name).size(), name) == 0; };
  return is("aten::index.") || is("aten::gather") || is("aten::index_select") || is("aten::_embedding_bag.") ||
      rule.name == "aten::_embedding_bag" || is("aten::_embedding_bag_forward_only") || is("aten::max_unpool");
}

at::Tensor without_padding(at::Tensor tensor, c10::IntArrayRef sizes) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) != sizes[static_cast<size_t>(d)]) {
      tensor = tensor.narrow(d, 0, sizes[static_cast<size_t>(d)]);
    }
  }
  return tensor;
}

std::unique_ptr<Layout> layout_of(const Rule& rule, const HostCall& arguments) {
  const std::string& layout = rule.indices->layout;
  if (layout == "advanced") {
    return std::make_unique<Advanced>(arguments);
  }
  if (layout == "along") {
    return std::make_unique<Along>(rule, arguments);
  }
  if (layout == "select") {
    return std::make_unique<Select>(arguments);
  }
  if (layout == "unpool") {
    return std::make_unique<Unpool>(arguments);
  }
  return std::make_unique<Bag>(arguments);
}

}  // namespace anymps::indices
