// Reads one command a line, prints one answer a line: the harness of tests/core/test_philox.py for philox.h.
//
//   fills and samplers   "<offset after> <value> <value> ..."; floats as hex floats, half and bfloat widened to float
//   refusals             "error <class> <text>"
#include "model/philox_launch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

using namespace anymps;

namespace {

constexpr std::size_t kGuard = 64;
constexpr unsigned char kCanary = 0xA5;

struct Overrun : std::logic_error {
  using std::logic_error::logic_error;
};

ElementType type_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(ElementType::boolean); ++i) {
    if (name == metal_name(static_cast<ElementType>(i))) return static_cast<ElementType>(i);
  }
  throw std::logic_error("unknown element type " + name);
}

// A destination between two guards, so that a fill that writes outside is seen.
class Buffer {
 public:
  Buffer(ElementType type, std::int64_t n)
      : type_(type), n_(n), bytes_(static_cast<std::size_t>(n) * element_size(type) + 2 * kGuard, kCanary) {}

  unsigned char* data() { return bytes_.data() + kGuard; }

  void store(std::int64_t i, double value) {
    const auto narrow = static_cast<float>(value);
    const std::uint16_t bits = type_ == ElementType::f16 ? philox::to_half(narrow) : philox::to_bfloat16(narrow);
    if (type_ == ElementType::f32) {
      std::memcpy(data() + 4 * i, &narrow, 4);
    } else {
      std::memcpy(data() + 2 * i, &bits, 2);
    }
  }

  void print(std::string& out) {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes_[i] != kCanary || bytes_[bytes_.size() - 1 - i] != kCanary) throw Overrun("wrote outside the buffer");
    }
    for (std::int64_t i = 0; i < n_; ++i) print_one(out, data() + static_cast<std::size_t>(i) * element_size(type_));
  }

 private:
  template <class T>
  static T as(const unsigned char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }

  void print_one(std::string& out, const unsigned char* at) const {
    char text[40];
    const auto floating = [&](float value) { std::snprintf(text, sizeof text, " %a", static_cast<double>(value)); };
    const auto whole = [&](long long value) { std::snprintf(text, sizeof text, " %lld", value); };
    switch (type_) {
      case ElementType::f32: floating(as<float>(at)); break;
      case ElementType::f16: floating(philox::from_half(as<std::uint16_t>(at))); break;
      case ElementType::bf16: floating(philox::from_bfloat16(as<std::uint16_t>(at))); break;
      case ElementType::u8:
      case ElementType::boolean: whole(*at); break;
      case ElementType::i8: whole(as<std::int8_t>(at)); break;
      case ElementType::i16: whole(as<std::int16_t>(at)); break;
      case ElementType::i32: whole(as<std::int32_t>(at)); break;
      case ElementType::i64: whole(as<std::int64_t>(at)); break;
      case ElementType::u16: whole(as<std::uint16_t>(at)); break;
      case ElementType::u32: whole(as<std::uint32_t>(at)); break;
      case ElementType::u64:
        std::snprintf(text, sizeof text, " %llu", static_cast<unsigned long long>(as<std::uint64_t>(at)));
        break;
    }
    out += text;
  }

  ElementType type_;
  std::int64_t n_;
  std::vector<unsigned char> bytes_;
};

class Trace {
 public:
  std::string answer(const std::string& line) {
    in_.clear();
    in_.str(line);
    const auto name = word();
    if (name == "default") return state_ = RandomState{}, "ok";
    if (name == "seed") return state_.manual_seed(natural()), "ok";
    if (name == "offset") return state_.offset = natural(), "ok";
    if (name == "release") return launch_.release = static_cast<int>(natural()), "ok";
    if (name == "limit") return launch_.index_limit = static_cast<std::int64_t>(natural()), "ok";
    return distribution(name);
  }

 private:
  std::string word() {
    std::string value;
    in_ >> value;
    if (value.empty()) throw std::logic_error("a word is missing in: " + in_.str());
    return value;
  }
  std::uint64_t natural() { return std::strtoull(word().c_str(), nullptr, 10); }
  std::int64_t integer() { return std::strtoll(word().c_str(), nullptr, 10); }
  double number_double() { return std::strtod(word().c_str(), nullptr); }
  float number() { return static_cast<float>(number_double()); }

