// How TCP ranks come together and fail. tcp_processes_test.py has what takes processes.
#include "parallel/tcp_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <stdexcept>

#include "base/error.h"
#include "parallel/tcp/link.h"
#include "parallel/tcp_threads.h"

namespace winnow::parallel {
namespace testing {

TcpGroup local_group(int size) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  TcpGroup group{.size = size, .host = "127.0.0.1", .port_origin = "MASTER_PORT"};
  group.port = acceptor.local_endpoint().port();
  return group;
}

}  // namespace testing

namespace {

using testing::as_rank;
using ::testing::HasSubstr;
using testing::local_group;
using testing::on_tcp_threads;
using tcp = boost::asio::ip::tcp;

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of_sum(Communicator& ranks) {
  return error_of([&] {
    std::vector<float> values(8);
    ranks.sum(values);
  });
}

std::future<std::string> join_later(const TcpGroup& group) {
  return std::async(std::launch::async,
                    [group] { return error_of([&] { join_tcp_ranks(group)->meet(); }); });
}

// Connects once rank 0 listens.
tcp::socket connect(boost::asio::io_context& io, const TcpGroup& group) {
  tcp::socket socket(io);
  boost::system::error_code error;
  do {
    socket.close(error);
    socket.connect(
        {boost::asio::ip::make_address(group.host), static_cast<std::uint16_t>(group.port)}, error);
  } while (error);
  return socket;
}

TEST(JoinTcpRanks, IgnoresStrangers) {
  const TcpGroup group = local_group(2);
  auto first = join_later(group);
  boost::asio::io_context io;
  const tcp::socket silent = connect(io, group);
  tcp::socket scanner = connect(io, group);
  boost::asio::write(scanner, boost::asio::buffer(std::string(1000, 'x')));
  { const tcp::socket gone = connect(io, group); }
  EXPECT_EQ(join_later(as_rank(group, 1)).get(), "no error");
  EXPECT_EQ(first.get(), "no error");
}

TEST(JoinTcpRanks, RefusesRanksOfOtherGroups) {
  const TcpGroup group = local_group(2);
  auto first = join_later(group);
  TcpGroup other = as_rank(group, 1);
  other.size = 3;
  EXPECT_THAT(join_later(other).get(), HasSubstr("this group has 2 ranks"));
  other = as_rank(group, 1);
  other.job = "another";
  EXPECT_THAT(join_later(other).get(), HasSubstr("it belongs to another run of torchrun"));
  EXPECT_EQ(join_later(as_rank(group, 1)).get(), "no error");
  EXPECT_EQ(first.get(), "no error");
}

TEST(JoinTcpRanks, RefusesARankThatIsThere) {
  const TcpGroup group = local_group(3);
  auto first = join_later(group);
  std::vector<std::future<std::string>> twins;
  twins.push_back(join_later(as_rank(group, 1)));
  twins.push_back(join_later(as_rank(group, 1)));
  while (twins[0].wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    std::swap(twins[0], twins[1]);
  }
  EXPECT_THAT(twins[0].get(), HasSubstr("rank 1 is there already"));
  EXPECT_EQ(join_later(as_rank(group, 2)).get(), "no error");
  EXPECT_EQ(twins[1].get(), "no error");
  EXPECT_EQ(first.get(), "no error");
}

// Its end is no reason to count the group as complete when the last of the others arrives.
TEST(JoinTcpRanks, WaitsForARankThatHasEndedToComeAgain) {
  const TcpGroup group = local_group(3);
  auto first = join_later(group);
  boost::asio::io_context io;
  {
    std::vector<tcp::socket> ended;
    for (const TcpLine line : {TcpLine::data, TcpLine::watch}) {
      ended.push_back(connect(io, group));
      const TcpHello hello = tcp_hello(as_rank(group, 1), line);
      boost::asio::write(ended.back(), boost::asio::buffer(&hello, sizeof(hello)));
      TcpAnswer answer;
      boost::asio::read(ended.back(), boost::asio::buffer(&answer, sizeof(answer)));
      EXPECT_EQ(answer.verdict, TcpAnswer::Verdict::taken);
    }
  }
  auto second = join_later(as_rank(group, 2));
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_EQ(join_later(as_rank(group, 1)).get(), "no error");
  EXPECT_EQ(second.get(), "no error");
  EXPECT_EQ(first.get(), "no error");
}

TEST(JoinTcpRanks, NamesMissingRanks) {
  TcpGroup group = local_group(4);
  group.patience.join = 1.0;
  auto first = join_later(group);
  auto second = join_later(as_rank(group, 2));
  const std::string missing =
      fmt::format("rank 0 has waited 1 s at 127.0.0.1:{} (MASTER_PORT) for ranks 1, 3", group.port);
  EXPECT_EQ(first.get(), missing);
  EXPECT_THAT(second.get(), HasSubstr(missing));
  EXPECT_THAT(
      join_later(as_rank(group, 1)).get(),
      HasSubstr(fmt::format("rank 1 has waited 1 s for rank 0 at 127.0.0.1:{}", group.port)));
}

TEST(JoinTcpRanks, NamesATakenPort) {
  const TcpGroup group = local_group(2);
  boost::asio::io_context io;
  const tcp::acceptor taken(
      io, {boost::asio::ip::make_address("127.0.0.1"), static_cast<std::uint16_t>(group.port)});
  EXPECT_EQ(join_later(group).get(),
            fmt::format("rank 0 cannot listen at 127.0.0.1:{} (MASTER_PORT): Address already in "
                        "use: choose another MASTER_PORT for all ranks",
                        group.port));
}

TEST(JoinTcpRanks, ListensWhereOthersMayFindIt) {
  for (const char* host : {"localhost", "192.0.2.1"}) {  // the latter is no machine's
    TcpGroup group = local_group(2);
    group.host = host;
    auto first = join_later(group);
    TcpGroup second = as_rank(group, 1);
    second.host = "127.0.0.1";
    EXPECT_EQ(join_later(second).get(), "no error") << host;
    EXPECT_EQ(first.get(), "no error") << host;
  }
}

TEST(FailedTcpRank, TellsTheOthersWhy) {
  on_tcp_threads(local_group(3), [](Communicator& ranks) {
    if (ranks.rank() == 2) {
      ranks.fail("rank 2: out of memory");
    }
    EXPECT_EQ(error_of_sum(ranks), "rank 2: out of memory");
    EXPECT_EQ(error_of_sum(ranks), "rank 2: out of memory");
  });
}

TEST(FailedTcpRank, IsNamedIfItOnlyThrows) {
  for (const int bad : {0, 2}) {
    const TcpGroup group = local_group(3);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&group, bad, rank] {
        try {
          const auto ranks = join_tcp_ranks(as_rank(group, rank));
          if (rank == bad) {
            throw std::runtime_error("a file is missing");
          }
          EXPECT_EQ(error_of_sum(*ranks),
                    fmt::format("rank {} has failed; its own output says why", bad));
        } catch (const std::runtime_error& error) {
          EXPECT_EQ(rank, bad) << error.what();
        }
      });
    }
  }
}

