// What ranks tell each other, as threads of one process and, under `mpirun parallel_test`, as
// processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "parallel/mpi_ranks.h"
#include "parallel/thread_ranks.h"

namespace winnow::parallel {
namespace {

// A value that depends on rank and place, and rounds when it is added up.
float value_of(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(3 + rank) + 1e-3F * static_cast<float>(i % 97);
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = value_of(rank, i);
  }
  return values;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

void sums_in_the_order_of_ranks(Communicator& ranks) {
  for (const std::size_t count : {1, 5, 4096, 4097, 100003}) {
    std::vector<float> values = values_of(ranks.rank(), count);
    ranks.sum(values);
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0.0F;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        expected += value_of(rank, i);
      }
      ASSERT_EQ(values[i], expected) << "value " << i << " of " << count;
    }
  }
}

void broadcasts_what_the_first_has(Communicator& ranks) {
  for (const std::size_t count : {1, 1024, 300000}) {
    std::vector<float> values = values_of(ranks.rank(), count);
    ranks.broadcast(std::as_writable_bytes(std::span(values)));
    ASSERT_EQ(values, values_of(0, count));
  }
}

void gathers_in_the_order_of_ranks(Communicator& ranks) {
  const auto all = ranks.gather(bytes_of(std::string(static_cast<std::size_t>(ranks.rank()), 'x')));
  if (ranks.rank() != 0) {
    EXPECT_TRUE(all.empty());
    return;
  }
  ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank], bytes_of(std::string(rank, 'x')));
  }
}

void meets(Communicator& ranks) {
  ranks.meet();
}

void stays_in_step(Communicator& ranks) {
  for (int round = 0; round < 100; ++round) {
    std::vector<float> one{static_cast<float>(round)};
    ranks.sum(one);
    ASSERT_EQ(one[0], static_cast<float>(round * ranks.size()));
    std::vector<std::byte> byte{std::byte(ranks.rank() == 0 ? round : 255)};
    ranks.broadcast(byte);
    ASSERT_EQ(byte[0], std::byte(round));
  }
}

using Conversation = void (*)(Communicator&);

constexpr Conversation kConversations[] = {sums_in_the_order_of_ranks,
                                           broadcasts_what_the_first_has,
                                           gathers_in_the_order_of_ranks, meets, stays_in_step};

// Runs `body` on threads, a rank each.
void on_threads(std::vector<std::unique_ptr<Communicator>> ranks,
                const std::function<void(Communicator&)>& body) {
  std::vector<std::jthread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&body, &rank] { body(*rank); });
  }
}

class ThreadRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Values(1, 2, 3, 5));

TEST_P(ThreadRanks, Converse) {
  for (const Conversation converse : kConversations) {
    on_threads(make_thread_ranks(GetParam()), converse);
  }
}

TEST(FailedThreadRank, TellsTheOthersWhy) {
  on_threads(make_thread_ranks(3), [](Communicator& ranks) {
    if (ranks.rank() == 2) {
      return ranks.fail("rank 2: out of memory");
    }
    std::vector<float> values(8);
    try {
      ranks.sum(values);
      ADD_FAILURE() << "a sum without rank 2";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 2: out of memory");
    }
  });
}

TEST(MissingThreadRank, IsNotWaitedForForever) {
  on_threads(make_thread_ranks(3, /*patience=*/0.05), [](Communicator& ranks) {
    std::vector<float> values(8);
    if (ranks.rank() != 2) {
      EXPECT_THROW(ranks.sum(values), Error);
      EXPECT_THROW(ranks.gather({}), Error);  // also later
    }
  });
}

TEST(ThreadRanksBroadcast, WaitsForTheFirstAsLongAsItTakes) {
  on_threads(make_thread_ranks(2, /*patience=*/0.05), [](Communicator& ranks) {
    std::vector<std::byte> byte{std::byte(ranks.rank())};
    if (ranks.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    ranks.broadcast(byte);
    EXPECT_EQ(byte[0], std::byte(0));
  });
}

// Of all processes that `mpirun -n N parallel_test --gtest_filter='MpiRanks.*'` starts.
TEST(MpiRanks, Converse) {
  const auto place = launched_as();
  if (!place) {
    GTEST_SKIP() << "not started by mpirun";
  }
  const auto ranks = join_mpi_ranks();
  EXPECT_EQ(ranks->rank(), place->rank);
  EXPECT_EQ(ranks->size(), place->size);
  for (const Conversation converse : kConversations) {
    converse(*ranks);
  }
}

}  // namespace
}  // namespace winnow::parallel
