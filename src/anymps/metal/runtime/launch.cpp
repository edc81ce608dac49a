// A dispatch cut into pieces, boxes of the grid or groups, which workers take one after the other.
#include "launch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include <msl/float_state.h>

#include "ask.h"
#include "fibers.h"
#include "guard.h"

namespace anymps_rt {
namespace {

// One launch, shared by the workers that run it.
struct Job : Stoppable {
  const Kernel* kernel;
  Launch launch;
  uint64_t pieces = 1;  // boxes of a plain kernel, else groups; those that are wanted end there
  unsigned at_once = 1;  // pieces that a worker takes
  uint64_t tiles[3];    // of a plain kernel: how many boxes along each axis
  unsigned tile[3];
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  Report report{};
};

Box box_of(const Job& job, uint64_t piece) {
  Box box;
  for (unsigned axis = 0; axis < 3; ++axis) {
    const uint64_t index = piece % job.tiles[axis];
    piece /= job.tiles[axis];
    const uint64_t from = index * job.tile[axis];
    const uint64_t to = from + job.tile[axis];
    box.from[axis] = static_cast<unsigned>(from);
    box.to[axis] = static_cast<unsigned>(to < job.launch.grid[axis] ? to : job.launch.grid[axis]);
  }
  return box;
}

// Which group a piece is.
void find_group(const Job& job, uint64_t piece, Group& group) {
  group.threads = 1;
  for (unsigned axis = 0; axis < 3; ++axis) {
    group.position[axis] = static_cast<unsigned>(piece % job.launch.groups[axis]);
    piece /= job.launch.groups[axis];
    const unsigned left = job.launch.grid[axis] - group.position[axis] * job.launch.group[axis];
    group.size[axis] = left < job.launch.group[axis] ? left : job.launch.group[axis];
    group.threads *= group.size[axis];
  }
}

// The one behind it, which is that piece.
void find_next(const Job& job, uint64_t piece, Group& group) {
  if (group.position[0] + 2 < job.launch.groups[0]) {  // neither of the two is at the edge: they are of one size
    ++group.position[0];
  } else {
    find_group(job, piece, group);
  }
}

void place_in(const Group& group, unsigned index, unsigned (&local)[3]) {
  local[0] = index % group.size[0];
  local[1] = index / group.size[0] % group.size[1];
  local[2] = index / group.size[0] / group.size[1];
}

struct Team {
  const Kernel* kernel;
  const Group* group;
};
void run_thread(void* context, unsigned index) {
  const Team& team = *static_cast<const Team*>(context);
  Thread thread{team.group->launch, team.group, {}, index};
  place_in(*team.group, index, thread.local);
  team.kernel->thread(thread);
}

// Groups side by side, each as a fiber.
struct Batch {
  const Job* job;
  uint64_t first;
  Group groups[kMostTogether];
};
void run_in_batch(void* context, unsigned index) {
  Batch& batch = *static_cast<Batch*>(context);
  Group& group = batch.groups[index];
  group.launch = &batch.job->launch;
  group.shared = anymps_rt_shared();
  find_group(*batch.job, batch.first + index, group);
  batch.job->kernel->group(group);
}

const Lanes& lanes_of(const Kernel& kernel) {
  return *reinterpret_cast<const Lanes*>(reinterpret_cast<uintptr_t>(kernel.thread));
}

// Whether a thread that runs alone was stopped by what stopped several at once: a register holds the numbers of all.
bool is_same_fault(const Guard& guard, int signal, uintptr_t address) {
  constexpr uintptr_t kRegister = 64;
  return guard.caught == signal && (signal == SIGFPE || guard.address - address + kRegister <= 2 * kRegister);
}

// Which of `count` threads that ran in one loop stopped it; `count` if none does so again. They run once more for it, each
// alone, by run(i): what they write beside is lost with the launch.
template <class Run>
uint64_t find_thread(Guard& guard, uint64_t count, const Run& run) {
  const int signal = guard.caught;
  const uintptr_t address = guard.address;
  const bool faulted = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP;
  volatile uint64_t thread = 0;
  bool found = false;
  if (sigsetjmp(guard.out, kSaveMask) == 0) {
    guard.guarded = 1;
    while (faulted && thread < count) {
      run(thread);
      thread = thread + 1;
    }
    guard.guarded = 0;
  } else {
    guard.guarded = 0;
    found = is_same_fault(guard, signal, address);
  }
  guard.caught = signal;
  guard.address = address;
  return found ? thread : count;
}

enum Known : int { kNothing, kThread, kGroup };

// Where the thread that stopped the job is in the grid, or, of a group that runs as one, where that is.
Known find_position(const Job& job, Guard& guard, Fibers& fibers, const Group& group, uint64_t piece, unsigned (&position)[3]) {
  const Kernel& kernel = *job.kernel;
  if (kernel.form == Form::Plain) {
    const Box box = box_of(job, piece);
    const uint64_t across = box.to[0] - box.from[0], down = box.to[1] - box.from[1];
    const uint64_t count = across * down * (box.to[2] - box.from[2]);
    const auto one = [&](uint64_t thread) {
      const uint64_t at[3] = {thread % across, thread / across % down, thread / across / down};
      Box alone;
      for (unsigned axis = 0; axis < 3; ++axis) {
        alone.from[axis] = box.from[axis] + static_cast<unsigned>(at[axis]);
        alone.to[axis] = alone.from[axis] + 1;
      }
      return alone;
    };
    const uint64_t thread = find_thread(guard, count, [&](uint64_t again) { kernel.plain(job.launch, one(again)); });
    std::copy_n(one(thread).from, 3, position);
    return thread < count ? kThread : kNothing;
  }
  if (kernel.together != 0) {
    return kNothing;
  }
  if (!fibers.running) {
    std::copy_n(group.position, 3, position);
    return kernel.form == Form::Groups ? kGroup : kNothing;
  }
  unsigned thread = fibers.current;
  if (kernel.form == Form::Lanes) {
    const Fibers::Span& span = fibers.last_lanes();
    const unsigned count = span.to - span.from;
    const auto run = [&](uint64_t again) {
      fibers.run_lane_again(group, lanes_of(kernel), span.from + static_cast<unsigned>(again));
    };
    const auto found = static_cast<unsigned>(find_thread(guard, count, run));
    if (found == count) {
      return kNothing;
    }
    thread = span.from + found;
  }
  unsigned local[3];
  place_in(group, thread, local);
  for (unsigned axis = 0; axis < 3; ++axis) {
    position[axis] = group.position[axis] * job.launch.group[axis] + local[axis];
  }
  return kThread;
}

// Runs pieces of the job until none is left; a fault ends the job.
void work(void* context) {
  Job& job = *static_cast<Job*>(context);
  Guard& guard = Guard::mine();
  Fibers& fibers = Fibers::mine();
  Group group{&job.launch, {}, {}, 0, fibers.shared_of_current()};
  Team team{job.kernel, &group};
  Batch batch{&job, 0, {}};
  volatile uint64_t last = 0;  // piece
  const unsigned long state = float_state();
  if (sigsetjmp(guard.out, kSaveMask) == 0) {
    guard.of = &job;
    guard.base = static_cast<char*>(__builtin_frame_address(0));
    guard.guarded = 1;
    while (!job.stopped.load(std::memory_order_relaxed)) {
      const uint64_t piece = job.next.fetch_add(job.at_once, std::memory_order_relaxed);
      if (piece >= job.pieces) {
        break;
      }
      const uint64_t left = job.pieces - piece, count = left < job.at_once ? left : job.at_once;
      if (job.kernel->form == Form::Plain) {
        last = piece;
        job.kernel->plain(job.launch, box_of(job, piece));
        continue;
      }
      if (job.kernel->together != 0) {
        batch.first = piece;
        Fibers::of_groups().run(static_cast<unsigned>(count), run_in_batch, &batch);
        continue;
      }
      find_group(job, piece, group);
      if (job.kernel->form == Form::Groups) {
        job.kernel->group(group);
        for (uint64_t i = 1; i < count && !job.stopped.load(std::memory_order_relaxed); ++i) {
          find_next(job, piece + i, group);
          job.kernel->group(group);
        }
      } else if (job.kernel->form == Form::Lanes) {
        fibers.run_lanes(group, lanes_of(*job.kernel));
      } else {
        fibers.run(group.threads, run_thread, &team);
      }
    }
    guard.guarded = 0;
    return;
  }
  // A fault: the fibers of the group are left where they are.
  guard.guarded = 0;
  unsigned position[3];
  const Known known = find_position(job, guard, fibers, group, last, position);
  set_float_state(state);  // compiled kernels have subnormal floats be zero
  const std::lock_guard<std::mutex> lock(job.mutex);
  if (job.report.signal == 0) {
    job.report.signal = guard.caught;
    job.report.address = guard.address;
    job.report.known = known;
    if (known != kNothing) {
      std::copy_n(position, 3, job.report.position);
    }
  }
  Fibers::drop();
  job.stopped.store(true, std::memory_order_relaxed);
}

// Runs a kernel over a grid, or only `count` groups of it from `first` on, if that is not 0.
int launch(
    const Kernel* kernel, void* const* buffers, const unsigned* grid, const unsigned* group, unsigned workers, uint64_t first,
    uint64_t count, Report* report) {
  Job job;
  job.kernel = kernel;
  job.launch.buffers = buffers;
  uint64_t threads = 1;
  for (unsigned axis = 0; axis < 3; ++axis) {
    job.launch.grid[axis] = grid[axis];
    job.launch.group[axis] = group[axis];
    job.launch.groups[axis] = (grid[axis] + group[axis] - 1) / group[axis];
    threads *= grid[axis];
  }
  if (kernel->form == Form::Plain) {
    const bool flat = grid[1] == 1 && grid[2] == 1;
    job.tile[0] = flat ? 16384 : (grid[1] == 1 ? 4096 : 64);
    job.tile[1] = flat ? 1 : 64;
    job.tile[2] = 1;
    if (count != 0) std::copy_n(group, 3, job.tile);
    for (unsigned axis = 0; axis < 3; ++axis) {
      job.tiles[axis] = (grid[axis] + job.tile[axis] - 1) / job.tile[axis];
      job.pieces *= job.tiles[axis];
    }
  } else {
    for (unsigned axis = 0; axis < 3; ++axis) {
      job.pieces *= job.launch.groups[axis];
    }
  }
  uint64_t pieces = job.pieces;
  if (count != 0) {
    job.next = first;
    job.pieces = first + count;
    pieces = count;
    threads = count * group[0] * group[1] * group[2];
  }
  if (workers > pieces) {
    workers = static_cast<unsigned>(pieces);
  }
  const uint64_t few = kernel->form == Form::Fibers ? 0 : 32768;
  if (threads < few || is_asking()) {
    workers = 1;  // to wake another thread takes longer, or the others are within a launch that waits for this one
  }
  if (kernel->form == Form::Groups && workers != 0) {
    // Where there are many groups a worker comes for eight parts of its share, so that all end at about the same time.
    const uint64_t most = kernel->together != 0 ? kMostTogether : 64, parts = kernel->together != 0 ? 1 : 8;
    const uint64_t each = pieces / (workers * parts);
    job.at_once = static_cast<unsigned>(each < 1 ? 1 : each < most ? each : most);
  }
  job.code = kernel->form == Form::Plain    ? reinterpret_cast<const void*>(kernel->plain)
             : kernel->form == Form::Groups ? reinterpret_cast<const void*>(kernel->group)
             : kernel->form == Form::Lanes  ? reinterpret_cast<const void*>(lanes_of(*kernel).run)
                                                       : reinterpret_cast<const void*>(kernel->thread);
  const Watch watch(job);
  if (workers > 1) {
    const auto meanwhile = [](void* context) { ask_meanwhile(*static_cast<Job*>(context)); };
    share_work(work, &job, workers, meanwhile);
  } else if (pieces != 0) {
    work(&job);
  }
  if (job.stopped.load() && (job.report.signal == 0 || job.why.load() == kRaised)) {
    job.report.signal = job.why.load();  // also where no thread had to jump: it saw that it is to stop, or all work was done
  }
  *report = job.report;
  return job.report.signal;
}

}  // namespace
}  // namespace anymps_rt

