#include "parallel/mpi_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "parallel/mpi/mpi_api.h"
#include "parallel/mpi/pulse.h"

namespace winnow::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// The most values that are summed whole. Of more values, each rank adds up a part.
constexpr std::size_t kWhole = 4096;
// The number of a part's values that are sent at a time.
constexpr std::size_t kPiece = std::size_t{1} << 20;

// A message that is being sent or received.
struct Transfer {
  MPI_Request request = MPI_REQUEST_NULL;
  int peer = 0;
};

// Waits without keeping a core busy for longer than a step takes.
class Pause {
 public:
  void operator()() {
    if (Clock::now() - begin_ < std::chrono::milliseconds(2)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  Clock::time_point begin_ = Clock::now();
};

class MpiRank : public Communicator {
 public:
  MpiRank() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    require(provided >= MPI_THREAD_SERIALIZED, "MPI takes calls from the main thread alone");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    pulse_.emplace(calls_, [this](int peer) {
      fail(fmt::format("rank {} has heard nothing of rank {} for {} s", rank_, peer,
                       Pulse::kPatience));
    });
  }
  /// A rank that fails does not wait for the others: its launcher ends them.
  ~MpiRank() override {
    if (std::uncaught_exceptions() == 0) {
      pulse_->leave();
      MPI_Finalize();
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void meet() override {
    std::byte nothing{};
    const std::span<std::byte> message(&nothing, 1);
    if (rank_ != 0) {
      send(message, 0);
      receive(message, 0);
      return wait(std::nullopt);
    }
    each_other([&](int peer) { receive(message, peer); });
    wait(std::nullopt);
    each_other([&](int peer) { send(message, peer); });
    wait(std::nullopt);
  }

  void sum(std::span<float> values) override {
    if (values.size() <= kWhole) {
      return sum_whole(values);
    }
    std::vector<std::size_t> cuts;
    for (int rank = 0; rank <= size_; ++rank) {
      cuts.push_back(values.size() * static_cast<std::size_t>(rank) /
                     static_cast<std::size_t>(size_));
    }
    reduce_scatter(values, cuts);
    all_gather(values, cuts);
  }

  void reduce_scatter(std::span<float> values, std::span<const std::size_t> cuts) override {
    for_pieces(cuts, [&](std::size_t begin) {
      const auto piece = [&](int rank) { return piece_of(part_of(values, cuts, rank), begin); };
      const std::span<float> own = piece(rank_);
      received_.resize(own.size() * static_cast<std::size_t>(size_));
      each_other([&](int peer) {
        receive(std::as_writable_bytes(slot(peer, own.size())), peer);
        send(std::as_bytes(piece(peer)), peer);
      });
      wait(kPatience);
      add_in_order(own);
    });
  }

  void all_gather(std::span<float> values, std::span<const std::size_t> cuts) override {
    for_pieces(cuts, [&](std::size_t begin) {
      const auto piece = [&](int rank) { return piece_of(part_of(values, cuts, rank), begin); };
      each_other([&](int peer) {
        receive(std::as_writable_bytes(piece(peer)), peer);
        send(std::as_bytes(piece(rank_)), peer);
      });
      wait(kPatience);
    });
  }

  void broadcast(std::span<std::byte> bytes) override {
    if (rank_ != 0) {
      receive(bytes, 0);
      return wait(std::nullopt);
    }
    each_other([&](int peer) { send(bytes, peer); });
    wait(kPatience);
  }

  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) override {
    if (rank_ != 0) {
      const std::uint64_t size = bytes.size();
      send(std::as_bytes(std::span(&size, 1)), 0);
      send(bytes, 0);
      wait(kPatience);
      return {};
    }
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size_));
    each_other([&](int peer) {
      receive(std::as_writable_bytes(std::span(sizes).subspan(static_cast<std::size_t>(peer), 1)),
              peer);
    });
    wait(kPatience);
    std::vector<std::vector<std::byte>> result(sizes.size());
    result[0].assign(bytes.begin(), bytes.end());
    each_other([&](int peer) {
      auto& own = result[static_cast<std::size_t>(peer)];
      own.resize(sizes[static_cast<std::size_t>(peer)]);
      receive(own, peer);
    });
    wait(kPatience);
    return result;
  }

