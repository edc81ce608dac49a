// All locks of the core, taken before a fork and given back after it.
#include "locks/locks.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace anymps {
namespace {

struct Locks {
  std::mutex mutex;  // over the list
  std::vector<std::mutex*> all;
};

Locks& locks();

// All or none, as nobody knows in which order others take them.
void take_all() {
  Locks& l = locks();
  for (;; std::this_thread::yield()) {
    l.mutex.lock();
    size_t taken = 0;
    while (taken < l.all.size() && l.all[taken]->try_lock()) ++taken;
    if (taken == l.all.size()) return;
    while (taken > 0) l.all[--taken]->unlock();
    l.mutex.unlock();
  }
}

void give_all_back() {
  Locks& l = locks();
  for (std::mutex* each : l.all) each->unlock();
  l.mutex.unlock();
}

Locks& locks() {
  static Locks* const the_locks = [] {
    pthread_atfork(&take_all, &give_all_back, &give_all_back);
    return new Locks;  // never destroyed: locks may go after static objects
  }();
  return *the_locks;
}

}  // namespace

Mutex::Mutex() { fork_waits_for(*this); }

Mutex::~Mutex() {
  Locks& l = locks();
  std::lock_guard<std::mutex> guard(l.mutex);
  l.all.erase(std::find(l.all.begin(), l.all.end(), this));
}

void fork_waits_for(std::mutex& lock) {
  Locks& l = locks();
  std::lock_guard<std::mutex> guard(l.mutex);
  l.all.push_back(&lock);
}

}  // namespace anymps
