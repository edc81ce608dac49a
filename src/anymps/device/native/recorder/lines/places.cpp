// Lines by the frames of Python, and by the autograd node.
#include "recorder/lines/places.h"

#include "recorder/lines/call_sites.h"
#include "recorder/program/progress.h"

namespace anymps {

void places::of_backward(Entry& entry, const BackwardNode& node) {
  entry.sequence = static_cast<int64_t>(node.sequence);
  entry.phase = static_cast<uint8_t>(Phase::Backward);
  entry.flags |= kAutogradThread;
  const forward_lines::Place place = forward_lines::find(node.thread, node.sequence);
  entry.module = place.module;
  entry.site = place.site;
  if (node.python) {
    if (const uint32_t own = current_site_in_backward()) {
      entry.site = own;
    }
  }
}

uint32_t current_place() {
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && progress::mine().call.module == 0) {
    places::of_backward(entry, node);
  }
  return entry.site != 0 ? entry.site : current_site();
}

}  // namespace anymps
