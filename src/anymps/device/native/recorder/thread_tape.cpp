// Chunks from the tape, and what a thread forgets when a new tape starts.
#include "recorder/thread_tape.h"

#include <ATen/record_function.h>

namespace anymps {

TapeState& tape_state() {
  static TapeState* the_state = new TapeState;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

ThreadTape& my_tape() {
  thread_local ThreadTape tape;
  return tape;
}

OpenCalls& open_calls() {
  thread_local OpenCalls calls;
  return calls;
}

void ThreadTape::new_chunk() {
  TapeState& s = tape_state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.spare.empty()) {
    chunk = new Chunk;
  } else {
    chunk = s.spare.back();
    s.spare.pop_back();
    chunk->count.store(0, std::memory_order_relaxed);
    chunk->drained = 0;
  }
  s.chunks.push_back(chunk);
}

void ThreadTape::refresh() {
  TapeState& s = tape_state();
  const uint32_t current = s.generation.load(std::memory_order_acquire);
  if (C10_UNLIKELY(generation != current)) {
    std::lock_guard<std::mutex> lock(s.mutex);
    generation = current;
    index = s.threads++;
    torch_thread = at::RecordFunction::currentThreadId();
    chunk = nullptr;
    known = std::make_unique<KnownPositions>();
  }
}

}  // namespace anymps
