// Tests in plain C++: TEST names one, EXPECT says what does not hold and where. The program runs the tests that it is
// given by name, else all of them, and ends with the number of those that failed.
#pragma once

#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Entry {
  Entry(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

inline void fail(const char* file, int line, const std::string& what) {
  std::printf("%s:%d: %s\n", file, line, what.c_str());
  ++failures();
}

template <class Left, class Right>
void equal(const char* file, int line, const char* text, const Left& left, const Right& right) {
  if (!(left == right)) {
    std::ostringstream said;
    said << text << " is " << +left << ", not " << +right;
    fail(file, line, said.str());
  }
}
inline void equal(const char* file, int line, const char* text, const std::string& left, const std::string& right) {
  if (left != right) fail(file, line, std::string(text) + " is \"" + left + "\", not \"" + right + "\"");
}

template <class Error, class Body>
void throws(const char* file, int line, const std::string& message, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.what() != message) fail(file, line, std::string("raised \"") + error.what() + "\", not \"" + message + "\"");
    return;
  } catch (const std::exception& error) {
    fail(file, line, std::string("raised another class: ") + error.what());
    return;
  }
  fail(file, line, "raised nothing");
}

inline int run(int count, char** names) {
  std::setbuf(stdout, nullptr);  // a test that ends the program by force leaves its words
  int failed = 0;
  for (const Test& test : tests()) {
    bool wanted = count < 2;
    for (int i = 1; i < count; ++i) wanted |= std::string(names[i]) == test.name;
    if (!wanted) continue;
    failures() = 0;
    try {
      test.body();
    } catch (const std::exception& error) {
      fail(test.name, 0, std::string("raised ") + error.what());
    }
    std::printf("%s %s\n", failures() == 0 ? "passed" : "FAILED", test.name);
    failed += failures() != 0;
  }
  return failed;
}

}  // namespace check

#define TEST(NAME)                               \
  void NAME();                                   \
  const check::Entry entry_of_##NAME(#NAME, NAME); \
  void NAME()
#define EXPECT(CONDITION) \
  do {                    \
    if (!(CONDITION)) check::fail(__FILE__, __LINE__, #CONDITION); \
  } while (false)
#define EXPECT_EQUAL(LEFT, RIGHT) check::equal(__FILE__, __LINE__, #LEFT, LEFT, RIGHT)
#define EXPECT_THROWS(ERROR, MESSAGE, BODY) check::throws<ERROR>(__FILE__, __LINE__, MESSAGE, [&] { BODY; })
