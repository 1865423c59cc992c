// What ranks tell each other, as threads of one process, also over TCP, and as processes that a
// launcher has started (mpi_processes_test.py, tcp_processes_test.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/error_text.h"
#include "parallel/on_ranks.h"
#include "parallel/process_ranks.h"
#include "parallel/same_settings.h"
#include "parallel/single_rank.h"
#include "parallel/tcp_threads.h"
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

// Parts of different sizes, also of none, and larger than a message's piece.
std::vector<std::size_t> uneven_cuts(int ranks, std::size_t count) {
  std::vector<std::size_t> cuts{0};
  for (int rank = 1; rank < ranks; ++rank) {
    cuts.push_back(rank % 3 == 1 ? count / 8 : cuts.back());
  }
  cuts.push_back(count);
  return cuts;
}

void reduces_and_scatters(Communicator& ranks) {
  for (const std::size_t count : {1, 8, 4097, 3000001}) {
    const auto cuts = uneven_cuts(ranks.size(), count);
    std::vector<float> whole = values_of(ranks.rank(), count);
    std::vector<float> parts = whole;
    ranks.sum(whole);
    ranks.reduce_scatter(parts, cuts);
    const auto own = part_of(parts, cuts, ranks.rank());
    EXPECT_TRUE(std::ranges::equal(own, part_of(whole, cuts, ranks.rank())));
    if (ranks.rank() > 0 && cuts[1] > 0) {
      EXPECT_EQ(parts[0], value_of(ranks.rank(), 0));  // another's part stays
    }
    ranks.all_gather(parts, cuts);
    EXPECT_EQ(parts, whole);
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

void compares_settings(Communicator& ranks) {
  require_same_settings(ranks, "version 1\nlength 8\n");
  const auto compare = [&] {
    require_same_settings(ranks, fmt::format("version 1\nlength {}\n", 8 + ranks.rank()));
  };
  if (ranks.rank() == 0) {
    return compare();
  }
  try {
    compare();
    ADD_FAILURE() << "other settings";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), fmt::format("rank {}: has length {}, rank 0 has length 8", ranks.rank(),
                                        8 + ranks.rank()));
  }
}

constexpr Conversation kConversations[] = {sums_in_the_order_of_ranks,
                                           reduces_and_scatters,
                                           broadcasts_what_the_first_has,
                                           gathers_in_the_order_of_ranks,
                                           meets,
                                           stays_in_step,
                                           compares_settings};

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

TEST(SingleRank, Converses) {
  for (const Conversation converse : kConversations) {
    converse(single_rank());
  }
}

TEST(OnRanks, RunsOnEachOfThem) {
  for (const int count : {1, 2, 3}) {
    std::atomic<int> seen = 0;
    on_ranks(count, "--ranks", [&](Communicator& ranks) {
      EXPECT_EQ(ranks.size(), count);
      seen += 1 << ranks.rank();
      ranks.meet();
    });
    EXPECT_EQ(seen, (1 << count) - 1);
  }
}

TEST(OnRanks, EndsWithTheRankThatFails) {
  for (const int bad : {0, 2}) {
    const auto work = [bad](Communicator& ranks) {
      require(ranks.rank() != bad, "out of memory");
      ranks.meet();
    };
    try {
      on_ranks(3, "--ranks", work);
      ADD_FAILURE() << "rank " << bad << " did not fail";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), bad == 0 ? "out of memory" : "rank 2: out of memory");
    }
  }
}

TEST(OnRanks, NamesTheRankWithoutMemory) {
  for (const int bad : {0, 2}) {
    const auto work = [bad](Communicator& ranks) {
      if (ranks.rank() == bad) {
        throw std::bad_alloc();
      }
      ranks.meet();
    };
    try {
      on_ranks(3, "--ranks", work);
      ADD_FAILURE() << "rank " << bad << " did not fail";
    } catch (const std::exception& error) {
      EXPECT_EQ(error_text(error), bad == 0 ? "out of memory" : "rank 2: out of memory");
    }
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

class TcpRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, TcpRanks, ::testing::Values(2, 3, 5));

TEST_P(TcpRanks, Converse) {
  testing::on_tcp_threads(testing::local_group(GetParam()), [](Communicator& ranks) {
    for (const Conversation converse : kConversations) {
      converse(ranks);
    }
  });
}

// Of all processes that `mpirun -n N parallel_test --gtest_filter='ProcessRanks.*'` starts.
TEST(ProcessRanks, Converse) {
  const auto place = launched_as();
  if (!place) {
    GTEST_SKIP() << "not started by a launcher";
  }
  const auto ranks = join_process_ranks(*place);
  EXPECT_EQ(ranks->rank(), place->rank);
  EXPECT_EQ(ranks->size(), place->size);
  for (const Conversation converse : kConversations) {
    converse(*ranks);
  }
}

// For tcp_processes_test.py: does not notice what happens to the others, as in a call to a device.
TEST(ProcessRanks, DISABLED_AreBusy) {
  const auto ranks = join_process_ranks(launched_as().value());
  ranks->meet();
  fmt::print("busy\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::minutes(2));
}

}  // namespace
}  // namespace winnow::parallel
