// How known faults of matrix products and linear layers are recognised (anymps/rules/faults).
#include "rules/hazard_checks.h"

#include <algorithm>
#include <optional>

namespace anymps::hazard_checks {
namespace {

bool is_expanded(Impl tensor) {
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    if (tensor->stride(i) == 0 && tensor->size(i) > 1) {
      return true;
    }
  }
  return false;
}

constexpr int64_t kTile = 16;  // smaller results take another kernel

bool long_inner(const Seen& seen) {
  const Impl left = seen.tensor(0), right = seen.tensor(1);
  if (left == nullptr || right == nullptr || left->dim() < 1 || right->dim() < 1) {
    return false;
  }
  const int64_t inner = left->size(left->dim() - 1);
  return seen.in_range(inner) && left->numel() / inner >= kTile && right->numel() / inner >= kTile;
}

bool long_inner_backward(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1);
  if (input == nullptr || weight == nullptr || weight->dim() != 2 || weight->size(1) == 0) {
    return false;
  }
  const int64_t rows = input->numel() / weight->size(1);
  return (seen.wants(2, 1) && seen.in_range(rows) && weight->size(0) >= kTile && weight->size(1) >= kTile) ||
      (seen.wants(2, 0) && seen.in_range(weight->size(0)) && rows >= kTile && weight->size(1) >= kTile);
}

struct Batches {
  Impl left, right;
};

std::optional<Batches> batches(const Seen& seen) {
  const Impl left = seen.tensor(0), right = seen.tensor(1);
  if (left == nullptr || right == nullptr || left->dim() != 3 || right->dim() != 3) {
    return std::nullopt;
  }
  return Batches{left, right};
}

bool long_inner_batched(const Seen& seen) {
  const auto found = batches(seen);
  return found && seen.in_range(found->left->size(2)) && found->left->size(1) >= kTile && found->right->size(2) >= kTile;
}

bool expanded_matrix(const Seen& seen) {
  const Impl left = seen.tensor(0), right = seen.tensor(1);
  return left != nullptr && right != nullptr && (is_expanded(left) || is_expanded(right));
}

bool matmul_output(const Seen& seen) {
  const auto found = batches(seen);
  return found && (seen.above(found->left->size(0)) || seen.above(found->left->size(1)) || seen.above(found->right->size(2)));
}

bool huge_batched(const Seen& seen) {
  const auto found = batches(seen);
  if (!found || matmul_output(seen) || (found->left->is_contiguous() && found->right->is_contiguous())) {
    return false;
  }
  const int64_t result = found->left->size(0) * found->left->size(1) * found->right->size(2);
  return seen.above(std::max({result, found->left->numel(), found->right->numel()}));
}

// More than one matrix of float32, and the elements of all.
bool batched_matrices(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->dim() >= 3 && type_of(self) == at::kFloat && seen.in_range(self->numel()) &&
      self->numel() > self->size(self->dim() - 1) * self->size(self->dim() - 2);
}

// --- linear(input, weight, bias), linear_backward(self, grad_output, weight, output_mask)

// Apple's product of matrices with a bias: its kernel adds the bias in the same pass.
bool adds_bias(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && seen.tensor(2) != nullptr && input->dim() >= 3 && input->is_contiguous() &&
      type_of(input) == at::kFloat;
}

bool bias_of_batches(const Seen& seen) {
  return adds_bias(seen) && seen.above(seen.tensor(0)->size(seen.tensor(0)->dim() - 3));
}

bool bias_of_vectors(const Seen& seen) {
  return adds_bias(seen) && seen.tensor(0)->size(seen.tensor(0)->dim() - 2) == 1;
}

bool no_features(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1);
  return input != nullptr && weight != nullptr && input->dim() > 0 && weight->dim() == 2 && weight->size(1) == 0 &&
      weight->size(0) > 0 && std::all_of(input->sizes().begin(), input->sizes().end() - 1, [](int64_t size) { return size > 0; });
}

bool vector_weight_backward(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1);
  return input != nullptr && input->dim() >= 2 && weight != nullptr && weight->dim() == 1 && (seen.wants(2, 0) || seen.wants(2, 1));
}

// linalg_solve(A, B): B is a vector, or has fewer matrices than A.
bool broadcast_solve(const Seen& seen) {
  const Impl a = seen.tensor(0), b = seen.tensor(1);
  if (a == nullptr || b == nullptr || a->dim() < 3 || b->dim() < 1) {
    return false;
  }
  const auto batches = [](c10::IntArrayRef sizes, int64_t own) { return c10::multiply_integers(sizes.slice(0, sizes.size() - own)); };
  const bool vectors = b->dim() == 1 || (b->dim() == a->dim() - 1 && b->sizes() == a->sizes().slice(0, a->dim() - 1));
  return batches(b->sizes(), vectors ? 1 : 2) < batches(a->sizes(), 2);
}

// A layer with one output whose gradient lies expanded or with gaps, as that of `y.sum()` does.
bool single_output_backward(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1), gradient = seen.tensor(3);
  return input != nullptr && weight != nullptr && gradient != nullptr && weight->dim() == 2 && weight->size(0) == 1 &&
      seen.wants(2, 0) && !gradient->is_contiguous() && seen.above(bytes_of(input));
}

// baddbmm(self, batch1, batch2, beta, alpha): the summand is multiplied by 0 in place of left out.
bool ignored_summand(const Seen& seen) {
  const Impl summand = seen.tensor(0);
  return summand != nullptr && seen.at(1).kind == Operand::Kind::Number && seen.number(1) == 0 &&
      c10::isFloatingType(type_of(summand));
}

}  // namespace

void add_product_checks(std::unordered_map<std::string, CheckKind>& checks) {
  const std::vector<std::vector<const char*>> matrices{{"mat1", "input", "self"}, {"mat2", "weight"}},
      batched{{"batch1", "self"}, {"batch2", "mat2"}}, linear{{"input"}, {"weight"}, {"bias"}},
      backward{{"self"}, {"weight"}, {"output_mask"}, {"grad_output"}};
  checks.insert({
      {"long_inner", {long_inner, matrices}},
      {"broadcast_solve", {broadcast_solve, {{"A"}, {"B"}}}},
      {"long_inner_backward", {long_inner_backward, backward}},
      {"long_inner_batched", {long_inner_batched, batched}},
      {"expanded_matrix", {expanded_matrix, matrices}},
      {"huge_batched", {huge_batched, batched}},
      {"matmul_output", {matmul_output, batched}},
      {"batched_matrices", {batched_matrices, {{"A"}}}},
      {"bias_of_batches", {bias_of_batches, linear}},
      {"bias_of_vectors", {bias_of_vectors, linear}},
      {"no_features", {no_features, linear}},
      {"vector_weight_backward", {vector_weight_backward, backward}},
      {"single_output_backward", {single_output_backward, backward}},
      {"ignored_summand", {ignored_summand, {{"self"}, {"beta"}}}},
  });
}

}  // namespace anymps::hazard_checks
