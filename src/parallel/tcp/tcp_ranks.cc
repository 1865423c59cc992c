#include "parallel/tcp_ranks.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/threads.h"
#include "parallel/tcp/failure.h"
#include "parallel/tcp/link.h"
#include "parallel/tcp/watch.h"

namespace winnow::parallel {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Seconds = std::chrono::duration<double>;

// The number of values that rank 0 adds up at a time. Meanwhile the next ones arrive.
constexpr std::size_t kTcpPiece = std::size_t{1} << 18;
// The most bytes of a system call. After each one this rank knows that the other one is there.
constexpr std::size_t kAtOnce = std::size_t{1} << 20;
// How long a rank waits to be told why another one does not answer: TcpWatch hears it from that
// rank, or from rank 0.
constexpr Seconds kHearsay{2.0};

class TcpRank : public Communicator {
 public:
  explicit TcpRank(const TcpGroup& group)
      : rank_(group.rank),
        size_(group.size),
        patience_(group.patience),
        failure_([this] { asio::post(io_, [] {}); })  // wakes wait()
  {
    if (rank_ == 0) {
      links_ = host_tcp_ranks(group, io_);
    } else {
      links_.push_back(visit_tcp_ranks(group, io_));
    }
    busy_.assign(static_cast<std::size_t>(size_), 0);
    watch_.emplace(group, links_, failure_);
  }
  ~TcpRank() override {
    if (std::uncaught_exceptions() > 0) {
      fail(fmt::format("rank {} has failed; its own output says why", rank_));
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void meet() override {
    std::vector<std::byte> bytes(static_cast<std::size_t>(size_));
    for (TcpLink& link : links_) {
      if (rank_ != 0) {
        send(link, asio::buffer(bytes.data(), 1));
      }
      receive(link, asio::buffer(&bytes[static_cast<std::size_t>(link.rank)], 1));
    }
    wait(std::nullopt);
    if (rank_ == 0) {
      for (TcpLink& link : links_) {
        send(link, asio::buffer(bytes.data(), 1));
      }
      wait(std::nullopt);
    }
  }

  // Others receive the sum of a piece after rank 0 has received their values of it, so they can use
  // the same memory for both.
  void sum(std::span<float> values) override {
    if (rank_ != 0) {
      send(first(), asio::buffer(values.data(), values.size_bytes()));
      receive(first(), asio::buffer(values.data(), values.size_bytes()));
      return wait(patience_.step);
    }
    for (std::size_t begin = 0; begin < values.size(); begin += kTcpPiece) {
      const std::span<float> piece = piece_of(values, begin);
      receive_values(piece.size());
      add_in_order(piece, piece);
      for (TcpLink& link : links_) {
        send(link, asio::buffer(piece.data(), piece.size_bytes()));
      }
    }
    wait(patience_.step);
  }

  void reduce_scatter(std::span<float> values, std::span<const std::size_t> cuts) override {
    if (rank_ != 0) {
      const std::span<float> own = part_of(values, cuts, rank_);
      send(first(), asio::buffer(values.data(), values.size_bytes()));
      receive(first(), asio::buffer(own.data(), own.size_bytes()));
      return wait(patience_.step);
    }
    for (int rank = 0; rank < size_; ++rank) {
      const std::span<float> part = part_of(values, cuts, rank);
      for (std::size_t begin = 0; begin < part.size(); begin += kTcpPiece) {
        const std::span<float> piece = piece_of(part, begin);
        receive_values(piece.size());  // waits until the last sums have been sent, too
        if (rank == 0) {
          add_in_order(piece, piece);
          continue;
        }
        sums_.resize(piece.size());
        add_in_order(piece, sums_);
        send(link_to(rank), asio::buffer(sums_.data(), piece.size_bytes()));
      }
    }
    wait(patience_.step);
  }

  void all_gather(std::span<float> values, std::span<const std::size_t> cuts) override {
    std::size_t most = 0;
    for (int rank = 0; rank < size_; ++rank) {
      most = std::max(most, part_of(values, cuts, rank).size());
    }
    for (std::size_t begin = 0; begin < most; begin += kTcpPiece) {
      const auto piece = [&](int rank) {
        const std::span<float> floats = piece_of(part_of(values, cuts, rank), begin);
        return asio::mutable_buffer(floats.data(), floats.size_bytes());
      };
      const auto all_but = [&](int without) {
        std::vector<asio::mutable_buffer> pieces;
        for (int rank = 0; rank < size_; ++rank) {
          if (rank != without) {
            pieces.push_back(piece(rank));
          }
        }
        return pieces;
      };
      if (rank_ != 0) {
        send(first(), piece(rank_));
        receive(first(), all_but(rank_));
      } else {
        for (TcpLink& link : links_) {
          receive(link, piece(link.rank));
        }
        wait(patience_.step);
        for (TcpLink& link : links_) {
          send(link, all_but(link.rank));
        }
      }
      wait(patience_.step);
    }
  }

  void broadcast(std::span<std::byte> bytes) override {
    if (rank_ != 0) {
      receive(first(), asio::buffer(bytes.data(), bytes.size()));
      return wait(std::nullopt);
    }
    for (TcpLink& link : links_) {
      send(link, asio::buffer(bytes.data(), bytes.size()));
    }
    wait(patience_.step);
  }

  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override {
    if (rank_ != 0) {
      const std::uint64_t size = bytes.size();
      send(first(), std::array{asio::const_buffer(&size, sizeof(size)),
                               asio::const_buffer(bytes.data(), bytes.size())});
      wait(patience_.step);
      return {};
    }
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size_));
    for (TcpLink& link : links_) {
      receive(link,
              asio::buffer(&sizes[static_cast<std::size_t>(link.rank)], sizeof(std::uint64_t)));
    }
    wait(patience_.step);
    std::vector<std::vector<std::byte>> result(sizes.size());
    result[0].assign(bytes.begin(), bytes.end());
    for (TcpLink& link : links_) {
      const auto rank = static_cast<std::size_t>(link.rank);
      result[rank].resize(sizes[rank]);
      receive(link, asio::buffer(result[rank].data(), result[rank].size()));
    }
    wait(patience_.step);
    return result;
  }

