// The connections between two TCP ranks, and what is said when they are made.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/tcp_ranks.h"

namespace winnow::parallel {

/// One rank as seen by another.
struct TcpLink {
  int rank = 0;
  boost::asio::ip::tcp::socket data;   // for messages of the communicator
  boost::asio::ip::tcp::socket watch;  // for TcpWatch
};

/// The connections of a pair of ranks, in the order in which they are made.
enum class TcpLine : std::uint32_t { data, watch };

/// What a rank says first on each connection. All ranks have the same byte order.
struct TcpHello {
  static constexpr std::array<char, 8> kMagic{'w', 'i', 'n', 'n', 'o', 'w', 'r', 'k'};
  static constexpr std::uint32_t kProtocol = 1;

  std::array<char, 8> magic = kMagic;
  std::uint32_t protocol = kProtocol;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;
  TcpLine line = TcpLine::data;
  std::array<char, 64> job = {};  // a digest
};

/// What rank 0 answers: at once that it takes or refuses a rank, and later, on the line `data`,
/// that all are there.
struct TcpAnswer {
  enum class Verdict : std::uint32_t { taken, complete, refused };

  std::array<char, 8> magic = TcpHello::kMagic;
  Verdict verdict = Verdict::taken;
  std::array<char, 244> why = {};  // ends with a zero
};

using TcpClock = std::chrono::steady_clock;
inline TcpClock::duration tcp_seconds(double seconds) {
  return std::chrono::duration_cast<TcpClock::duration>(std::chrono::duration<double>(seconds));
}

/// The time that a connection has for what it says first.
inline constexpr std::chrono::seconds kTcpGreeting{10};
/// Whoever still waits then tells the user for what.
inline constexpr std::chrono::seconds kTcpNote{10};

/// Connects rank 0 with the others, by rank, with sockets of `io`. Throws Error.
std::vector<TcpLink> host_tcp_ranks(const TcpGroup& group, boost::asio::io_context& io);
/// Connects another rank with rank 0. Throws Error.
TcpLink visit_tcp_ranks(const TcpGroup& group, boost::asio::io_context& io);

TcpHello tcp_hello(const TcpGroup& group, TcpLine line);
/// Small messages are sent at once, and other programs that this one starts do not get the socket.
void prepare_tcp_socket(boost::asio::ip::tcp::socket& socket);
/// The connection of `socket`, on which nothing waits, as a socket of `io`.
boost::asio::ip::tcp::socket move_tcp_socket(boost::asio::ip::tcp::socket& socket,
                                             boost::asio::io_context& io);
/// HOST:PORT with its origin.
std::string tcp_place(const TcpGroup& group);

}  // namespace winnow::parallel
