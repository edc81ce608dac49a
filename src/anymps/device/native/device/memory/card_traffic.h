// Which threads are on their way to the card, so that what is known of its bytes holds for a kernel that relies on it.
//
// A card has one stream, and each thread queues on it: what is queued first runs first. A call looks at its arguments before it
// queues its kernels, and another thread may queue a write in between. Two rules keep what is known (known_integers.h) right:
// - It is learned only in a passage that no passage of another thread has overlapped. So whoever may write to those bytes has
//   queued that before, or begins after it was learned, and ends it.
// - Who ends it waits for the kernels that rely on it, and only then queues the write. So these come first in the stream.
// Waiting is short: from the question to the queue. Nobody waits for the card, or for a thread that wants the GIL.
#pragma once

namespace anymps::card_traffic {

// Around each call and each copy on a card: from before its arguments are looked at until its kernels are queued. May nest.
class Passage {
 public:
  explicit Passage(bool on_card) : on_card_(on_card) {
    if (on_card_) {
      begin();
    }
  }
  ~Passage() {
    if (on_card_) {
      end();
    }
  }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

 private:
  static void begin();
  static void end();
  const bool on_card_;
};

// Whether this thread is in a passage that none of another thread has overlapped so far. Whoever begins later sees all that this
// thread has written to memory before it asked.
bool has_been_alone();

// Around the question what is known and the kernel that relies on the answer. May nest.
class Use {
 public:
  Use();
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
};

// From now until the end of this thread's use, `wait_for_uses` of other threads waits. False where there is no use, or somebody
// waits already: then nothing may be relied on.
bool rely();

// Returns when no kernel of another thread relies any more on what had been known when it was called.
void wait_for_uses();

}  // namespace anymps::card_traffic
