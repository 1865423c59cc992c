#include "parallel/tcp/watch.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/no_signals.h"
#include "base/note.h"

namespace winnow::parallel {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Seconds = std::chrono::duration<double>;

constexpr char kAlive = 'a';
constexpr char kLeaves = 'l';
constexpr char kFailed = 'f';  // followed by the size of a text, and the text
constexpr std::uint32_t kLongestText = 1 << 16;
// How long a rank that leaves waits for others to have heard it.
constexpr std::chrono::seconds kLastWords{5};
constexpr std::chrono::seconds kLastWordsOfFailed{1};

void end_process(const std::string& why) {
  note(fmt::format("error: {}", why));
  std::_Exit(1);
}

TcpClock::duration between_beats(const TcpPatience& patience) {
  return tcp_seconds(std::min(1.0, patience.silence / 8));
}

}  // namespace

TcpWatch::TcpWatch(const TcpGroup& group, std::vector<TcpLink>& links, TcpFailure& failure)
    : rank_(group.rank),
      patience_(group.patience),
      end_process_(group.end_process ? group.end_process : end_process),
      failure_(failure),
      timer_(io_) {
  for (TcpLink& link : links) {
    peers_.push_back({.rank = link.rank, .socket = move_tcp_socket(link.watch, io_)});
    peers_.back().socket.non_blocking(true);  // a rank that reads nothing does not stop this thread
    hear(peers_.back());
  }
  beat();
  thread_ = std::thread([this] {
    const NoSignals quiet;
    io_.run();
  });
}

TcpWatch::~TcpWatch() {
  asio::post(io_, [this] { leave(); });
  thread_.join();
}

void TcpWatch::fail(const std::string& why) {
  if (failure_.set(why)) {
    asio::post(io_, [this, why] { say_failure(why); });
  }
}

void TcpWatch::hear(Peer& peer) {
  asio::async_read(peer.socket, asio::buffer(&peer.kind, 1),
                   [this, &peer](const error_code& error, std::size_t) {
                     if (error) {
                       return lose(peer, error);
                     }
                     peer.heard = Clock::now();
                     act(peer);
                   });
}

void TcpWatch::act(Peer& peer) {
  if (peer.kind == kFailed) {
    return hear_failure(peer);
  }
  if (peer.kind == kLeaves) {
    peer.here = false;
    error_code ignored;  // it waits for the end of what this rank sends
    peer.socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  hear(peer);
}

void TcpWatch::hear_failure(Peer& peer) {
  asio::async_read(peer.socket, asio::buffer(&peer.text_size, sizeof(peer.text_size)),
                   [this, &peer](const error_code& size_error, std::size_t) {
                     if (size_error) {
                       return lose(peer, size_error);
                     }
                     peer.text.resize(std::min(peer.text_size, kLongestText));
                     asio::async_read(peer.socket, asio::buffer(peer.text.data(), peer.text.size()),
                                      [this, &peer](const error_code& error, std::size_t) {
                                        if (error) {
                                          return lose(peer, error);
                                        }
                                        peer.here = false;
                                        fail(peer.text);
                                        hear(peer);
                                      });
                   });
}

void TcpWatch::lose(Peer& peer, const error_code& error) {
  if (peer.here && !leaving_) {
    fail(fmt::format("rank {} has ended (rank {} lost the connection to it: {})", peer.rank, rank_,
                     error.message()));
  }
  peer.here = false;
  peer.open = false;
  error_code ignored;
  peer.socket.close(ignored);
  if (leaving_ && std::ranges::none_of(peers_, &Peer::open)) {
    io_.stop();
  }
}

// A rank that does not read misses what does not fit in the socket's buffer.
void TcpWatch::say(Peer& peer, std::string_view message) {
  if (peer.open) {
    error_code ignored;  // hear() finds out, too
    asio::write(peer.socket, asio::buffer(message.data(), message.size()), ignored);
  }
}

void TcpWatch::say_failure(const std::string& why) {
  if (std::exchange(told_, true)) {
    return;
  }
  const auto size = std::min(static_cast<std::uint32_t>(why.size()), kLongestText);
  std::string message(1, kFailed);
  message.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(why, 0, size);
  for (Peer& peer : peers_) {
    say(peer, message);
  }
}

void TcpWatch::beat() {
  timer_.expires_after(between_beats(patience_));
  timer_.async_wait([this](const error_code& error) {
    if (error || leaving_) {
      return;
    }
    for (Peer& peer : peers_) {
      if (peer.here) {
        say(peer, std::string_view(&kAlive, 1));
      }
    }
    look_for_silent();
    look_for_end();
    last_beat_ = Clock::now();
    beat();
  });
}

void TcpWatch::look_for_silent() {
  const auto now = Clock::now();
  if (now - last_beat_ >
      3 * between_beats(patience_)) {  // this process was stopped, and heard nothing
    for (Peer& peer : peers_) {
      peer.heard = now;
    }
  }
  for (Peer& peer : peers_) {
    if (peer.here && now - peer.heard > tcp_seconds(patience_.silence)) {
      peer.here = false;
      fail(fmt::format("rank {} has heard nothing of rank {} for {:.0f} s", rank_, peer.rank,
                       patience_.silence));
    }
  }
}

void TcpWatch::look_for_end() {
  if (!failure_.is_set()) {
    return;
  }
  if (!failed_at_) {
    failed_at_ = Clock::now();
  } else if (Clock::now() - *failed_at_ > tcp_seconds(patience_.end)) {
    end_process_(failure_.wait(Seconds::zero()).value());
  }
}

void TcpWatch::leave() {
  leaving_ = true;
  const auto failed = failure_.wait(Seconds::zero());
  if (failed) {  // what fail() has posted may come after this
    say_failure(*failed);
  }
  for (Peer& peer : peers_) {
    if (!failed) {
      say(peer, std::string_view(&kLeaves, 1));
    }
    error_code ignored;
    peer.socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
  if (std::ranges::none_of(peers_, &Peer::open)) {
    return io_.stop();
  }
  timer_.expires_after(failed ? kLastWordsOfFailed : kLastWords);
  timer_.async_wait([this](const error_code& error) {
    if (!error) {
      io_.stop();
    }
  });
}

}  // namespace winnow::parallel
