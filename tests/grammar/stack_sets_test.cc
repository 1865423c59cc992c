// Sets of stacks compared with lists of all their stacks.
#include "grammar/stack_sets.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

namespace winnow::grammar {
namespace {

using Stack = std::vector<std::int32_t>;  // the top comes last
using Listed = std::set<Stack>;

Stacks made_of(const Listed& stacks, StackSets& sets) {
  Stacks all = -1;
  for (const Stack& stack : stacks) {
    Stacks one = StackSets::kBottom;
    for (const std::int32_t node : stack) {
      one = sets.push(node, one);
    }
    all = all < 0 ? one : sets.unite(all, one);
  }
  return all;
}

Listed listed(Stacks stacks, const StackSets& sets) {
  Listed all;
  if (sets.at(stacks).bottom) {
    all.insert(Stack{});
  }
  for (const Place& top : sets.at(stacks).tops) {
    for (Stack stack : listed(top.stacks, sets)) {
      stack.push_back(top.node);
      all.insert(std::move(stack));
    }
  }
  return all;
}

rc::Gen<Listed> any_stacks() {
  return rc::gen::nonEmpty(
      rc::gen::container<Listed>(rc::gen::container<Stack>(rc::gen::inRange(0, 3))));
}

RC_GTEST_PROP(StackSets, HoldWhatWasPutIn, ()) {
  StackSets sets;
  const Listed stacks = *any_stacks();
  RC_ASSERT(listed(made_of(stacks, sets), sets) == stacks);
}

RC_GTEST_PROP(StackSets, AreEqualWhenTheirStacksAre, ()) {
  StackSets sets;
  const Listed left = *any_stacks();
  const Listed right = *any_stacks();
  Listed both = left;
  both.insert(right.begin(), right.end());
  const Stacks united = sets.unite(made_of(left, sets), made_of(right, sets));
  RC_ASSERT(united == made_of(both, sets));
  RC_ASSERT((made_of(left, sets) == made_of(right, sets)) == (left == right));
}

TEST(StackSets, MayBeAsDeepAsATextIsLong) {
  constexpr int kDepth = 200'000;
  StackSets sets;
  Stacks left = sets.push(1, StackSets::kBottom);
  Stacks right = sets.push(2, StackSets::kBottom);
  for (int depth = 0; depth < kDepth; ++depth) {
    left = sets.push(3, left);
    right = sets.push(3, right);
  }
  Stacks both = sets.unite(left, right);
  for (int depth = 0; depth < kDepth; ++depth) {
    ASSERT_EQ(sets.at(both).tops.size(), 1);
    both = sets.at(both).tops.front().stacks;
  }
  EXPECT_EQ(sets.at(both).tops.size(), 2);
}

}  // namespace
}  // namespace winnow::grammar
