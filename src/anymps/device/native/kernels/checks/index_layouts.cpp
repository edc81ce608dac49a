// A layout each: lists of tensors, along a dimension, rows, bags, and places in a plane.
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace anymps::indices {
namespace {

at::Tensor outside(const at::Tensor& index, int64_t low, int64_t high) {
  return index.lt(low).logical_or_(index.ge(high));
}

std::optional<BadIndex> first_bad(const Range& range) {
  if (!is_index(range.index)) {
    return std::nullopt;
  }
  const auto [least, most] = range.index.aminmax();
  if (least.item<int64_t>() >= range.low && most.item<int64_t>() < range.size) {
    return std::nullopt;
  }
  const int64_t position = outside(range.index, range.low, range.size).flatten().nonzero().select(0, 0).item<int64_t>();
  return BadIndex{range, range.index.flatten().select(0, position).item<int64_t>(), position};
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
  explicit Advanced(const HostCall& call) : Layout(call), self(call.front().toTensor()) {
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
  bool reaches_kernel() const override {
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

  std::vector<Range> ranges() override {
    std::vector<Range> found;
    int64_t place = 0;  // among the indices that the kernel gets: a mask becomes one for each of its dimensions
    for (size_t i = 0; valid && i < tensors.size(); ++i) {
      if (is_index(i)) {
        const int64_t size = self.size(dimensions[i]);
        found.push_back({*tensors[i], -size, size, place++});
      } else if (masks[i]) {
        place += tensors[i]->dim();
      }
    }
    return found;
  }

  void put(const std::vector<at::Tensor>& indices) override {
    c10::List<std::optional<at::Tensor>> list;
    auto next = indices.begin();
    for (size_t i = 0; i < tensors.size(); ++i) {
      list.push_back(is_index(i) ? std::optional<at::Tensor>(*next++) : tensors[i]);
    }
    *arguments.find("indices") = std::move(list);
  }

  void replace() override {
    std::vector<bool> padded(static_cast<size_t>(self.dim()), false);
    std::vector<at::Tensor> fixed;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (is_index(i)) {
        const int64_t size = self.size(dimensions[i]);
        const at::Tensor index = tensors[i]->to(c10::kLong);
        padded[static_cast<size_t>(dimensions[i])] = true;
        fixed.push_back(at::where(index.lt(0), index.add(size), index).masked_fill_(outside(index, -size, size), size));
      }
    }
    put(fixed);
    arguments.front() = with_padding(self, padded);
  }

  at::Tensor self;
  std::vector<std::optional<at::Tensor>> tensors;
  std::vector<int64_t> dimensions;
  std::vector<bool> masks;
  bool valid = false;
};

// One tensor of indices, for an argument of this name.
struct OneIndex : Layout {
  OneIndex(const HostCall& call, const char* name) : Layout(call), name(name), index(call.tensor(name)) {}

  void put(const std::vector<at::Tensor>& indices) override {
    *arguments.find(name) = indices[0];
  }

  const char* name;
  at::Tensor index;
};

// Along one dimension of `self`.
struct OfDimension : OneIndex {
  explicit OfDimension(const HostCall& call)
      : OneIndex(call, "index"), self(call.front().toTensor()), dim(wrapped_dimension(call, self)) {
    size = self.dim() == 0 ? 1 : is_there() ? self.size(dim) : 0;
  }

  bool is_there() const {
    return self.dim() == 0 || (dim >= 0 && dim < self.dim());
  }

  at::Tensor self;
  int64_t dim, size;
};

// gather and the scatters: an index of the shape of the result.
struct Along final : OfDimension {
  Along(const Rule& rule, const HostCall& call)
      : OfDimension(call), fresh_output((rule.writes & 1) == 0 && !only_reads(rule)) {}

  std::vector<Range> ranges() override {
    return is_there() ? std::vector<Range>{{index, 0, size, dim, !is_dense()}} : std::vector<Range>();
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

  bool fresh_output;  // a scatter that copies `self` first, into a contiguous tensor
};

// index_select and the like: a vector. From torch 2.14 on the device clamps.
struct Select final : OfDimension {
  using OfDimension::OfDimension;

  std::vector<Range> ranges() override {
    return is_there() ? std::vector<Range>{{index, 0, size, dim}} : std::vector<Range>();
  }
  bool reaches_kernel() const override {
    return size != 0;
  }
  void replace() override {
    put({index.clamp(0, size - 1)});
  }
};

// Bags: rows of a weight. A bad one is read from a row of zeros.
struct Bag final : OneIndex {
  explicit Bag(const HostCall& call) : OneIndex(call, "indices"), weight(call.tensor("weight")) {
    const c10::IValue* rows = call.find("num_weights");
    size = rows != nullptr && rows->isInt() ? rows->toInt() : (weight.defined() && weight.dim() == 2 ? weight.size(0) : -1);
  }

  std::vector<Range> ranges() override {
    return size < 0 ? std::vector<Range>() : std::vector<Range>{{index, 0, size}};
  }
  void replace() override {
    put({index.masked_fill(outside(index, 0, size), size)});
    *arguments.find("weight") = with_padding(weight, {true, false});
  }

  at::Tensor weight;
  int64_t size = -1;
};

// max_unpool: places in the plane that the result is. A bad one writes nothing.
struct Unpool final : OneIndex {
  explicit Unpool(const HostCall& call)
      : OneIndex(call, "indices"), self(call.front().toTensor()), output(call.find("output_size")->toIntVector()) {
    for (const int64_t extent : output) {
      size *= extent;
    }
  }

  std::vector<Range> ranges() override {
    return {{index, 0, size}};
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

  at::Tensor self;
  std::vector<int64_t> output;
  int64_t size = 1;
};

}  // namespace

bool is_index(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() != 0 && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

std::string filled_in(std::string text, const BadIndex& bad) {
  const std::pair<const char*, int64_t> fields[] = {
      {"{index}", bad.index}, {"{dimension}", bad.range.dimension}, {"{size}", bad.range.size}, {"{position}", bad.position}};
  for (const auto& [field, value] : fields) {
    const size_t at = text.find(field);
    if (at != std::string::npos) {
      text.replace(at, std::string(field).size(), std::to_string(value));
    }
  }
  return text;
}

std::optional<BadIndex> Layout::find() {
  for (const Range& range : ranges()) {
    if (std::optional<BadIndex> bad = first_bad(range)) {
      return reaches_kernel() ? bad : std::nullopt;
    }
  }
  return std::nullopt;
}

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
