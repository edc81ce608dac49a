// Layers that are one operator on a Mac and several on a CPU: LSTM with its backward, and max pooling without indices.
//
// Sizes of what LSTM saves for its backward: RnnOps.mm, torch 2.13. Which results are saved: derivatives.yaml.
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/redirect/unboxed.h"

#include <ATen/ops/_lstm_mps_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_mps_backward_ops.h>
#include <ATen/ops/max_pool2d_backward_ops.h>
#include <ATen/ops/max_pool2d_ops.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace anymps {
namespace {

// The sizes of an LSTM, and where among its tensors a layer and direction finds its own.
struct LstmShape {
  LstmShape(const at::Tensor& input, at::TensorList given, at::TensorList parameters, bool has_biases, int64_t layers, bool bidirectional, bool batch_first)
      : states(checked(given)),
        layers(layers),
        directions(bidirectional ? 2 : 1),
        steps(input.size(batch_first ? 1 : 0)),
        batch(input.size(batch_first ? 0 : 1)),
        hidden(states[0].size(2)),
        each(has_biases ? 4 : 2) {
    // Texts of torch's code for all devices (torch 2.13, RNN.cpp), which a Mac does not reach.
    TORCH_CHECK(steps > 0, "Expected sequence length to be larger than 0 in RNN");
    TORCH_CHECK(
        static_cast<int64_t>(parameters.size()) == layers * directions * each, "got an incorrect number of RNN parameters");
    check_dtypes(input, states, "hidden");
    check_dtypes(input, parameters, "parameter");
  }

  // at::lstm's text; a Mac's kernel reads past the end of the list.
  static at::TensorList checked(at::TensorList states) {
    TORCH_CHECK(states.size() == 2, "lstm expects two hidden states");
    return states;
  }

  static void check_dtypes(const at::Tensor& input, at::TensorList tensors, const char* what) {
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(
          tensor.scalar_type() == input.scalar_type(), "Input and ", what, " tensors are not the same dtype, found input tensor with ",
          input.scalar_type(), " and ", what, " tensor with ", tensor.scalar_type());
    }
  }

  // Which of the states and the parameters' groups it is.
  int64_t place(int64_t layer, int64_t direction) const {
    return layer * directions + direction;
  }
  // The gates or cells of one layer and direction, [steps, batch, width].
  at::Tensor part(const at::Tensor& saved, int64_t layer, int64_t direction) const {
    const int64_t width = saved.size(-1) / directions;
    return saved.select(0, layer).narrow(-1, direction * width, width);
  }
  // The step that comes `number`-th.
  int64_t step(int64_t number, int64_t direction) const {
    return direction == 0 ? number : steps - 1 - number;
  }

  at::TensorList states;  // hidden state and cell, as they were given
  int64_t layers, directions, steps, batch, hidden, each;
};

at::Tensor by_step(const at::Tensor& tensor, bool batch_first) {
  return batch_first ? tensor.transpose(0, 1) : tensor;
}

// A step from the sums of the inputs and of the state: state, cell and gates after it. A GPU has a kernel for it.
std::tuple<at::Tensor, at::Tensor, at::Tensor> step_cell(const at::Tensor& by_input, const at::Tensor& by_state, const at::Tensor& former) {
  if (by_input.is_cuda()) {
    return at::_thnn_fused_lstm_cell(by_input, by_state, former);
  }
  at::Tensor all = by_state.add(by_input);
  const std::vector<at::Tensor> gate = all.unsafe_chunk(4, 1);
  gate[0].sigmoid_();
  gate[1].sigmoid_();
  gate[2].tanh_();
  gate[3].sigmoid_();
  at::Tensor cell = gate[1].mul(former).add_(gate[0].mul(gate[2]));
  at::Tensor state = gate[3].mul(cell.tanh());
  return {std::move(state), std::move(cell), std::move(all)};
}

