// MPSHooks and the mps device guard: one device, everything in order.
#include "device/backend/backend.h"

#include "device/memory/books.h"
#include "device/backend/events.h"
#include "device/backend/generator.h"
#include "device/memory/memory.h"
#include "device/memory/waits.h"
#include "patches/patches.h"
#include "recorder/recorder.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <anymps/release.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>
#include <sstream>

namespace anymps {
namespace {

MacFacts facts;
bool tracing = false;

bool is_macos(unsigned major, unsigned minor) {
  return facts.macos_major > major || (facts.macos_major == major && facts.macos_minor >= minor);
}

bool is_macos_rounded(unsigned major, unsigned minor, unsigned checked) {
  TORCH_WARN("Can't check whether running on ", major, ".", minor, "+ returning one for ", major, ".", checked, "+");
  return is_macos(major, checked);
}

struct Hooks final : at::MPSHooksInterface {
  void init() const override {}
  bool hasMPS() const override {
    return true;
  }
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
  // The real hook checks a few versions only and rounds others, with these warnings (torch 2.11 to 2.15, MPSHooks.mm).
  bool isOnMacOSorNewer(unsigned major, unsigned minor) const override {
    if (major == 13 || (major == 14 && release::oldest_macos > 14)) {
      return true;
    }
    if (major == 14) {
      return minor == 0 || minor == 4 ? is_macos(14, minor) : is_macos_rounded(14, minor, 4);
    }
    if (major == 15) {
      return minor <= 2 ? is_macos(15, minor) : is_macos_rounded(15, minor, 1);
    }
    if (major == 26) {
      constexpr unsigned newest = release::newest_minor_of_macos_26;
      return minor == 0 || minor == newest ? is_macos(26, minor) : is_macos_rounded(26, minor, newest);
    }
    TORCH_WARN("Checking for unexpected MacOS ", major, ".", minor, " returning false");
    return false;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return new_generator();
  }
  at::Allocator* getMPSDeviceAllocator() const override {
    return mps_allocator();
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  c10::Device getDeviceFromPtr(void*) const override {
    return kMpsDevice;
  }
  void deviceSynchronize() const override {
    synchronize_device("anymps::synchronize");
  }
  void commitStream() const override {}
  void* getCommandBuffer() const override {
    return nullptr;
  }
  void* getDispatchQueue() const override {
    return nullptr;
  }
  void emptyCache() const override {
    empty_device_cache();
  }
  size_t getCurrentAllocatedMemory() const override {
    return books().model().current();
  }
  size_t getDriverAllocatedMemory() const override {
    return books().model().driver();
  }
  size_t getRecommendedMaxMemory() const override {
    return books().recommended_max();
  }
  size_t getMaxBufferLength() const {  // an override from 2.13 on
    return books().max_buffer();
  }
  void setMemoryFraction(double ratio) const override {
    books().model().set_memory_fraction(ratio);
  }

  // Texts of torch 2.13, MPSProfiler.mm. Signposts go to the operating system's log on a Mac; here there is none.
  void profilerStartTrace(const std::string& mode, bool) const override {
    TORCH_CHECK(!tracing, "Tracing Signposts is already enabled ");
    std::stringstream tokens(mode);
    std::string token;
    bool any = false;
    while (std::getline(tokens, token, ',')) {
      if (token.empty()) {
        continue;
      }
      TORCH_CHECK(token == "interval" || token == "event", "Invalid Signpost trace mode: ", token);
      any = true;
    }
    tracing = any;
  }
  void profilerStopTrace() const override {
    tracing = false;
  }

  uint32_t acquireEvent(bool timing) const override {
    return events::acquire(timing);
  }
  void releaseEvent(uint32_t id) const override {
    events::release(id);
  }
  void recordEvent(uint32_t id) const override {
    events::record(id);
  }
  void waitForEvent(uint32_t id) const override {
    events::wait(id);
  }
  void synchronizeEvent(uint32_t id) const override {
    events::synchronize(id);
  }
  bool queryEvent(uint32_t id) const override {
    return events::query(id);
  }
  double elapsedTimeOfEvents(uint32_t start, uint32_t end) const override {
    return events::elapsed_ms(start, end);
  }
};

// Behaviour of MPSGuardImpl in torch 2.11 to 2.15: every device is mps:0. Like it, this one cannot query or synchronize a
// single stream: torch then says so.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::MPS;

  c10::DeviceType type() const override {
    return c10::DeviceType::MPS;
  }
  c10::Device exchangeDevice(c10::Device) const override {
    return kMpsDevice;
  }
  c10::Device getDevice() const override {
    return kMpsDevice;
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_mps(), "Expected a MPS device, but got ", device);
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getDefaultStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kMpsDevice);
  }
  c10::Stream getStream(c10::Device device) const override {
    return release::several_streams ? streams::current() : getDefaultStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return release::several_streams ? streams::next() : getDefaultStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream former = getStream(kMpsDevice);
    if constexpr (release::several_streams) {
      streams::set_current(stream.id());
    }
    return former;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }

  // torch 2.10 to 2.15, MPSGuardImpl.h: what get_device_capability() names as supported.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    auto& bits = capability.capability_data.capability_bits;
    bits = 0;
    for (const auto index :
         {c10::kIndex_Byte, c10::kIndex_Char, c10::kIndex_Short, c10::kIndex_Int, c10::kIndex_Long, c10::kIndex_Half,
          c10::kIndex_Float, c10::kIndex_ComplexHalf, c10::kIndex_ComplexFloat, c10::kIndex_Bool, c10::kIndex_BFloat16,
          c10::kIndex_UInt16, c10::kIndex_UInt32, c10::kIndex_UInt64}) {
      bits |= 1ull << index;
    }
    if constexpr (release::float8_e4m3fn) {
      bits |= 1ull << c10::kIndex_Float8_e4m3fn;
    }
    return capability;
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) {
      auto* id = static_cast<uint32_t*>(event);
      try {
        events::release(*id);
      } catch (...) {
      }
      delete id;
    }
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag) const override {
    TORCH_CHECK(
        device == -1 || device == stream.device_index(),
        "Event device index ",
        static_cast<int>(device),
        " does not match recording stream's device index ",
        static_cast<int>(stream.device_index()),
        ".");
    if constexpr (release::several_streams) {
      streams::by_id(stream.id());
    }
    if (*event == nullptr) {
      *event = new uint32_t(events::acquire(flag == c10::EventFlag::BACKEND_DEFAULT));
    }
    events::record(*static_cast<uint32_t*>(*event));
  }
  void block(void* event, const c10::Stream&) const override {
    if (event != nullptr) {
      events::wait(*static_cast<uint32_t*>(event));
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || events::query(*static_cast<uint32_t*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      events::synchronize(*static_cast<uint32_t*>(event));
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    return events::elapsed_ms(*static_cast<uint32_t*>(start), *static_cast<uint32_t*>(end));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    synchronize_device("anymps::synchronize");
  }
};

Hooks the_hooks;

bool answer_false(const void*) {
  return false;
}

}  // namespace

bool is_macos_at_least(unsigned major, unsigned minor) {
  return is_macos(major, minor);
}

void install_backend(const MacFacts& mac) {
  facts = mac;
  // The hooks object is made once, at the first question, and then kept for good: a subclass registered later would never
  // be asked.
  patches::replace_virtuals(const_cast<at::MPSHooksInterface*>(&at::detail::getMPSHooks()), &the_hooks);
  c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::MPS, new Guard);
}

void hide_cuda() {
  const auto& live = at::detail::getCUDAHooks();
  if (!live.isBuilt()) {
    return;
  }
  // A pointer to a virtual member function holds the offset of its slot in the table, plus one (Itanium C++ ABI).
  auto member = &at::AcceleratorHooksInterface::isBuilt;
  uintptr_t offset = 0;
  std::memcpy(&offset, &member, sizeof(offset));
  TORCH_CHECK(
      patches::replace_virtual(&live, offset - 1, reinterpret_cast<void*>(&answer_false)),
      "anymps: cannot take CUDA out of sight (mprotect failed)");
}

}  // namespace anymps