  Buffer inputs(ElementType type, std::int64_t n) {
    Buffer values(type, n);
    for (std::int64_t i = 0; i < n; ++i) values.store(i, number_double());
    return values;
  }

  std::string finish(Buffer& values) {
    std::string out = std::to_string(state_.offset);
    values.print(out);
    return out;
  }

  std::string distribution(const std::string& name) {
    const ElementType type = type_of(word());
    if (name == "dirichlet") return dirichlet(type);
    if (name == "multinomial") return multinomial_rows(type);
    const std::int64_t n = integer();
    Buffer out(type, n);
    if (name == "uniform" || name == "normal" || name == "cauchy" || name == "log_normal") {
      const double a = number_double();
      const double b = number_double();
      const auto fill = name == "uniform"  ? fill_uniform
                        : name == "normal" ? fill_normal
                        : name == "cauchy" ? fill_cauchy
                                           : fill_log_normal;
      fill(state_, out.data(), n, type, a, b, launch_);
    } else if (name == "exponential" || name == "geometric" || name == "bernoulli") {
      const auto fill = name == "exponential" ? fill_exponential
                        : name == "geometric" ? fill_geometric
                                              : fill_bernoulli;
      fill(state_, out.data(), n, type, number_double(), launch_);
    } else if (name == "bernoulli_tensor") {
      std::vector<float> p;
      for (std::int64_t i = 0; i < n; ++i) p.push_back(number());
      fill_bernoulli_tensor(state_, out.data(), p.data(), n, type, launch_);
    } else if (name == "random_int") {
      const std::int64_t base = integer();
      fill_random_int(state_, out.data(), n, type, base, natural(), launch_);
    } else if (name == "randperm") {
      randperm(state_, out.data(), n, type, natural() != 0, launch_);
    } else if (name == "gamma" || name == "poisson") {
      Buffer in = inputs(type, n);
      (name == "gamma" ? sample_standard_gamma : sample_poisson)(state_, out.data(), in.data(), n, type, launch_);
    } else if (name == "binomial") {
      Buffer count = inputs(type, n);
      Buffer p = inputs(type, n);
      sample_binomial(state_, out.data(), count.data(), p.data(), n, type, launch_);
    } else {
      throw std::logic_error("unknown command " + name);
    }
    return finish(out);
  }

  std::string dirichlet(ElementType type) {
    const std::int64_t rows = integer();
    const std::int64_t columns = integer();
    Buffer alpha = inputs(type, rows * columns);
    Buffer out(type, rows * columns);
    sample_dirichlet(state_, out.data(), alpha.data(), rows, columns, type, launch_);
    return finish(out);
  }

  std::string multinomial_rows(ElementType type) {
    const std::int64_t rows = integer();
    const std::int64_t categories = integer();
    const std::int64_t samples = integer();
    const bool replacement = natural() != 0;
    Buffer weights = inputs(type, rows * categories);
    std::vector<std::int64_t> out(static_cast<std::size_t>(rows * samples), -1);
    const std::int64_t zeros =
        multinomial(state_, out.data(), weights.data(), rows, categories, samples, replacement, type, launch_);
    std::string text = std::to_string(state_.offset) + " " + std::to_string(zeros);
    for (const std::int64_t index : out) text += " " + std::to_string(index);
    return text;
  }

  std::istringstream in_;
  RandomState state_;
  Launch launch_;
};

const char* class_of(const std::exception& error) {
  if (dynamic_cast<const KernelMissing*>(&error)) return "KernelMissing";
  if (dynamic_cast<const TypeRefused*>(&error)) return "TypeRefused";
  if (dynamic_cast<const Overrun*>(&error)) return "Overrun";
  if (dynamic_cast<const std::invalid_argument*>(&error)) return "invalid_argument";
  if (dynamic_cast<const std::runtime_error*>(&error)) return "runtime_error";
  return "harness";
}

}  // namespace

int main() {
  Trace trace;
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      std::cout << trace.answer(line) << '\n';
    } catch (const std::exception& error) {
      std::cout << "error " << class_of(error) << ' ' << error.what() << '\n';
    }
  }
  return 0;
}
