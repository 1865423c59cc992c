// Rank 0's side of the beginning of a group of TCP ranks.
#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/note.h"
#include "parallel/tcp/link.h"

namespace winnow::parallel {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// A connection that has not said yet who it is.
struct Visitor {
  explicit Visitor(tcp::socket connected)
      : socket(std::move(connected)), timer(socket.get_executor()) {}
  tcp::socket socket;
  asio::steady_timer timer;
  TcpHello hello;
};

TcpAnswer answer_of(TcpAnswer::Verdict verdict, std::string_view why = {}) {
  TcpAnswer answer{.verdict = verdict};
  std::ranges::copy(why.substr(0, answer.why.size() - 1), answer.why.begin());
  return answer;
}

// Whether the other side has closed a connection on which it has nothing to say yet.
bool has_closed(tcp::socket& socket) {
  error_code error;
  socket.non_blocking(true, error);
  char byte = 0;
  socket.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
  return error && error != asio::error::would_block;
}

class Host {
 public:
  explicit Host(const TcpGroup& group)
      : group_(group), acceptor_(io_), places_(static_cast<std::size_t>(group.size)) {}

  // Their sockets belong to `io`.
  std::vector<TcpLink> wait_for_all(asio::io_context& io) {
    listen();
    accept();
    const auto begin = TcpClock::now();
    const auto end = begin + tcp_seconds(group_.patience.join);
    run_until(std::min(begin + kTcpNote, end));
    if (!is_complete() && TcpClock::now() < end) {
      note(fmt::format("rank 0 waits at {} for {}", tcp_place(group_), missing()));
      run_until(end);
    }
    if (!is_complete()) {
      const std::string why = fmt::format("rank 0 has waited {:.0f} s at {} for {}",
                                          group_.patience.join, tcp_place(group_), missing());
      tell_all(answer_of(TcpAnswer::Verdict::refused, why));
      throw Error(why);
    }
    tell_all(answer_of(TcpAnswer::Verdict::complete));
    return links(io);
  }

 private:
  struct Place {
    std::optional<tcp::socket> data;
    std::optional<tcp::socket> watch;
  };

  // An address of this machine, or all of them: what MASTER_ADDR means here may not be what it
  // means on other machines (a name of the own machine is often 127.0.1.1) or may belong to a
  // device in between.
  void listen() {
    error_code error;
    const bool is_number = (asio::ip::make_address(group_.host, error), !error);
    const auto found = tcp::resolver(io_).resolve(group_.host, std::to_string(group_.port),
                                                  tcp::resolver::passive, error);
    for (const auto& entry : found) {
      const tcp::endpoint place = entry.endpoint();
      if (!is_number && !group_.one_machine && place.address().is_loopback()) {
        continue;
      }
      if (listen_at(place)) {
        return;
      }
    }
    const auto port = static_cast<std::uint16_t>(group_.port);
    require(listen_at({tcp::v6(), port}) || listen_at({tcp::v4(), port}),
            "rank 0 cannot listen at {}", tcp_place(group_));
  }

