// The texts in force.
#include "rules/texts.h"

namespace anymps {

Texts& texts() {
  static Texts the_texts;
  return the_texts;
}

std::string fill_in(std::string text, const std::string& op) {
  static const std::string mark = "%OP%";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + op.size())) {
    text.replace(at, mark.size(), op);
  }
  return text;
}

}  // namespace anymps