  void fail(const std::string& why) noexcept override {
    std::fprintf(stderr, "winnow: error: %s\n", why.c_str());
    const std::lock_guard lock(calls_);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  template <class Body>
  void each_other(const Body& body) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        body(peer);
      }
    }
  }

  // Sends parts in pieces, so that received data takes little memory: calls body(begin) for each
  // piece of the largest part.
  template <class Body>
  static void for_pieces(std::span<const std::size_t> cuts, const Body& body) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      most = std::max(most, cuts[i] - cuts[i - 1]);
    }
    for (std::size_t begin = 0; begin < most; begin += kPiece) {
      body(begin);
    }
  }
  static std::span<float> piece_of(std::span<float> part, std::size_t begin) {
    const std::size_t first = std::min(begin, part.size());
    return part.subspan(first, std::min(kPiece, part.size() - first));
  }

  // Splits messages with more bytes than an int can count.
  void send(std::span<const std::byte> bytes, int peer) {
    const std::lock_guard lock(calls_);
    each_piece(bytes, [&](std::span<const std::byte> piece) {
      MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                &begin(peer));
    });
  }
  void receive(std::span<std::byte> bytes, int peer) {
    const std::lock_guard lock(calls_);
    each_piece(bytes, [&](std::span<std::byte> piece) {
      MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                &begin(peer));
    });
  }
  template <class Byte, class Body>
  static void each_piece(std::span<Byte> bytes, const Body& body) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    for (; bytes.size() > kMost; bytes = bytes.subspan(kMost)) {
      body(bytes.first(kMost));
    }
    body(bytes);
  }
  MPI_Request& begin(int peer) {
    transfers_.push_back({MPI_REQUEST_NULL, peer});
    return transfers_.back().request;
  }

  [[nodiscard]] bool has_ended(Transfer& transfer) {
    const std::lock_guard lock(calls_);
    int done = 0;
    MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  // Waits until all transfers have ended; nullopt: without a time limit.
  void wait(std::optional<double> patience) {
    const auto begin = Clock::now();
    Pause pause;
    for (Transfer& transfer : transfers_) {
      while (!has_ended(transfer)) {
        pause();
        if (patience && Clock::now() - begin > std::chrono::duration<double>(*patience)) {
          fail(fmt::format("rank {} has waited {:.0f} s for rank {}", rank_, *patience,
                           transfer.peer));
        }
      }
    }
    transfers_.clear();
  }

  std::span<float> slot(int rank, std::size_t count) {
    return std::span(received_).subspan(static_cast<std::size_t>(rank) * count, count);
  }

  void sum_whole(std::span<float> values) {
    received_.resize(values.size() * static_cast<std::size_t>(size_));
    each_other([&](int peer) {
      receive(std::as_writable_bytes(slot(peer, values.size())), peer);
      send(std::as_bytes(values), peer);
    });
    wait(kPatience);
    add_in_order(values);
  }

  // Adds the values received from the other ranks to `own`, in the order of ranks.
  void add_in_order(std::span<float> own) {
    std::ranges::copy(own, slot(rank_, own.size()).begin());
    std::ranges::fill(own, 0.0F);
    for (int rank = 0; rank < size_; ++rank) {
      const auto values = slot(rank, own.size());
      std::ranges::transform(own, values, own.begin(), std::plus<>());
    }
  }

  int rank_ = 0;
  int size_ = 1;
  std::vector<Transfer> transfers_;
  std::vector<float> received_;
  std::mutex calls_;  // guards MPI calls, the pulse's and those here
  std::optional<Pulse> pulse_;
};

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<Communicator> join_mpi_ranks() {
  int joined = 0;
  MPI_Initialized(&joined);
  require(joined == 0, "ranks that mpirun has started run one model only");
  return std::make_unique<MpiRank>();
}

}  // namespace winnow::parallel