  // False: that is no address of this machine.
  bool listen_at(const tcp::endpoint& place) {
    error_code error;
    acceptor_.close(error);
    acceptor_.open(place.protocol(), error);
    if (error) {
      return false;  // no IPv6
    }
    ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
    acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (place.address().is_v6()) {
      acceptor_.set_option(asio::ip::v6_only(false), error);
    }
    acceptor_.bind(place, error);
    if (error == boost::system::errc::address_not_available ||
        error == asio::error::address_family_not_supported) {
      return false;
    }
    if (!error) {
      acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    require(
        !error, "rank 0 cannot listen at {}: {}{}", tcp_place(group_), error.message(),
        error == asio::error::address_in_use ? ": choose another MASTER_PORT for all ranks" : "");
    return true;
  }

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) {
        return;
      }
      if (!error) {
        greet(std::make_shared<Visitor>(std::move(socket)));
      }
      accept();
    });
  }

  void greet(const std::shared_ptr<Visitor>& visitor) {
    prepare_tcp_socket(visitor->socket);
    visitor->timer.expires_after(kTcpGreeting);
    visitor->timer.async_wait([visitor](const error_code& error) {
      if (!error) {
        error_code ignored;
        visitor->socket.close(ignored);
      }
    });
    asio::async_read(visitor->socket, asio::buffer(&visitor->hello, sizeof(TcpHello)),
                     [this, visitor](const error_code& error, std::size_t) {
                       visitor->timer.cancel();
                       judge(*visitor, error);
                     });
  }

  void judge(Visitor& visitor, const error_code& error) {
    error_code ignored;
    const auto from = visitor.socket.remote_endpoint(ignored).address().to_string();
    if (error || visitor.hello.magic != TcpHello::kMagic) {
      return note(fmt::format("a connection from {} was no rank of winnow: ignored", from));
    }
    const std::string why = objection_to(visitor.hello);
    if (!why.empty()) {
      note(fmt::format("rank {} of {} at {} was refused: {}", visitor.hello.rank,
                       visitor.hello.size, from, why));
      return answer(visitor.socket, answer_of(TcpAnswer::Verdict::refused, why));
    }
    answer(visitor.socket, answer_of(TcpAnswer::Verdict::taken));
    line_of(visitor.hello) = std::move(visitor.socket);
    if (visitor.hello.line == TcpLine::data) {
      places_[visitor.hello.rank].watch.reset();  // of a process that has ended
    }
  }

  // Empty: welcome.
  std::string objection_to(const TcpHello& hello) {
    if (hello.protocol != TcpHello::kProtocol) {
      return "it is another version of winnow";
    }
    if (hello.job != tcp_hello(group_, hello.line).job) {
      return "it belongs to another run of torchrun";
    }
    if (hello.size != static_cast<std::uint32_t>(group_.size)) {
      return fmt::format("this group has {} ranks", group_.size);
    }
    if (hello.rank == 0 || hello.rank >= hello.size || hello.line > TcpLine::watch) {
      return fmt::format("expected ranks 1 to {}", group_.size - 1);
    }
    auto& taken = line_of(hello);
    if (taken && !has_closed(*taken)) {
      return fmt::format("rank {} is there already", hello.rank);
    }
    return {};
  }

  std::optional<tcp::socket>& line_of(const TcpHello& hello) {
    Place& place = places_[hello.rank];
    return hello.line == TcpLine::data ? place.data : place.watch;
  }

  static void answer(tcp::socket& socket, const TcpAnswer& answer) {
    error_code ignored;  // a rank that has gone is lost later, or comes again
    asio::write(socket, asio::buffer(&answer, sizeof(answer)), ignored);
  }

  void tell_all(const TcpAnswer& verdict) {
    for (Place& place : places_) {
      if (place.data) {
        answer(*place.data, verdict);
      }
    }
  }

  [[nodiscard]] std::vector<std::size_t> missing_ranks() {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 1; rank < places_.size(); ++rank) {
      Place& place = places_[rank];
      if (!place.data || !place.watch || has_closed(*place.data) || has_closed(*place.watch)) {
        ranks.push_back(rank);  // not here, or gone again
      }
    }
    return ranks;
  }
  [[nodiscard]] bool is_complete() { return missing_ranks().empty(); }
  [[nodiscard]] std::string missing() {
    const auto ranks = missing_ranks();
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
  }

  void run_until(TcpClock::time_point end) {
    while (!is_complete() && TcpClock::now() < end) {
      io_.run_one_until(end);
    }
  }

  std::vector<TcpLink> links(asio::io_context& io) {
    std::vector<TcpLink> links;
    for (std::size_t rank = 1; rank < places_.size(); ++rank) {
      Place& place = places_[rank];
      links.push_back({static_cast<int>(rank), move_tcp_socket(*place.data, io),
                       move_tcp_socket(*place.watch, io)});
    }
    return links;
  }

  const TcpGroup& group_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::vector<Place> places_;  // by rank; rank 0's is empty
};

}  // namespace

std::vector<TcpLink> host_tcp_ranks(const TcpGroup& group, asio::io_context& io) {
  return Host(group).wait_for_all(io);
}

}  // namespace winnow::parallel