// The gradients of the sums and of the cell before the step, from those of the state and cell after it.
std::tuple<at::Tensor, at::Tensor> step_cell_back(
    const at::Tensor& to_state, const at::Tensor& to_cell, const at::Tensor& former, const at::Tensor& cell, const at::Tensor& gates) {
  if (gates.is_cuda()) {
    auto [to_gates, to_former, none] = at::_thnn_fused_lstm_cell_backward_impl(to_state, to_cell, former, cell, gates, /*has_bias=*/false);
    return {std::move(to_gates), std::move(to_former)};
  }
  const std::vector<at::Tensor> gate = gates.unsafe_chunk(4, 1);
  const at::Tensor squashed = cell.tanh();
  const at::Tensor to_this = to_cell.add(at::tanh_backward(to_state.mul(gate[3]), squashed));
  at::Tensor to_gates = at::empty(gates.sizes(), gates.options());
  const std::vector<at::Tensor> to_gate = to_gates.unsafe_chunk(4, 1);
  to_gate[0].copy_(at::sigmoid_backward(to_this.mul(gate[2]), gate[0]));
  to_gate[1].copy_(at::sigmoid_backward(to_this.mul(former), gate[1]));
  to_gate[2].copy_(at::tanh_backward(to_this.mul(gate[0]), gate[2]));
  to_gate[3].copy_(at::sigmoid_backward(to_state.mul(squashed), gate[3]));
  return {std::move(to_gates), to_this.mul(gate[1])};
}

struct Lstm : HostKernel {
  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

  static Results call(
      const Rule& rule,
      const at::Tensor& input,
      at::TensorList states,
      at::TensorList parameters,
      bool has_biases,
      int64_t layers,
      double dropout,
      bool train,
      bool bidirectional,
      bool batch_first) {
    const LstmShape shape(input, states, parameters, has_biases, layers, bidirectional, batch_first);
    TORCH_CHECK(
        !train || layers == 1 || (dropout >= 0 && dropout <= 1),
        "dropout probability has to be between 0 and 1, but got ", dropout);  // Dropout.cpp, which a Mac does not reach
    const auto options = input.options();
    const int64_t width = shape.hidden * shape.directions;
    const at::Tensor last = at::empty_like(states[0]), last_cell = at::empty_like(states[1]);
    const at::Tensor gates = at::empty({layers, shape.steps, shape.batch, 4 * width}, options);
    const at::Tensor cells = at::empty({layers, shape.steps, shape.batch, width}, options);
    // Not used by a single layer. Where there is dropout between layers, its scales, as the outputs follow from the rest.
    const at::Tensor between =
        layers > 1 ? at::empty({layers - 1, shape.steps, shape.batch, width}, options) : at::empty({1}, options);
    at::Tensor output = batch_first ? at::empty({shape.batch, shape.steps, width}, options)
                                    : at::empty({shape.steps, shape.batch, width}, options);
    if (input.is_meta()) {
      return {output, last, last_cell, gates, cells, between};
    }
    std::optional<HostGenerator> generator;
    at::Tensor below = by_step(input, batch_first);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool top = layer == layers - 1;
      at::Tensor out = top ? by_step(output, batch_first) : between.select(0, layer);
      for (int64_t direction = 0; direction < shape.directions; ++direction) {
        const int64_t place = shape.place(layer, direction);
        const at::TensorList own = parameters.slice(place * shape.each, shape.each);
        run(shape, direction, below, own, states[0].select(0, place), states[1].select(0, place), last.select(0, place),
            last_cell.select(0, place), shape.part(gates, layer, direction), shape.part(cells, layer, direction),
            out.narrow(-1, direction * shape.hidden, shape.hidden));
      }
      below = out;
      if (!top && train && dropout > 0.0) {
        if (!generator.has_value()) {
          generator.emplace(rule, std::nullopt);
        }
        at::Tensor scales = at::zeros(out.sizes(), options);
        if (dropout < 1.0) {
          const at::Tensor kept = scales.is_cpu() ? scales : at::zeros(out.sizes(), options.device(c10::kCPU));
          kept.bernoulli_(1.0 - dropout, generator->host()).div_(1.0 - dropout);
          scales = kept.to(scales.device());
        }
        below = out.mul(scales);
        out.copy_(scales);
      }
    }
    return {output, last, last_cell, gates, cells, between};
  }

 private:
  static void run(
      const LstmShape& shape,
      int64_t direction,
      const at::Tensor& below,
      at::TensorList own,
      at::Tensor state,
      at::Tensor cell,
      const at::Tensor& last,
      const at::Tensor& last_cell,
      const at::Tensor& gates,
      const at::Tensor& cells,
      const at::Tensor& out) {
    const bool biased = own.size() == 4;
    const auto bias = [&](size_t i) { return biased ? std::optional<at::Tensor>(own[i]) : std::nullopt; };
    const std::vector<at::Tensor> prepared = at::linear(below, own[0], bias(2)).unbind(0);
    const at::Tensor by_column = own[1].t();
    const auto from_state = [&] { return biased ? at::addmm(own[3], state, by_column) : state.mm(by_column); };  // as at::linear
    std::vector<at::Tensor> all_gates(shape.steps), all_cells(shape.steps), all_states(shape.steps);
    for (int64_t number = 0; number < shape.steps; ++number) {
      const auto t = static_cast<size_t>(shape.step(number, direction));
      std::tie(state, cell, all_gates[t]) = step_cell(prepared[t], from_state(), cell);
      all_cells[t] = cell;
      all_states[t] = state;
    }
    gates.copy_(at::stack(all_gates));
    cells.copy_(at::stack(all_cells));
    out.copy_(at::stack(all_states));
    last.copy_(state);
    last_cell.copy_(cell);
  }
};

