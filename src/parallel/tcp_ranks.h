// Ranks that are processes which reach each other by TCP: those that torchrun, Kubernetes'
// PyTorchJob or a script has started. Nothing is encrypted, and who can reach rank 0's port while
// it waits can join: keep the network private.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/launched_as.h"

namespace winnow::parallel {

/// Seconds that ranks wait for each other.
struct TcpPatience {
  double join = 300.0;                    // for all ranks to come
  double step = Communicator::kPatience;  // in the middle of a step
  double silence = 20.0;                  // of a rank, after which it counts as dead
  double end = 5.0;  // for this process to end by itself when the group has failed
};

/// Which group to join, as which rank.
struct TcpGroup {
  int rank = 0;
  int size = 1;
  std::string host = {};  // where rank 0 listens
  int port = 0;
  std::string port_origin = {};  // the variables that it comes from, for messages
  std::string job = {};          // ranks of another job are refused
  bool one_machine = false;      // all ranks are known to run on this machine
  TcpPatience patience = {};
  /// Called on a thread of its own when the group has failed and this process still runs
  /// `patience.end` later, for example in a call to a device. Empty: prints `why` and ends it.
  std::function<void(const std::string& why)> end_process = {};
};

/// The group that the environment describes: MASTER_ADDR, MASTER_PORT and what torchrun sets. If
/// torchrun's own store has that port (TORCHELASTIC_USE_AGENT_STORE), the group takes the next one.
/// Throws Error if a variable is missing or wrong.
TcpGroup tcp_group(const LaunchedAs& launched);
TcpGroup tcp_group(const LaunchedAs& launched, const Environment& environment);

/// Joins the group: rank 0 listens, the others connect to it, and each message passes through it.
/// Throws Error if not all ranks come in time (the message names the missing ones), or if rank 0
/// refuses this one. Calls of its members throw Error when a rank has ended without leaving, or is
/// silent, even if it is idle.
std::unique_ptr<Communicator> join_tcp_ranks(const TcpGroup& group);

}  // namespace winnow::parallel
