// Drives the heap model from a trace on stdin: one command a line, one answer a line.
//
//   config G2 13 RECOMMENDED MAX_BUFFER HIGH LOW [unified=0] [baseline=BYTES] [metal_limit=BYTES]
//          a new model; HIGH and LOW are read as the environment variables are ("-": the default)
//   alloc NAME BYTES | free NAME | empty | fraction F | reset_peak | reset_accumulated | stats
//   format BYTES MINOR | ratio TEXT... | threads COUNT ROUNDS | bench PAIRS
// A refusal is answered with "error CLASS: text".
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "model/heap_blocks.h"

namespace {

using anymps::Block;
using anymps::HeapModel;

uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

void configure(HeapModel& model, std::istringstream& words) {
  anymps::HeapConfig config;
  std::string generation, recommended, max_buffer, high, low, option;
  words >> generation >> config.torch_minor >> recommended >> max_buffer >> high >> low;
  config.generation = generation == "G1"   ? anymps::HeapGeneration::G1
                      : generation == "G2" ? anymps::HeapGeneration::G2
                                           : anymps::HeapGeneration::G3;
  config.recommended_max = number(recommended);
  config.max_buffer = number(max_buffer);
  if (high != "-") config.high_ratio = anymps::parse_ratio(high.c_str());
  if (low != "-") config.low_ratio = anymps::parse_ratio(low.c_str());
  while (words >> option) {
    const size_t sign = option.find('=');
    const uint64_t value = number(option.substr(sign + 1));
    if (option.compare(0, sign, "unified") == 0) config.unified = value != 0;
    if (option.compare(0, sign, "baseline") == 0) config.driver_baseline = value;
    if (option.compare(0, sign, "metal_limit") == 0) config.metal_limit = value;
  }
  model.configure(config);
}

// The steady state of a training loop: about 1000 live blocks of 50 sizes, freed and taken in varying order.
void bench(HeapModel& model, uint64_t pairs) {
  std::mt19937_64 random(1);
  std::vector<size_t> sizes;
  for (int i = 0; i < 50; ++i) sizes.push_back((i < 35 ? 256 : 65536) * (1 + random() % 400));
  std::vector<Block*> live;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < 1000; ++i) {
    wanted.push_back(sizes[random() % sizes.size()]);
    live.push_back(model.allocate(wanted.back()));
  }
  std::vector<uint32_t> order(1 << 16);
  for (uint32_t& each : order) each = static_cast<uint32_t>(random() % live.size());
  const auto run = [&](uint64_t count) {
    // Forty blocks are let go before forty are taken again: the free sets hold more than one block.
    for (uint64_t done = 0; done < count; done += 40) {
      for (uint64_t i = done; i < done + 40; ++i) {
        Block*& slot = live[order[i % order.size()]];
        if (slot != nullptr) model.release(slot);
        slot = nullptr;
      }
      for (uint64_t i = done; i < done + 40; ++i) {
        const uint32_t at = order[i % order.size()];
        if (live[at] == nullptr) live[at] = model.allocate(wanted[at]);
      }
    }
  };
  run(pairs / 10);
  std::vector<double> slices;  // nanoseconds a pair; the least disturbed one is the figure
  for (int slice = 0; slice < 11; ++slice) {
    const auto start = std::chrono::steady_clock::now();
    run(pairs / 11);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    slices.push_back(spent.count() / static_cast<double>(pairs / 11));
  }
  std::sort(slices.begin(), slices.end());
  std::cout << "bench " << slices.front() << " ns a pair at best, " << slices[5] << " in the median of 11 slices, "
            << model.total() << " bytes of heaps\n";
  for (Block* block : live) model.release(block);
}

