// Steps of fused optimizers, in the arithmetic of their Metal kernels.
//
// The CPU's own round elsewhere, take 1 - beta in double, and leave most 16-bit numbers as they are in SGD (pytorch issue
// 191763). Source: aten/src/ATen/native/mps/kernels/FusedOptimizerOps.metal, and the kernels of torch 2.13's macOS wheel,
// which tell where a product and a sum are one operation (fma).
#include "kernels/random/drawing.h"
#include "kernels/kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <type_traits>

namespace anymps {
namespace fused_steps {  // the short names below belong to this file, also where files are compiled together
namespace {

using Lists = std::vector<std::vector<at::Tensor>>;

// a * b + c, rounded once: a product of two float32 is exact in double.
float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
}

template <class T>
float rounded(float value) {
  return static_cast<float>(static_cast<T>(value));
}

// to + factor * x. In 16 bits the product is rounded first.
template <class T>
float add_product(float factor, float x, float to) {
  if constexpr (std::is_same_v<T, float>) {
    return fused(factor, x, to);
  } else {
    return rounded<T>(to + rounded<T>(factor * x));
  }
}

// What a GradScaler has multiplied gradients by; 0 without one.
template <class T>
float unscaled(T& gradient, float scale) {
  if (scale != 0) {
    gradient = static_cast<T>(static_cast<float>(gradient) / scale);
  }
  return static_cast<float>(gradient);
}

struct Sgd {
  float decay, momentum, rate, dampening;
  bool nesterov, maximize, is_first;
  float scale;

  template <class T>
  void step(const std::vector<T*>& lists, float, int64_t begin, int64_t end) const {
    T *const params = lists[0], *const gradients = lists[1], *const momenta = lists.size() > 2 ? lists[2] : nullptr;
    for (int64_t i = begin; i < end; ++i) {
      const float param = static_cast<float>(params[i]);
      float change = unscaled(gradients[i], scale);
      change = maximize ? -change : change;
      change = decay != 0 ? add_product<T>(decay, param, change) : change;
      if (momenta != nullptr) {
        T& kept = momenta[i];
        kept = static_cast<T>(is_first ? change : fused(momentum, static_cast<float>(kept), (1 - dampening) * change));
        const float average = static_cast<float>(kept);
        change = nesterov ? add_product<T>(momentum, average, change) : average;
      }
      params[i] = static_cast<T>(add_product<T>(-rate, change, param));
    }
  }
};

struct Adam {
  float rate, beta1, beta2, decay, eps;
  bool amsgrad, maximize, decoupled;  // AdamW's decay is of the parameter itself
  float scale;

  template <class T>
  static T larger(T before, T now) {
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
      return before > now ? before : now;
    } else {
      return static_cast<T>(std::fmax(static_cast<float>(before), static_cast<float>(now)));  // NaN is no number
    }
  }

