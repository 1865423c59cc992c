#include "parallel/mpi/pulse.h"

#include <utility>

namespace winnow::parallel {

Pulse::Pulse(std::mutex& calls, std::function<void(int)> dead)
    : calls_(calls), dead_(std::move(dead)) {
  int rank = 0;
  int size = 1;
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
  MPI_Comm_rank(ranks_, &rank);
  MPI_Comm_size(ranks_, &size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      peers_.push_back({.rank = peer, .heard = Clock::now()});
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Pulse::leave() {
  thread_.request_stop();
  thread_.join();
  const std::lock_guard lock(calls_);
  for (Peer& peer : peers_) {  // messages need their memory until they have been sent
    MPI_Wait(&peer.sending, MPI_STATUS_IGNORE);
  }
  send(Beat::leaves);
  for (Peer& peer : peers_) {
    MPI_Wait(&peer.sending, MPI_STATUS_IGNORE);
  }
}

void Pulse::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(calls_);
      send(Beat::alive);
      receive();
    }
    for (const Peer& peer : peers_) {
      if (peer.here && Clock::now() - peer.heard > std::chrono::seconds(kPatience)) {
        dead_(peer.rank);
      }
    }
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
  }
}

// Skips ranks that have not received the last beat yet.
void Pulse::send(Beat beat) {
  for (Peer& peer : peers_) {
    int done = 0;
    MPI_Test(&peer.sending, &done, MPI_STATUS_IGNORE);
    if (done != 0) {
      peer.sent = beat;
      MPI_Isend(&peer.sent, 1, MPI_BYTE, peer.rank, 0, ranks_, &peer.sending);
    }
  }
}

void Pulse::receive() {
  for (Peer& peer : peers_) {
    int waits = 0;
    while (MPI_Iprobe(peer.rank, 0, ranks_, &waits, MPI_STATUS_IGNORE), waits != 0) {
      Beat beat = Beat::alive;
      MPI_Recv(&beat, 1, MPI_BYTE, peer.rank, 0, ranks_, MPI_STATUS_IGNORE);
      peer.heard = Clock::now();
      peer.here = beat == Beat::alive;
    }
  }
}

}  // namespace winnow::parallel
