// A table for each file that a compiler has written.
#include "recorder/lines/generated_lines.h"

#include <iterator>
#include <unordered_map>
#include <utility>

namespace anymps {
namespace {

std::unordered_map<std::string, GeneratedLines>& files() {
  static auto* tables = new std::unordered_map<std::string, GeneratedLines>();  // never destroyed: code outlives it
  return *tables;
}

}  // namespace

void place_lines(const std::string& file, GeneratedLines lines) {
  files()[file] = std::move(lines);
}

const GeneratedLines* generated_lines(const std::string& file) {
  const auto found = files().find(file);
  return found == files().end() ? nullptr : &found->second;
}

const CodePlace* place_of(const GeneratedLines& lines, int line) {
  const auto after = lines.upper_bound(line);
  if (after == lines.begin() || std::prev(after)->second.line == 0) {
    return nullptr;
  }
  return &std::prev(after)->second;
}

}  // namespace anymps