  template <class T>
  void step(const std::vector<T*>& lists, float steps, int64_t begin, int64_t end) const {
    const float size = rate / (1 - std::pow(beta1, steps));
    const float correction = std::sqrt(1 - std::pow(beta2, steps));
    T *const params = lists[0], *const gradients = lists[1], *const firsts = lists[2], *const seconds = lists[3];
    T* const largest = amsgrad ? lists[4] : nullptr;
    for (int64_t i = begin; i < end; ++i) {
      float param = static_cast<float>(params[i]);
      float gradient = unscaled(gradients[i], scale);
      gradient = maximize ? -gradient : gradient;
      if (decay != 0) {
        float& decayed = decoupled ? param : gradient;
        decayed = add_product<T>(decoupled ? -(rate * decay) : decay, param, decayed);
      }
      T &first = firsts[i], &second = seconds[i];
      first = static_cast<T>(fused(beta1, static_cast<float>(first), (1 - beta1) * gradient));
      second = static_cast<T>(fused(beta2, static_cast<float>(second), (1 - beta2) * gradient * gradient));
      float square = static_cast<float>(second);
      if (largest != nullptr) {
        largest[i] = larger(largest[i], second);
        square = static_cast<float>(largest[i]);
      }
      const float divisor = std::sqrt(square) / correction + eps;
      params[i] = static_cast<T>(param - rounded<T>(size * static_cast<float>(first) / divisor));
    }
  }
};

float count_of(const at::Tensor& steps) {
  switch (steps.scalar_type()) {
    case c10::ScalarType::Half: return static_cast<float>(*steps.const_data_ptr<c10::Half>());
    case c10::ScalarType::BFloat16: return static_cast<float>(*steps.const_data_ptr<c10::BFloat16>());
    default: return *steps.const_data_ptr<float>();
  }
}

// The step over each tensor of the lists, whose elements lie alike, side by side (limit_checks.cpp).
template <class T, class Settings>
void step_all(const Settings& settings, const Lists& lists, const std::vector<at::Tensor>& counts) {
  for (size_t at = 0; at < lists[0].size(); ++at) {
    std::vector<T*> data;
    for (const std::vector<at::Tensor>& list : lists) {
      data.push_back(static_cast<T*>(list[at].data_ptr()));
    }
    const float steps = counts.empty() ? 0 : count_of(counts[at]);
    drawing::launch().parallel_for(
        lists[0][at].numel(), [&](int64_t begin, int64_t end) { settings.step(data, steps, begin, end); });
  }
}

bool is_of(c10::ScalarType type) {
  return type == c10::ScalarType::Float || type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16;
}

// Whether these lists go together. Others are the CPU's kernel to refuse.
bool fit(const Lists& lists, const std::vector<at::Tensor>* counts) {
  if (lists[0].empty() || !is_of(lists[0][0].scalar_type())) {
    return false;
  }
  for (const std::vector<at::Tensor>& list : lists) {
    if (list.size() != lists[0].size()) {
      return false;
    }
    for (size_t at = 0; at < list.size(); ++at) {
      if (list[at].scalar_type() != lists[0][0].scalar_type() || list[at].numel() != lists[0][at].numel()) {
        return false;
      }
    }
  }
  for (size_t at = 0; counts != nullptr && at < lists[0].size(); ++at) {
    if (at >= counts->size() || !is_of((*counts)[at].scalar_type()) || (*counts)[at].numel() < 1) {
      return false;
    }
  }
  return true;
}

template <class Settings>
void run(const Settings& settings, const Lists& lists, const std::vector<at::Tensor>& counts) {
  switch (lists[0][0].scalar_type()) {
    case c10::ScalarType::Half: step_all<c10::Half>(settings, lists, counts); break;
    case c10::ScalarType::BFloat16: step_all<c10::BFloat16>(settings, lists, counts); break;
    default: step_all<float>(settings, lists, counts); break;
  }
}

float number(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item<float>() : static_cast<float>(value.toDouble());
}

// The last two arguments are what a GradScaler has found: the scale, and whether a gradient is infinite.
bool overflowed(const c10::IValue& found) {
  return found.isTensor() && found.toTensor().item<float>() == 1;
}

float scale_of(const c10::IValue& scale) {
  return scale.isTensor() ? scale.toTensor().item<float>() : 0;
}

bool step_sgd(const Rule&, std::vector<c10::IValue>& stack, size_t first) {
  const c10::IValue* given = stack.data() + first;
  Lists lists{given[0].toTensorVector(), given[1].toTensorVector()};
  std::vector<at::Tensor> momenta = given[2].toTensorVector();
  const double momentum = given[4].toDouble();
  if (momenta.empty() ? momentum != 0 : momentum <= 0) {
    return false;
  }
  if (!momenta.empty()) {
    lists.push_back(std::move(momenta));
  }
  if (!fit(lists, nullptr)) {
    return false;
  }
  const Sgd settings{number(given[3]), number(given[4]),  number(given[5]), number(given[6]), given[7].toBool(),
                     given[8].toBool(), given[9].toBool(), scale_of(given[10])};
  if (!overflowed(given[11])) {
    run(settings, lists, {});
  }
  stack.resize(first);
  return true;
}

template <bool decoupled>
bool step_adam(const Rule&, std::vector<c10::IValue>& stack, size_t first) {
  const c10::IValue* given = stack.data() + first;
  const bool amsgrad = given[11].toBool();
  Lists lists;
  const size_t count = amsgrad ? 5 : 4;
  for (size_t i = 0; i < count; ++i) {
    lists.push_back(given[i].toTensorVector());
  }
  const std::vector<at::Tensor> counts = given[5].toTensorVector();
  if (!fit(lists, &counts)) {
    return false;
  }
  const Adam settings{number(given[6]), number(given[7]),   number(given[8]), number(given[9]), number(given[10]),
                      amsgrad,          given[12].toBool(), decoupled,        scale_of(given[13])};
  if (!overflowed(given[14])) {
    run(settings, lists, counts);
  }
  stack.resize(first);
  return true;
}

}  // namespace
}  // namespace fused_steps

std::unordered_map<std::string, OwnComputation> own_computations() {
  using fused_steps::step_adam, fused_steps::step_sgd;
  return {
      {"aten::_fused_adam_", &step_adam<false>},
      {"aten::_fused_adam_.tensor_lr", &step_adam<false>},
      {"aten::_fused_adamw_", &step_adam<true>},
      {"aten::_fused_adamw_.tensor_lr", &step_adam<true>},
      {"aten::_fused_sgd_", &step_sgd},
      {"aten::_fused_sgd_.tensor_lr", &step_sgd},
  };
}

}  // namespace anymps