struct LstmBackward : HostKernel {
  using Results = std::tuple<at::Tensor, std::vector<at::Tensor>, std::vector<at::Tensor>>;

  static Results call(
      const std::optional<at::Tensor>& to_output,
      const std::optional<at::Tensor>& to_last,
      const std::optional<at::Tensor>& to_last_cell,
      const at::Tensor& gates,
      const at::Tensor& cells,
      const at::Tensor& input,
      const at::Tensor& between,
      at::TensorList states,
      at::TensorList parameters,
      bool has_biases,
      int64_t layers,
      double dropout,
      bool train,
      bool bidirectional,
      bool batch_first) {
    const LstmShape shape(input, states, parameters, has_biases, layers, bidirectional, batch_first);
    const at::Tensor to_input = at::empty_like(input, at::MemoryFormat::Contiguous);
    std::vector<at::Tensor> to_states{at::empty_like(states[0]), at::empty_like(states[1])};
    std::vector<at::Tensor> to_parameters;
    for (const at::Tensor& parameter : parameters) {
      to_parameters.push_back(at::empty_like(parameter));
    }
    if (input.is_meta()) {
      return {to_input, to_states, to_parameters};
    }
    const bool dropped = train && dropout > 0.0;
    at::Tensor above = given(to_output)
        ? by_step(*to_output, batch_first)
        : at::zeros({shape.steps, shape.batch, shape.hidden * shape.directions}, input.options());
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      at::Tensor below = by_step(input, batch_first);
      if (layer > 0) {
        below = outputs(gates.select(0, layer - 1), cells.select(0, layer - 1), shape.directions);
        below = dropped ? below.mul_(between.select(0, layer - 1)) : below;
      }
      at::Tensor to_below = at::zeros(below.sizes(), input.options());
      for (int64_t direction = 0; direction < shape.directions; ++direction) {
        const int64_t place = shape.place(layer, direction);
        const at::TensorList own = parameters.slice(place * shape.each, shape.each);
        at::Tensor to_state = given(to_last) ? to_last->select(0, place) : at::zeros_like(states[0].select(0, place));
        at::Tensor to_cell = given(to_last_cell) ? to_last_cell->select(0, place) : at::zeros_like(states[1].select(0, place));
        const at::Tensor to_gates = run(
            shape, direction, above.narrow(-1, direction * shape.hidden, shape.hidden), own[1], states[1].select(0, place),
            shape.part(gates, layer, direction), shape.part(cells, layer, direction), to_state, to_cell);
        to_states[0].select(0, place).copy_(to_state);
        to_states[1].select(0, place).copy_(to_cell);
        to_below.add_(to_gates.matmul(own[0]));
        const at::Tensor rows = to_gates.flatten(0, 1).t();
        const auto first = static_cast<size_t>(place * shape.each);
        to_parameters[first].copy_(rows.mm(below.flatten(0, 1)));
        to_parameters[first + 1].copy_(rows.mm(before(shape, layer, direction, gates, cells, states[0].select(0, place)).flatten(0, 1)));
        for (size_t bias = first + 2; bias < first + static_cast<size_t>(shape.each); ++bias) {
          to_parameters[bias].copy_(rows.sum(1));
        }
      }
      above = layer > 0 && dropped ? to_below.mul_(between.select(0, layer - 1)) : to_below;
    }
    to_input.copy_(by_step(above, batch_first));
    return {to_input, to_states, to_parameters};
  }

 private:
  static bool given(const std::optional<at::Tensor>& gradient) {
    return gradient.has_value() && gradient->defined();
  }

  // What a layer has put out, from what was saved of it.
  static at::Tensor outputs(const at::Tensor& gates, const at::Tensor& cells, int64_t directions) {
    const int64_t hidden = cells.size(-1) / directions;
    at::Tensor out = cells.tanh();
    for (int64_t direction = 0; direction < directions; ++direction) {
      out.narrow(-1, direction * hidden, hidden).mul_(gates.narrow(-1, (direction * 4 + 3) * hidden, hidden));
    }
    return out;
  }

  // The state that each step began with.
  static at::Tensor before(
      const LstmShape& shape, int64_t layer, int64_t direction, const at::Tensor& gates, const at::Tensor& cells, const at::Tensor& state) {
    const at::Tensor after = outputs(shape.part(gates, layer, direction), shape.part(cells, layer, direction), 1);
    at::Tensor result = at::empty_like(after);
    result.select(0, shape.step(0, direction)).copy_(state);
    if (shape.steps > 1) {
      result.narrow(0, direction == 0 ? 1 : 0, shape.steps - 1).copy_(after.narrow(0, direction == 0 ? 0 : 1, shape.steps - 1));
    }
    return result;
  }

  // The gradient of the gates' sums; `to_state` and `to_cell` go from the last step's to those of the first states.
  static at::Tensor run(
      const LstmShape& shape,
      int64_t direction,
      const at::Tensor& above,
      const at::Tensor& weight,
      const at::Tensor& first_cell,
      const at::Tensor& gates,
      const at::Tensor& cells,
      at::Tensor& to_state,
      at::Tensor& to_cell) {
    const std::vector<at::Tensor> from_above = above.unbind(0), gate = gates.unbind(0), cell = cells.unbind(0);
    const bool on_gpu = gates.is_cuda();
    // On a GPU the product is added to what comes from above by its own kernel, in a copy.
    const std::vector<at::Tensor> sums = on_gpu ? above.clone(at::MemoryFormat::Contiguous).unbind(0) : from_above;
    std::vector<at::Tensor> to_gates(shape.steps);
    for (int64_t number = shape.steps - 1; number >= 0; --number) {
      const auto t = static_cast<size_t>(shape.step(number, direction));
      const auto next = static_cast<size_t>(shape.step(std::max<int64_t>(number - 1, 0), direction));
      const at::Tensor& former = number > 0 ? cell[next] : first_cell;
      const bool added = on_gpu && number < shape.steps - 1;
      std::tie(to_gates[t], to_cell) =
          step_cell_back(added ? to_state : to_state.add(from_above[t]), to_cell, former, cell[t], gate[t]);
      to_state = on_gpu && number > 0 ? sums[next].addmm_(to_gates[t], weight) : to_gates[t].mm(weight);
    }
    return at::stack(to_gates);
  }
};

// The CPU's kernel needs to know where the maxima are.
struct MaxPoolBackward : HostKernel {
  static at::Tensor call(
      const at::Tensor& gradient,
      const at::Tensor& input,
      c10::IntArrayRef kernel,
      c10::IntArrayRef stride,
      c10::IntArrayRef padding,
      c10::IntArrayRef dilation,
      bool ceil) {
    const at::Tensor where = std::get<1>(at::max_pool2d_with_indices(input, kernel, stride, padding, dilation, ceil));
    return at::max_pool2d_with_indices_backward(gradient, input, kernel, stride, padding, dilation, ceil, where);
  }
};

}  // namespace

void add_layer_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  add_unboxed<ops::_lstm_mps, Lstm>(table);
  add_unboxed<ops::lstm_mps_backward, LstmBackward>(table);
  add_unboxed<ops::max_pool2d>(table);
  add_unboxed<ops::max_pool2d_backward, MaxPoolBackward>(table);
}

}  // namespace anymps
