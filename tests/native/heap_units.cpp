// The parts of the heap model, each alone, and the replay of a trace.
#include "check.h"
#include "model/heap_blocks.h"
#include "model/model.h"

#include <random>
#include <set>
#include <thread>
#include <tuple>

namespace {

using namespace anymps;

constexpr uint64_t kGiB = uint64_t{1} << 30;

HeapConfig config(int minor, uint64_t recommended = 8 * kGiB) {
  HeapConfig config;
  config.torch_minor = minor;
  config.generation = generation_of(minor);
  config.recommended_max = recommended;
  config.max_buffer = recommended / 2;
  return config;
}

struct ByOrder {
  bool operator()(const Block* a, const Block* b) const { return std::tie(a->size, a->address) < std::tie(b->size, b->address); }
};

// The real allocator keeps its free blocks in a std::set: the same questions get the same answers.
TEST(free_blocks_answer_as_an_ordered_set) {
  std::mt19937 random(7);
  FreeBlocks blocks;
  std::set<Block*, ByOrder> reference;
  std::vector<Block> all(600);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].size = 256 * (1 + random() % 40);
    all[i].address = i << 20;
  }
  for (int step = 0; step < 20000; ++step) {
    Block* block = &all[random() % all.size()];
    if (reference.erase(block) != 0) {
      FreeBlocks::erase(block);
    } else {
      blocks.insert(block);
      reference.insert(block);
    }
    Block wanted;
    wanted.size = 256 * (random() % 44);
    const auto found = reference.lower_bound(&wanted);
    EXPECT(blocks.lower_bound(wanted.size) == (found == reference.end() ? nullptr : *found));
    EXPECT(blocks.largest() == (reference.empty() ? nullptr : *reference.rbegin()));
    if (check::failures() != 0) return;
  }
  EXPECT(blocks.ordered() == std::vector<Block*>(reference.begin(), reference.end()));
  blocks.clear();
  EXPECT(blocks.largest() == nullptr);
}

TEST(a_heap_joins_its_gaps_and_measures_from_a_page) {
  MetalHeap heap;
  heap.gaps = {{3 * kPage, kPage}, {0, 100}, {100, 2 * kPage}, {5 * kPage + 1, kPage}};
  heap.stale = true;
  EXPECT_EQUAL(heap.measure_available(), uint64_t{2 * kPage + 100});  // the first two are one, and it begins on a page
  EXPECT_EQUAL(heap.gaps.size(), size_t{3});
  heap.gaps = {{1, kPage - 1}};
  heap.stale = true;
  EXPECT_EQUAL(heap.measure_available(), uint64_t{0});  // it ends where the next page begins
  heap.gaps.clear();
  EXPECT_EQUAL(heap.measure_available(), uint64_t{0});
}

TEST(a_heap_measures_again_only_when_it_has_changed) {
  MetalHeap heap;
  heap.gaps = {{0, kPage}};
  EXPECT_EQUAL(heap.measure_available(), uint64_t{0});
  heap.stale = true;
  EXPECT_EQUAL(heap.measure_available(), uint64_t{kPage});
}

TEST(dropped_nodes_come_again_clean) {
  NodeStore<Block> nodes;
  Block* first = nodes.make();
  Block* second = nodes.make();
  first->size = 7;
  nodes.drop(first);
  Block* again = nodes.make();
  EXPECT(again == first);
  EXPECT_EQUAL(again->size, uint64_t{0});
  EXPECT(nodes.make() != second);
}

TEST(threads_share_a_model) {
  for (const int minor : {7, 8, 11, 12, 13, 14, 15}) {
    HeapModel model;
    model.configure(config(minor));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&model, i] {
        std::mt19937 random(i);
        std::vector<Block*> mine;
        for (int step = 0; step < 2000; ++step) {
          if (mine.size() < 20) {
            mine.push_back(model.allocate(1 + random() % 2000000));
          } else {
            model.release(mine.back());
            mine.pop_back();
          }
        }
        for (Block* block : mine) model.release(block);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQUAL(model.current(), uint64_t{0});
    EXPECT_EQUAL(model.live_blocks(), uint64_t{0});
    EXPECT_EQUAL(model.allocated().allocated, model.allocated().freed);
  }
}

TEST(a_replay_tells_peaks) {
  const Replayed replayed = replay(config(13), {1000, 0, 3000, -1, -3, 500});
  EXPECT_EQUAL(replayed.peak_allocated, uint64_t{1024 + 3072});
  EXPECT_EQUAL(replayed.peak_reserved, uint64_t{8} << 20);
  EXPECT_EQUAL(replayed.failed, int64_t{-1});
  EXPECT_EQUAL(replayed.message, std::string());
}

TEST(a_replay_stops_where_memory_runs_out) {
  HeapConfig small = config(13, kGiB);
  small.high_ratio = 1.0;
  small.low_ratio = 1.0;
  small.max_buffer = 4 * kGiB;
  const auto half = static_cast<int64_t>(kGiB / 2 + 1);
  const Replayed replayed = replay(small, {half, -1, half, half, 5});
  EXPECT_EQUAL(replayed.failed, int64_t{3});
  EXPECT_EQUAL(
      replayed.message,
      std::string("MPS backend out of memory (MPS allocated: 514.00 MiB, other allocations: 0 bytes, max allowed: 1024.00 MiB). "
                  "Tried to allocate 512.00 MiB on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper "
                  "limit for memory allocations (may cause system failure)."));
  EXPECT_EQUAL(replay(small, {static_cast<int64_t>(4 * kGiB)}).message, std::string("Invalid buffer size: 4.00 GiB"));
}

TEST(a_replay_refuses_a_trace_that_makes_no_sense) {
  EXPECT_THROWS(std::invalid_argument, "anymps: the trace frees what it has not allocated", replay(config(13), {1000, -2}));
}

}  // namespace

int main(int count, char** names) { return check::run(count, names); }
