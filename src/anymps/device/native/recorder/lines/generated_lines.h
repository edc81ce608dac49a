// Code that a compiler has written: the lines of the program that its lines compute.
#pragma once

#include <map>
#include <string>

namespace anymps {

struct CodePlace {
  std::string file, function;
  int line;  // 0: none of the program's
};
// By the first line of the written code that it holds for; it holds up to the next.
using GeneratedLines = std::map<int, CodePlace>;

// All of these want the GIL.
void place_lines(const std::string& file, GeneratedLines lines);
// Of a file that was written; null for all others. Lives as long as the process.
const GeneratedLines* generated_lines(const std::string& file);
// Null where a line of the written code computes none of the program's.
const CodePlace* place_of(const GeneratedLines& lines, int line);

}  // namespace anymps
