// Tests of what the observer learns of the calls within a call.
#include "check.h"
#include "feeds/calls_within.h"

using anymps::observer::CallsWithin;

TEST(few_calls_within_are_counted_each_time) {
  CallsWithin within;
  for (int call = 0; call < 3; ++call) {
    EXPECT(!within.takes_many());
    within.counted(CallsWithin::kMany - 1);
  }
  EXPECT(!within.takes_many());
}

TEST(many_calls_within_are_believed_for_some_calls_and_counted_again) {
  CallsWithin within;
  EXPECT(!within.takes_many());
  within.counted(CallsWithin::kMany);
  for (uint32_t call = 0; call < CallsWithin::kBelieved; ++call) {
    EXPECT(within.takes_many());
  }
  EXPECT(!within.takes_many());
  within.counted(CallsWithin::kMany);
  EXPECT(within.takes_many());
}

TEST(what_one_call_did_is_unlearnt_by_a_later_one) {
  CallsWithin within;
  within.counted(CallsWithin::kMany);
  while (within.takes_many()) {
  }
  within.counted(0);
  EXPECT(!within.takes_many());
}

int main(int count, char** names) {
  return check::run(count, names);
}
