// The public face of the heap model: each call under the lock, facts of a block, generations, and sizes in words.
#include "model/heap_state.h"

#include <cstdlib>
#include <iomanip>
#include <sstream>

namespace anymps {

// The state, for one expression, under its lock.
template <class S>
struct Locked {
  explicit Locked(S& state) : state(state), guard(state.lock) {}
  S* operator->() const { return &state; }

  S& state;
  const std::lock_guard<std::mutex> guard;
};

HeapModel::HeapModel() : state_(std::make_unique<State>()) {}
HeapModel::~HeapModel() = default;

void HeapModel::configure(const HeapConfig& config) { Locked(*state_)->configure(config); }
void HeapModel::set_memory_fraction(double fraction) { Locked(*state_)->set_high_ratio(fraction); }
Block* HeapModel::allocate(size_t nbytes) { return Locked(*state_)->allocate(nbytes); }

void HeapModel::release(Block* block) noexcept {
  if (block != nullptr) Locked(*state_)->release(block);
}

uint64_t HeapModel::drains() const { return state_->drains.load(std::memory_order_relaxed); }
void HeapModel::empty_cache() { Locked(*state_)->empty_cache(); }
Statistic HeapModel::allocated() const { return Locked(*state_)->allocated; }
Statistic HeapModel::reserved() const { return Locked(*state_)->reserved; }
uint64_t HeapModel::driver() const { return Locked(*state_)->driver(); }
uint64_t HeapModel::high_limit() const { return Locked(*state_)->high_limit; }
uint64_t HeapModel::low_limit() const { return Locked(*state_)->low_limit; }
uint64_t HeapModel::live_blocks() const { return Locked(*state_)->live; }

void HeapModel::reset_peak() {
  std::lock_guard<std::mutex> guard(state_->lock);
  for (Statistic* each : {&state_->allocated, &state_->reserved}) each->peak = each->current;
}

void HeapModel::reset_accumulated() {
  std::lock_guard<std::mutex> guard(state_->lock);
  for (Statistic* each : {&state_->allocated, &state_->reserved}) each->allocated = each->freed = 0;
}

uint64_t HeapModel::current() const { return allocated().current; }
uint64_t HeapModel::total() const { return reserved().current; }
uint64_t HeapModel::peak_current() const { return allocated().peak; }
uint64_t HeapModel::peak_total() const { return reserved().peak; }

uint64_t HeapModel::block_size(const Block* block) { return block->size; }
uint64_t HeapModel::block_nbytes(const Block* block) { return block->nbytes; }
uint64_t HeapModel::block_current(const Block* block) { return block->current; }
uint64_t HeapModel::block_total(const Block* block) { return block->total; }
uint64_t HeapModel::block_address(const Block* block) { return block->address; }

HeapGeneration generation_of(int torch_minor) {
  if (torch_minor < 7 || torch_minor > 15) {
    throw std::invalid_argument("heap model: the allocator of torch 2." + std::to_string(torch_minor) +
                                " is not known (2.7 to 2.15 are)");
  }
  if (torch_minor < 12) return HeapGeneration::G1;
  return torch_minor < 14 ? HeapGeneration::G2 : HeapGeneration::G3;
}

std::string format_size(uint64_t bytes, int torch_minor) {
  const bool old = torch_minor < 8;  // 2.7 also narrows to float before it divides
  const double value = old ? static_cast<double>(static_cast<float>(bytes)) : static_cast<double>(bytes);
  const std::string suffix = old ? "B" : "iB";
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= kMiB) {
    text << value / 1024.0 << " K" << suffix;
  } else if (bytes <= 1024 * kMiB) {
    text << value / 1048576.0 << " M" << suffix;
  } else {
    text << value / 1073741824.0 << " G" << suffix;
  }
  return text.str();
}

double parse_ratio(const char* env_text) { return std::strtod(env_text, nullptr); }

// Replaying a trace on a heap model of its own.
Replayed replay(const HeapConfig& config, const std::vector<int64_t>& trace) {
  HeapModel model;
  model.configure(config);
  Replayed result;
  std::vector<Block*> blocks;
  for (size_t i = 0; i < trace.size(); ++i) {
    const int64_t step = trace[i];
    if (step >= 0) {
      try {
        blocks.push_back(step == 0 ? nullptr : model.allocate(static_cast<size_t>(step)));
      } catch (const RefusedRequest& error) {
        result.failed = static_cast<int64_t>(i);
        result.message = error.what();
        break;
      }
      continue;
    }
    const auto place = static_cast<size_t>(-step) - 1;
    if (place >= blocks.size()) {
      throw std::invalid_argument("anymps: the trace frees what it has not allocated");
    }
    model.release(blocks[place]);
    blocks[place] = nullptr;
  }
  result.peak_allocated = model.peak_current();
  result.peak_reserved = model.peak_total();
  return result;
}

}  // namespace anymps
