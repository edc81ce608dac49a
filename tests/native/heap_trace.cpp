// Drives the heap model from a trace on stdin: one command a line, one answer a line.
//
//   config G2 13 RECOMMENDED MAX_BUFFER HIGH LOW [unified=0] [baseline=BYTES] [metal_limit=BYTES]
//          a new model; HIGH and LOW are read as the environment variables are ("-": the default)
//   alloc NAME BYTES | free NAME | empty | fraction F | reset_peak | reset_accumulated | stats
//   format BYTES MINOR | ratio TEXT...
// A refusal is answered with "error CLASS: text".
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

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
