#include "kvcache/page_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"

namespace winnow::kvcache {
namespace {

const ops::PageLayout kPoolLayout(ops::EntryFormat::bf16, 8);

TEST(PagePool, CountsWhatItHandsOut) {
  PagePool pool(kPoolLayout, 10 * kPoolLayout.page_bytes() + 1);
  EXPECT_EQ(pool.capacity(), 10U);
  EXPECT_EQ(pool.bytes(), 0U);
  const PageId a = pool.allocate();
  const PageId b = pool.allocate();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.live_pages(), 2U);
  EXPECT_EQ(pool.bytes(), 2 * (kPoolLayout.page_bytes() + sizeof(std::uint32_t)));
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.live_pages(), 0U);
  EXPECT_EQ(pool.peak_pages(), 2U);
  EXPECT_EQ(pool.bytes(), 0U);
}

TEST(PagePool, PagesDoNotOverlap) {
  PagePool pool(kPoolLayout, 4 * kPoolLayout.page_bytes());
  std::vector<PageId> pages;
  for (int i = 0; i < 4; ++i) {
    pages.push_back(pool.allocate());
    std::memset(pool.page(pages.back()), i, kPoolLayout.page_bytes());
  }
  for (int i = 0; i < 4; ++i) {
    const std::byte* page = pool.page(pages[static_cast<std::size_t>(i)]);
    EXPECT_EQ(page[0], static_cast<std::byte>(i));
    EXPECT_EQ(page[kPoolLayout.page_bytes() - 1], static_cast<std::byte>(i));
    pool.release(pages[static_cast<std::size_t>(i)]);
  }
}

TEST(PagePool, AFreedPageIsUsedBeforeNewMemory) {
  PagePool pool(kPoolLayout, 100 * kPoolLayout.page_bytes());
  std::vector<PageId> pages;
  for (int i = 0; i < 5; ++i) {
    pages.push_back(pool.allocate());
  }
  pool.release(pages[1]);
  pool.release(pages[3]);
  const std::set<PageId> again{pool.allocate(), pool.allocate()};
  EXPECT_EQ(again, (std::set<PageId>{pages[1], pages[3]}));
  EXPECT_EQ(pool.allocate(), 5U);
}

TEST(PagePool, TheLastOwnerFreesAPage) {
  PagePool pool(kPoolLayout, 2 * kPoolLayout.page_bytes());
  const PageId page = pool.allocate();
  EXPECT_FALSE(pool.is_shared(page));
  pool.share(page);
  pool.share(page);
  EXPECT_TRUE(pool.is_shared(page));
  EXPECT_EQ(pool.live_pages(), 1U);
  pool.release(page);
  pool.release(page);
  EXPECT_FALSE(pool.is_shared(page));
  EXPECT_EQ(pool.live_pages(), 1U);
  pool.release(page);
  EXPECT_EQ(pool.live_pages(), 0U);
}

TEST(PagePool, RunningOutIsAnErrorAndNothingIsLost) {
  PagePool pool(kPoolLayout, 2 * kPoolLayout.page_bytes());
  const PageId first = pool.allocate();
  pool.allocate();
  EXPECT_THROW(pool.allocate(), Error);
  EXPECT_EQ(pool.live_pages(), 2U);
  pool.release(first);
  EXPECT_EQ(pool.allocate(), first);
  EXPECT_THROW(PagePool(kPoolLayout, kPoolLayout.page_bytes() - 1), Error);
}

// Heads append on several threads: one checks if its page is shared while another allocates.
TEST(PagePool, ManyThreads) {
  constexpr int kPages = 20000;
  PagePool pool(kPoolLayout, 4 * kPages * kPoolLayout.page_bytes());
  std::atomic<int> wrong = 0;
  const auto work = [&pool, &wrong] {
    std::vector<PageId> mine;
    for (int i = 0; i < kPages; ++i) {
      mine.push_back(pool.allocate());
      wrong += pool.is_shared(mine[static_cast<std::size_t>(i) / 2]) ? 1 : 0;
      pool.share(mine.back());
      wrong += pool.is_shared(mine.back()) ? 0 : 1;
      pool.release(mine.back());
    }
    for (const PageId page : mine) {
      pool.release(page);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.live_pages(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache
