// torch.mps.Event and torch.Event on an in-order device: ids from a pool, host times, the real backend's error texts.
#pragma once

#include <cstdint>

namespace anymps::events {

uint32_t acquire(bool timing);
void release(uint32_t id);
void record(uint32_t id);
void wait(uint32_t id);
void synchronize(uint32_t id);
bool query(uint32_t id);
double elapsed_ms(uint32_t start, uint32_t end);

}  // namespace anymps::events