extern "C" int anymps_rt_launch_groups(
    const anymps_rt::Kernel* kernel, void* const* buffers, const unsigned* grid, const unsigned* group, uint64_t first,
    uint64_t count, unsigned workers, anymps_rt::Report* report) {
  return anymps_rt::launch(kernel, buffers, grid, group, workers, first, count, report);
}

static thread_local anymps_rt::Report last_report;

extern "C" int anymps_rt_call(const anymps_rt::Kernel* kernel, const char* packed, const unsigned* plan, unsigned workers) {
  constexpr unsigned kShape = 6, kFew = 64;
  const unsigned count = plan[kShape];
  const unsigned* const places = plan + kShape + 1;
  void* few[kFew];
  std::vector<void*> many(count > kFew ? count : 0);
  void** const buffers = count > kFew ? many.data() : few;
  for (unsigned i = 0; i < count; ++i) {
    const char* const place = packed + (places[i] & ~1u);
    if ((places[i] & 1u) != 0) {
      buffers[i] = const_cast<char*>(place);
    } else {
      std::memcpy(&buffers[i], place, sizeof(void*));
    }
  }
  anymps_rt::Report report;
  const int signal = anymps_rt::launch(kernel, buffers, plan, plan + 3, workers, 0, 0, &report);
  if (signal != 0) {
    last_report = report;
  }
  return signal;
}

extern "C" void anymps_rt_last_report(anymps_rt::Report* report) {
  *report = last_report;
}
