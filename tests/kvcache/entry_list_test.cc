#include "kvcache/entry_list.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace winnow::kvcache {
namespace {

const ops::PageLayout kLayout(ops::EntryFormat::f32, 8);

void write(EntryList::Place place, float value) {
  std::vector<float> row(8, value);
  const auto codes = std::as_writable_bytes(std::span(row));
  const ops::QuantizedRow quantized{codes, {}};
  ops::store_entry(kLayout, place.page, place.slot, quantized, quantized);
}

float read(const EntryList& list, int index) {
  std::vector<float> key(8);
  std::vector<float> value(8);
  const auto place = list.at(index);
  ops::load_entry(kLayout, place.page, place.slot, key, value);
  EXPECT_EQ(key, value);
  return key.front();
}

class Lists : public ::testing::Test {
 protected:
  void fill(EntryList& list, int count, float first = 0.0F) {
    for (int i = 0; i < count; ++i) {
      write(list.push(), first + static_cast<float>(i));
    }
  }
  PagePool pool_{kLayout, 100 * kLayout.page_bytes()};
};

TEST_F(Lists, TakesAPageForEverySixteenEntries) {
  EntryList list(pool_);
  for (int i = 0; i < 50; ++i) {
    write(list.push(), static_cast<float>(i));
    EXPECT_EQ(list.size(), i + 1);
    EXPECT_EQ(pool_.live_pages(), static_cast<std::size_t>(i / 16 + 1));
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(read(list, i), static_cast<float>(i));
  }
  while (list.size() > 0) {
    list.pop();
    EXPECT_EQ(pool_.live_pages(), static_cast<std::size_t>((list.size() + 15) / 16));
  }
}

TEST_F(Lists, ACopySharesPagesUntilOneOfThemWrites) {
  EntryList list(pool_);
  fill(list, 20);
  EntryList copy(list);
  EXPECT_EQ(pool_.live_pages(), 2U);
  write(copy.push(), 100.0F);  // copies the second page only
  EXPECT_EQ(pool_.live_pages(), 3U);
  write(list.push(), 200.0F);  // now alone on its page
  EXPECT_EQ(pool_.live_pages(), 3U);
  write(copy.writable(3), 300.0F);
  EXPECT_EQ(pool_.live_pages(), 4U);
  EXPECT_EQ(read(list, 20), 200.0F);
  EXPECT_EQ(read(copy, 20), 100.0F);
  EXPECT_EQ(read(list, 3), 3.0F);
  EXPECT_EQ(read(copy, 3), 300.0F);
  for (const int same : {0, 2, 4, 15, 16, 19}) {
    EXPECT_EQ(read(list, same), static_cast<float>(same));
    EXPECT_EQ(read(copy, same), static_cast<float>(same));
  }
}

TEST_F(Lists, BothGoOnFromAnyLength) {
  for (int length = 0; length <= 33; ++length) {
    EntryList list(pool_);
    fill(list, length);
    EntryList copy(list);
    fill(list, 18, 100.0F);
    fill(copy, 18, 200.0F);
    for (int i = 0; i < length + 18; ++i) {
      const auto offset = static_cast<float>(i - length);
      EXPECT_EQ(read(list, i), i < length ? static_cast<float>(i) : 100.0F + offset) << length;
      EXPECT_EQ(read(copy, i), i < length ? static_cast<float>(i) : 200.0F + offset) << length;
    }
  }
  EXPECT_EQ(pool_.live_pages(), 0U);
}

TEST_F(Lists, ReleaseInAnyOrder) {
  for (const bool original_first : {true, false}) {
    auto list = std::make_unique<EntryList>(pool_);
    fill(*list, 40);
    auto copy = std::make_unique<EntryList>(*list);
    auto other = std::make_unique<EntryList>(*copy);
    write(other->push(), 1.0F);
    (original_first ? list : other).reset();
    EXPECT_EQ(read(*copy, 39), 39.0F);
    EXPECT_EQ(pool_.live_pages(), original_first ? 4U : 3U);
    copy.reset();
    list.reset();
    other.reset();
    EXPECT_EQ(pool_.live_pages(), 0U);
  }
}

TEST_F(Lists, PoppingASharedPageLeavesItToItsOwner) {
  EntryList list(pool_);
  fill(list, 17);
  EntryList copy(list);
  copy.pop();
  EXPECT_EQ(copy.pages().size(), 1U);
  EXPECT_EQ(pool_.live_pages(), 2U);
  EXPECT_EQ(read(list, 16), 16.0F);
  write(copy.push(), 5.0F);
  EXPECT_EQ(read(list, 16), 16.0F);
  EXPECT_EQ(read(copy, 16), 5.0F);
}

TEST_F(Lists, MoveAndAssign) {
  EntryList list(pool_);
  fill(list, 17);
  EntryList moved(std::move(list));
  EXPECT_EQ(moved.size(), 17);
  EntryList target(pool_);
  fill(target, 40, 500.0F);
  target = std::move(moved);
  EXPECT_EQ(pool_.live_pages(), 2U);
  const EntryList& self = target;
  target = self;
  EXPECT_EQ(pool_.live_pages(), 2U);
  EXPECT_EQ(read(target, 16), 16.0F);
  target.clear();
  EXPECT_EQ(pool_.live_pages(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache
