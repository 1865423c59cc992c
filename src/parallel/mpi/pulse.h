// Detects whether the other processes still run, however long they are busy.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/mpi/mpi_api.h"

namespace winnow::parallel {

/// A thread that tells all other ranks once a second that this process runs, and receives the same
/// from them. A process that is stopped, or whose machine is gone, is silent; a busy one is not.
class Pulse {
 public:
  /// Seconds of silence after which a rank counts as dead.
  static constexpr int kPatience = 20;

  /// A collective call: all ranks make a Pulse together. `calls` is locked during each MPI call of
  /// any thread. `dead` is called on this thread with the rank that is silent.
  Pulse(std::mutex& calls, std::function<void(int)> dead);
  /// Stops, and tells the other ranks so that they do not take this one for dead.
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
  MPI_Comm ranks_ = MPI_COMM_NULL;  // used only for these messages
  std::vector<Peer> peers_;
  std::jthread thread_;
};

}  // namespace winnow::parallel
