// How calls are recognised that take a slow path, and strided or unusual operands of older releases (anymps/rules/faults).
#include "rules/hazard_checks.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace anymps::hazard_checks {
namespace {

bool is_strided(Impl tensor) {
  return tensor != nullptr && !tensor->is_contiguous();
}

bool trains(const Seen& seen, size_t roles) {
  for (size_t role = 0; role < roles; ++role) {
    if (seen.tensor(role) != nullptr && seen.tensor(role)->requires_grad()) {
      return c10::GradMode::is_enabled();
    }
  }
  return false;
}

// --- layouts and shapes

bool rank(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && seen.in_range(self->dim());
}

bool strided(const Seen& seen) {
  return is_strided(seen.tensor(0));
}

// All elements without gaps, in another order than that of the dimensions.
bool transposed(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return is_strided(self) && self->is_non_overlapping_and_dense() && seen.above(self->numel());
}

bool channels_last(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return is_strided(input) && input->dim() == 4 && input->is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool offset_view(const Seen& seen) {
  return seen.tensor(0) != nullptr && seen.tensor(0)->storage_offset() != 0;
}

// A contiguous view of one-byte elements that begins between two words of four bytes.
bool misaligned_bytes(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->itemsize() == 1 && self->is_contiguous() && self->storage_offset() % 4 != 0;
}

bool copy_within(const Seen& seen) {
  const Impl to = seen.tensor(0), from = seen.tensor(1);
  return to != nullptr && from != nullptr && to->dtype() == from->dtype() && to->sizes() == from->sizes() &&
      to->is_contiguous() && from->is_contiguous() && seen.above(bytes_of(to));
}

// Rows along the last dimension, and how many there are.
bool short_rows(const Seen& seen) {
  const Impl self = seen.tensor(0);
  constexpr int64_t kMany = 128;
  return self != nullptr && self->dim() >= 2 && seen.in_range(self->size(self->dim() - 1)) &&
      self->numel() / self->size(self->dim() - 1) >= kMany;
}

bool many_matrices(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->dim() >= 3 && self->numel() > 0 &&
      seen.in_range(self->numel() / (self->size(self->dim() - 1) * self->size(self->dim() - 2)));
}

// A sum over the last two dimensions and not over all.
bool trailing_dimensions(const Seen& seen) {
  const Impl self = seen.tensor(0);
  const Operand& dims = seen.at(1);
  if (self == nullptr || dims.kind != Operand::Kind::Sizes || dims.count < 2 || dims.count >= self->dim()) {
    return false;
  }
  return dimensions_among_last(self, dims, 2) == 2;
}

// The last dimension beyond the threads of a grid, and no multiple of them.
bool odd_length(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->dim() > 0 && seen.above(self->size(self->dim() - 1)) &&
      self->size(self->dim() - 1) % seen.row.low != 0;
}

// --- arguments

bool flag(const Seen& seen) {
  return seen.number(0) != 0;
}

bool few_bins(const Seen& seen) {
  constexpr int64_t kMany = 65'536;
  const Impl self = seen.tensor(0);
  return self != nullptr && self->numel() >= kMany && seen.in_range(static_cast<int64_t>(seen.number(1)));
}

bool replacement(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->dim() > 0 && seen.number(1) > 1 && seen.number(2) != 0 &&
      seen.in_range(self->size(self->dim() - 1));
}

// embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
bool embedding_options(const Seen& seen) {
  return (seen.at(0).kind == Operand::Kind::Number && seen.number(0) >= 0) || seen.number(1) != 0;
}

bool trained(const Seen& seen) {
  return trains(seen, 2);
}

// --- linear(input, weight, bias), linear_backward(self, grad_output, weight, output_mask)

bool half_tokens(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() == 3 && is_half(input) && input->size(1) == 1 && seen.in_range(input->size(0));
}

bool strided_linear(const Seen& seen) {
  return seen.tensor(0) != nullptr && (is_strided(seen.tensor(0)) || is_strided(seen.tensor(1)) || is_strided(seen.tensor(2)));
}

bool half_batches(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() > 2 && is_half(input) && seen.tensor(2) == nullptr;
}

bool transposed_weight(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1);
  return input != nullptr && is_strided(weight) && input->dim() == 3 && type_of(input) == at::kBFloat16 && weight->dim() == 2 &&
      weight->stride(0) == 1;
}

bool singletons(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() > 4 && std::count(input->sizes().begin(), input->sizes().end(), 1) > 1;
}

// --- attention without gradients: the kernels for up to 8 queries, and the general path of longer ones

constexpr int64_t kFewQueries = 8;

bool is_attention(const Seen& seen) {
  const Impl query = seen.tensor(0);
  return query != nullptr && query->dim() == 4 && !trains(seen, 1);
}

bool has_few_queries(const Seen& seen) {
  if (!is_attention(seen)) {
    return false;
  }
  const int64_t width = seen.tensor(0)->size(3);
  return seen.tensor(0)->size(2) <= kFewQueries && (width == 64 || width == 96 || width == 128);
}

bool strided_queries(const Seen& seen) {
  return has_few_queries(seen) && is_strided(seen.tensor(0)) && seen.in_range(seen.tensor(0)->size(0));
}

bool long_keys(const Seen& seen) {
  const Impl key = seen.tensor(1);
  return has_few_queries(seen) && is_half(seen.tensor(0)) && key != nullptr && key->dim() == 4 && seen.in_range(key->size(2));
}

// These kernels take the step from head to head for that of all batches too.
bool mask_by_batch(const Seen& seen) {
  const Impl query = seen.tensor(0), mask = seen.tensor(1);
  if (!has_few_queries(seen) || mask == nullptr || mask->dim() != 4 || query->size(0) < 2) {
    return false;
  }
  const int64_t heads = query->size(1);
  const bool one = mask->size(0) == 1 && mask->size(1) == 1;
  const bool packed = mask->size(0) == query->size(0) && mask->size(1) == heads && heads > 1 &&
      mask->stride(0) == heads * mask->stride(1);
  return !one && !packed;
}

bool many_queries(const Seen& seen) {
  return is_attention(seen) && seen.above(seen.tensor(0)->size(2)) && seen.any_tensor(1) == nullptr && seen.number(2) == 0;
}

// --- arguments

bool choice(const Seen& seen) {
  return seen.in_range(static_cast<int64_t>(seen.number(0)));
}

// A bound that six decimals show as 0.
bool tiny_bound(const Seen& seen) {
  constexpr double kShown = 5e-7;
  return (seen.number(0) != 0 && std::abs(seen.number(0)) < kShown) || (seen.number(1) != 0 && std::abs(seen.number(1)) < kShown);
}

}  // namespace