// Threads that allocate and free at once; afterwards nothing may be in use.
void threads(HeapModel& model, uint64_t count, uint64_t rounds) {
  std::vector<std::thread> workers;
  for (uint64_t seed = 0; seed < count; ++seed) {
    workers.emplace_back([&model, rounds, seed] {
      std::mt19937_64 random(seed);
      std::vector<Block*> live(32, nullptr);
      for (uint64_t i = 0; i < rounds; ++i) {
        Block*& slot = live[random() % live.size()];
        model.release(slot);
        slot = model.allocate(1 + random() % (4 << 20));
      }
      for (Block* block : live) model.release(block);
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::cout << "threads live=" << model.live_blocks() << " current=" << model.current() << '\n';
}

void answer(std::unique_ptr<HeapModel>& model, std::map<std::string, Block*>& live, const std::string& line) {
  std::istringstream words(line);
  std::string command, name, value;
  words >> command;
  if (command == "config") {
    live.clear();
    model = std::make_unique<HeapModel>();
    configure(*model, words);
    std::cout << "ok\n";
  } else if (command == "reconfig") {
    configure(*model, words);
    std::cout << "ok\n";
  } else if (command == "alloc") {
    words >> name >> value;
    live[name] = nullptr;  // a later "free" of a request that failed does nothing
    Block* block = live[name] = model->allocate(number(value));
    std::cout << "block";
    if (block != nullptr) {
      std::cout << " id=" << block->id << " size=" << HeapModel::block_size(block)
                << " nbytes=" << HeapModel::block_nbytes(block) << " heap=" << block->heap->id
                << " heap_size=" << block->heap->size << " offset=" << block->address - block->heap->base
                << " shared=" << block->heap->pool->shared;
    }
    std::cout << '\n';
  } else if (command == "free") {
    words >> name;
    model->release(live.at(name));
    live.erase(name);
    std::cout << "ok\n";
  } else if (command == "empty") {
    model->empty_cache();
    std::cout << "ok\n";
  } else if (command == "fraction") {
    words >> value;
    model->set_memory_fraction(std::strtod(value.c_str(), nullptr));
    std::cout << "ok\n";
  } else if (command == "reset_peak") {
    model->reset_peak();
    std::cout << "ok\n";
  } else if (command == "reset_accumulated") {
    model->reset_accumulated();
    std::cout << "ok\n";
  } else if (command == "stats") {
    const anymps::Statistic allocated = model->allocated();
    const anymps::Statistic reserved = model->reserved();
    std::cout << "stats current=" << model->current() << " total=" << model->total() << " driver=" << model->driver()
              << " peak_current=" << model->peak_current() << " peak_total=" << model->peak_total()
              << " allocated=" << allocated.allocated << " freed=" << allocated.freed
              << " reserved=" << reserved.allocated << " returned=" << reserved.freed << " live=" << model->live_blocks()
              << " high_limit=" << model->high_limit() << " low_limit=" << model->low_limit() << '\n';
  } else if (command == "format") {
    int minor = 0;
    words >> value >> minor;
    std::cout << anymps::format_size(number(value), minor) << '\n';
  } else if (command == "ratio") {
    std::getline(words >> std::ws, value);
    std::cout << anymps::parse_ratio(value.c_str()) << '\n';
  } else if (command == "threads") {
    uint64_t count = 0, rounds = 0;
    words >> count >> rounds;
    threads(*model, count, rounds);
  } else if (command == "bench") {
    words >> value;
    bench(*model, number(value));
  } else {
    throw std::runtime_error("no such command: " + command);
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  auto model = std::make_unique<HeapModel>();
  std::map<std::string, Block*> live;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(model, live, line);
    } catch (const anymps::OutOfMemory& error) {
      std::cout << "error OutOfMemory: " << error.what() << '\n';
    } catch (const anymps::InvalidBufferSize& error) {
      std::cout << "error InvalidBufferSize: " << error.what() << '\n';
    } catch (const anymps::InvalidSetting& error) {
      std::cout << "error InvalidSetting: " << error.what() << '\n';
    } catch (const std::exception& error) {
      std::cout << "error exception: " << error.what() << '\n';
    }
  }
  return 0;
}
