// The side of ranks other than 0 of the beginning of a group of TCP ranks.
#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/note.h"
#include "parallel/tcp/link.h"

namespace winnow::parallel {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Rank 0 cannot be reached yet, or has gone again.
class NotYet : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

constexpr std::chrono::milliseconds kBetweenVisits{200};

class Visit {
 public:
  explicit Visit(const TcpGroup& group) : group_(group), data_(io_), watch_(io_) {}

  // Throws NotYet, or Error if rank 0 refuses this one.
  TcpLink arrive(asio::io_context& io) {
    introduce(data_, TcpLine::data);
    introduce(watch_, TcpLine::watch);
    // Rank 0, which may have begun just now, says so when it stops waiting for the others.
    require_verdict(hear(data_, tcp_seconds(group_.patience.join) + kTcpGreeting),
                    TcpAnswer::Verdict::complete);
    return {0, move_tcp_socket(data_, io), move_tcp_socket(watch_, io)};
  }

 private:
  void introduce(tcp::socket& socket, TcpLine line) {
    error_code error;
    const auto found = tcp::resolver(io_).resolve(group_.host, std::to_string(group_.port), error);
    check(error);
    asio::async_connect(socket, found,
                        [&](const error_code& result, const tcp::endpoint&) { error = result; });
    wait(socket, kTcpGreeting, error);
    prepare_tcp_socket(socket);
    const TcpHello hello = tcp_hello(group_, line);
    asio::write(socket, asio::buffer(&hello, sizeof(hello)), error);
    check(error);
    require_verdict(hear(socket, kTcpGreeting), TcpAnswer::Verdict::taken);
  }

  TcpAnswer hear(tcp::socket& socket, TcpClock::duration patience) {
    TcpAnswer answer;
    error_code error;
    asio::async_read(socket, asio::buffer(&answer, sizeof(answer)),
                     [&](const error_code& result, std::size_t) { error = result; });
    wait(socket, patience, error);
    answer.why.back() = '\0';
    if (answer.magic != TcpHello::kMagic) {
      throw NotYet("what answers there is not winnow");
    }
    return answer;
  }

  // Runs the one operation that has begun on `socket`. Throws NotYet if it fails.
  void wait(tcp::socket& socket, TcpClock::duration patience, const error_code& error) {
    io_.restart();
    io_.run_for(std::max(patience, TcpClock::duration::zero()));
    if (!io_.stopped()) {
      error_code ignored;
      socket.close(ignored);
      io_.run();
      throw NotYet("no answer");
    }
    check(error);
  }

  static void check(const error_code& error) {
    if (error) {
      throw NotYet(error.message());
    }
  }

  void require_verdict(const TcpAnswer& answer, TcpAnswer::Verdict expected) const {
    require(answer.verdict == expected, "rank {} was refused by rank 0 at {}: {}", group_.rank,
            tcp_place(group_), answer.why.data());
  }

  const TcpGroup& group_;
  asio::io_context io_;
  tcp::socket data_;
  tcp::socket watch_;
};

}  // namespace

TcpLink visit_tcp_ranks(const TcpGroup& group, asio::io_context& io) {
  const auto begin = TcpClock::now();
  const auto end = begin + tcp_seconds(group.patience.join);
  bool told = false;
  while (true) {
    try {
      return Visit(group).arrive(io);
    } catch (const NotYet& reason) {
      const auto now = TcpClock::now();
      require(now < end, "rank {} has waited {:.0f} s for rank 0 at {}: {}", group.rank,
              group.patience.join, tcp_place(group), reason.what());
      if (!told && now - begin > kTcpNote) {
        told = true;
        note(fmt::format("rank {} waits for rank 0 at {}: {}", group.rank, tcp_place(group),
                         reason.what()));
      }
    }
    std::this_thread::sleep_for(kBetweenVisits);
  }
}

}  // namespace winnow::parallel