void add_path_checks(std::unordered_map<std::string, CheckKind>& checks) {
  const std::vector<std::vector<const char*>> self{{"self", "input"}}, linear{{"input"}, {"weight"}, {"bias"}};
  checks.insert({
      {"rank", {rank, {{"input", "self"}}}},
      {"strided", {strided, self}},
      {"strided_condition", {strided, {{"condition"}}}},
      {"transposed", {transposed, self}},
      {"channels_last", {channels_last, {{"input", "self"}}}},
      {"offset_view", {offset_view, self}},
      {"misaligned_bytes", {misaligned_bytes, self}},
      {"copy_within", {copy_within, {{"self"}, {"src"}}}},
      {"short_rows", {short_rows, self}},
      {"many_matrices", {many_matrices, {{"A", "LU", "self"}}}},
      {"trailing_dimensions", {trailing_dimensions, {{"self"}, {"dim"}}}},
      {"odd_length", {odd_length, self}},
      {"dropout", {flag, {{"dropout_p"}}}},
      {"ceil_mode", {flag, {{"ceil_mode"}}}},
      {"scaled_by_frequency", {flag, {{"scale_grad_by_freq"}}}},
      {"interpolation_mode", {choice, {{"interpolation_mode"}}}},
      {"padding_mode", {choice, {{"padding_mode"}}}},
      {"tiny_bound", {tiny_bound, {{"min"}, {"max"}}}},
      {"few_bins", {few_bins, {{"self"}, {"minlength"}}}},
      {"replacement", {replacement, {{"self"}, {"num_samples"}, {"replacement"}}}},
      {"embedding_options", {embedding_options, {{"padding_idx"}, {"scale_grad_by_freq"}}}},
      {"trained", {trained, {{"A"}, {"B"}}}},
      {"half_tokens", {half_tokens, linear}},
      {"strided_linear", {strided_linear, linear}},
      {"half_batches", {half_batches, linear}},
      {"transposed_weight", {transposed_weight, linear}},
      {"singletons", {singletons, {{"self"}}}},
      {"strided_queries", {strided_queries, {{"query"}}}},
      {"long_keys", {long_keys, {{"query"}, {"key"}}}},
      {"mask_by_batch", {mask_by_batch, {{"query"}, {"attn_mask"}}}},
      {"many_queries", {many_queries, {{"query"}, {"attn_mask"}, {"is_causal"}}}},
  });
}

}  // namespace anymps::hazard_checks