  void fail(const std::string& why) noexcept override { watch_->fail(why); }

 private:
  // Rank 0, for other ranks.
  TcpLink& first() { return links_.front(); }
  // Another rank, for rank 0.
  TcpLink& link_to(int rank) { return links_[static_cast<std::size_t>(rank - 1)]; }

  static std::span<float> piece_of(std::span<float> values, std::size_t begin) {
    const std::size_t from = std::min(begin, values.size());
    return values.subspan(from, std::min(kTcpPiece, values.size() - from));
  }

  // Begin to send or receive; wait() ends it. One of each kind may wait on a link at a time.
  template <class Buffers>
  void send(TcpLink& link, const Buffers& buffers) {
    begin(link);
    asio::async_write(link.data, buffers, moves(), ends(link));
  }
  template <class Buffers>
  void receive(TcpLink& link, const Buffers& buffers) {
    begin(link);
    asio::async_read(link.data, buffers, moves(), ends(link));
  }
  void begin(TcpLink& link) {
    if (failure_.is_set()) {  // others must not go on with what this rank sends
      give_up({});
    }
    ++busy_[static_cast<std::size_t>(link.rank)];
    ++pending_;
  }
  auto moves() {
    return [this](const error_code& error, std::size_t) -> std::size_t {
      moved_ = TcpClock::now();
      return error ? 0 : kAtOnce;
    };
  }
  auto ends(TcpLink& link) {
    return [this, rank = link.rank](const error_code& error, std::size_t) {
      --busy_[static_cast<std::size_t>(rank)];
      --pending_;
      if (error && !broken_) {
        broken_ =
            fmt::format("rank {} lost the connection to rank {}: {}", rank_, rank, error.message());
      }
    };
  }

  // Ends what was begun. `patience`: the seconds in which something must arrive or leave; nullopt:
  // without a limit.
  void wait(std::optional<double> patience) {
    moved_ = TcpClock::now();
    io_.restart();
    while (pending_ > 0 && !broken_ && !failure_.is_set()) {
      if (!patience) {
        io_.run_one();
        continue;
      }
      io_.run_one_until(moved_ + tcp_seconds(*patience));
      if (TcpClock::now() > moved_ + tcp_seconds(*patience)) {
        give_up(fmt::format("rank {} has waited {:.0f} s for rank {}", rank_, *patience, busy()));
      }
    }
    if (broken_) {
      give_up(*broken_);
    }
    if (failure_.is_set()) {
      give_up({});
    }
  }

  [[nodiscard]] std::ptrdiff_t busy() const {
    return std::ranges::find_if(busy_, [](int count) { return count > 0; }) - busy_.begin();
  }

  // Throws the first failure of the group, or else `why`.
  [[noreturn]] void give_up(const std::string& why) {
    if (rank_ != 0 || broken_) {
      failure_.wait(kHearsay);
    }
    watch_->fail(why);
    for (TcpLink& link : links_) {
      error_code ignored;
      link.data.close(ignored);
    }
    io_.restart();
    io_.run();  // what was begun no longer uses its memory
    throw Error(*failure_.wait(Seconds::zero()));
  }

  // Waits for `count` values of each other rank, and for what was begun before.
  void receive_values(std::size_t count) {
    received_.resize(count * static_cast<std::size_t>(size_));
    for (TcpLink& link : links_) {
      const auto values = slot(link.rank, count);
      receive(link, asio::buffer(values.data(), values.size_bytes()));
    }
    wait(patience_.step);
  }

  std::span<float> slot(int rank, std::size_t count) {
    return std::span(received_).subspan(static_cast<std::size_t>(rank) * count, count);
  }

  // Adds `own` and the values received from the other ranks, in the order of ranks.
  void add_in_order(std::span<const float> own, std::span<float> sums) {
    std::ranges::copy(own, slot(0, own.size()).begin());
    const auto add = [&](std::size_t begin, std::size_t end, int = 0) {
      const std::span<float> range = sums.subspan(begin, end - begin);
      std::ranges::fill(range, 0.0F);
      for (int rank = 0; rank < size_; ++rank) {
        const auto values = slot(rank, own.size()).subspan(begin, end - begin);
        std::ranges::transform(range, values, range.begin(), std::plus<>());
      }
    };
    constexpr std::size_t kMany = std::size_t{1} << 16;
    if (own.size() < kMany) {
      add(0, own.size());
    } else {
      parallel_ranges(own.size(), add);
    }
  }

  int rank_;
  int size_;
  TcpPatience patience_;
  asio::io_context io_;  // run by the thread that calls
  TcpFailure failure_;
  std::vector<TcpLink> links_;  // rank 0: to all others, by rank; others: to rank 0
  std::vector<int> busy_;       // by rank: what was begun and has not ended
  int pending_ = 0;             // of all ranks
  TcpClock::time_point moved_;  // when something was sent or received last
  std::optional<std::string> broken_;
  std::vector<float> received_;  // by rank
  std::vector<float> sums_;
  std::optional<TcpWatch> watch_;
};

}  // namespace

std::unique_ptr<Communicator> join_tcp_ranks(const TcpGroup& group) {
  return std::make_unique<TcpRank>(group);
}

}  // namespace winnow::parallel