TEST(FailedTcpRank, EndsProcessesThatDoNotNotice) {
  TcpGroup group = local_group(3);
  group.patience.end = 0.5;
  std::atomic<int> ended = 0;
  group.end_process = [&](const std::string& why) {
    EXPECT_EQ(why, "rank 1: no device");
    ++ended;
  };
  on_tcp_threads(group, [&](Communicator& ranks) {
    if (ranks.rank() == 1) {
      return ranks.fail("rank 1: no device");
    }
    while (ended < 2) {  // as in a call that never returns
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST(MissingTcpRank, IsNotWaitedForForever) {
  TcpGroup group = local_group(3);
  group.patience.step = 1.0;
  std::promise<void> over;
  const auto end = over.get_future().share();
  std::atomic<int> thrown = 0;
  on_tcp_threads(group, [&](Communicator& ranks) {
    if (ranks.rank() == 2) {
      return end.wait();
    }
    EXPECT_EQ(error_of_sum(ranks), "rank 0 has waited 1 s for rank 2");
    EXPECT_NE(error_of([&] { ranks.gather({}); }), "no error");
    if (++thrown == 2) {
      over.set_value();
    }
  });
}

TEST(TcpRanksBroadcast, WaitsForTheFirstAsLongAsItTakes) {
  TcpGroup group = local_group(2);
  group.patience.step = 0.05;
  on_tcp_threads(group, [](Communicator& ranks) {
    std::vector<std::byte> byte{std::byte(ranks.rank())};
    if (ranks.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    ranks.broadcast(byte);
    EXPECT_EQ(byte[0], std::byte(0));
  });
}

TEST(TcpRanksThatLeave, AreNotMissed) {
  for (const int early : {0, 1}) {
    TcpGroup group = local_group(3);
    group.patience.silence = 0.4;
    group.patience.end = 0.1;
    group.end_process = [](const std::string& why) { ADD_FAILURE() << why; };
    on_tcp_threads(group, [early](Communicator& ranks) {
      ranks.meet();
      if (ranks.rank() != early) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      }
    });
  }
}

}  // namespace
}  // namespace winnow::parallel
