// Locks that fork() waits for.
#include "locks/locks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"

using anymps::Mutex;

TEST(a_child_finds_no_lock_taken_and_all_whole) {
  Mutex one, other;
  std::mutex foreign;
  anymps::fork_waits_for(foreign);
  int first = 0, second = 0, third = 0;  // alike wherever nobody holds a lock
  std::atomic<bool> over{false};
  std::atomic<int> begun{0};
  const auto work = [&](Mutex& outer, Mutex& inner) {
    for (int count = 0; !over; ++count) {
      {
        std::lock_guard<std::mutex> a(outer);
        std::lock_guard<std::mutex> b(foreign);
        ++first;
        ++second;
        ++third;
      }
      std::lock_guard<std::mutex> alone(inner);
      if (count == 0) ++begun;
    }
  };
  std::thread threads[] = {std::thread(work, std::ref(one), std::ref(other)), std::thread(work, std::ref(other), std::ref(one))};
  while (begun < 2) std::this_thread::yield();
  int failed = 0;
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const bool free = one.try_lock() && other.try_lock() && foreign.try_lock();
      _exit(free && first == second && second == third ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQUAL(failed, 0);
}

TEST(a_lock_that_is_gone_is_not_waited_for) {
  auto gone = std::make_unique<Mutex>();
  gone->lock();
  gone->unlock();
  gone.reset();
  const pid_t child = fork();
  if (child == 0) _exit(7);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQUAL(WEXITSTATUS(status), 7);
}

int main(int count, char** names) { return check::run(count, names); }
