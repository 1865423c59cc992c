// Whether the other processes are there, however long they are busy.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/mpi/mpi_api.h"

namespace winnow::parallel {

/// A thread that tells all other ranks once a second that this process runs, and hears the same of
/// them. One that is stopped, or whose machine is gone, is silent; one that only computes is not.
class Pulse {
 public:
  /// Seconds of silence after which a rank counts as dead.
  static constexpr int kPatience = 20;

  /// All ranks make one together. `calls` is held during each call of MPI, whoever makes it.
  /// `dead` is called from this thread with the rank that is silent.
  Pulse(std::mutex& calls, std::function<void(int)> dead);
  /// Stops, and tells the others so: they do not miss this rank.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Beat : char { alive, leaves };
  struct Peer {
    int rank = 0;
    Clock::time_point heard;
    bool here = true;
    Beat sent = Beat::alive;
    MPI_Request sending = MPI_REQUEST_NULL;
  };

  void run(const std::stop_token& stop);
  void send(Beat beat);
  void receive();

  std::mutex& calls_;
  std::function<void(int)> dead_;
  MPI_Comm ranks_ = MPI_COMM_NULL;  // of these messages alone
  std::vector<Peer> peers_;
  std::jthread thread_;
};

}  // namespace winnow::parallel
