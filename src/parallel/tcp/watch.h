// Detects whether the other processes of a group of TCP ranks still run.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <string_view>
#include <thread>
#include <vector>

#include "parallel/tcp/failure.h"
#include "parallel/tcp/link.h"
#include "parallel/tcp_ranks.h"

namespace winnow::parallel {

/// A thread with a connection to each linked rank (rank 0: to all others; others: to rank 0). Once
/// a second it says that this process runs, however busy that is. When a rank is lost or fails, it
/// sets the failure and passes it on, and if this process still runs a while later, it ends it.
class TcpWatch {
 public:
  /// Takes the links' `watch` sockets. `failure` must outlive this.
  TcpWatch(const TcpGroup& group, std::vector<TcpLink>& links, TcpFailure& failure);
  /// Stops. If the group has not failed, tells the linked ranks that this one leaves.
  ~TcpWatch();
  TcpWatch(const TcpWatch&) = delete;
  TcpWatch& operator=(const TcpWatch&) = delete;

  /// Sets the failure and tells the linked ranks, unless the group has failed already.
  void fail(const std::string& why);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    int rank = 0;
    boost::asio::ip::tcp::socket socket;
    Clock::time_point heard = Clock::now();
    bool here = true;  // has not said that it leaves
    bool open = true;  // may still send something
    char kind = 0;
    std::uint32_t text_size = 0;
    std::string text = {};
  };

  void hear(Peer& peer);
  void act(Peer& peer);
  void hear_failure(Peer& peer);
  void lose(Peer& peer, const boost::system::error_code& error);
  void say(Peer& peer, std::string_view message);
  void say_failure(const std::string& why);
  void beat();
  void look_for_silent();
  void look_for_end();
  void leave();

  const int rank_;
  const TcpPatience patience_;
  const std::function<void(const std::string&)> end_process_;
  TcpFailure& failure_;
  boost::asio::io_context io_;
  boost::asio::steady_timer timer_;
  std::deque<Peer> peers_;
  Clock::time_point last_beat_ = Clock::now();
  std::optional<Clock::time_point> failed_at_;
  bool told_ = false;  // the others, of the failure
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace winnow::parallel
