#include "parallel/tcp/link.h"

#include <fcntl.h>

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"

namespace winnow::parallel {

TcpHello tcp_hello(const TcpGroup& group, TcpLine line) {
  TcpHello hello{.size = static_cast<std::uint32_t>(group.size),
                 .rank = static_cast<std::uint32_t>(group.rank),
                 .line = line};
  Sha256 digest;
  digest.update(group.job);
  std::ranges::copy(digest.finish(), hello.job.begin());
  return hello;
}

void prepare_tcp_socket(boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code ignored;  // the other side may have gone: reads find out
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

// The other side may have gone already: then an IPv4 socket that only reports that will do.
boost::asio::ip::tcp::socket move_tcp_socket(boost::asio::ip::tcp::socket& socket,
                                             boost::asio::io_context& io) {
  boost::system::error_code ignored;
  const auto protocol = socket.local_endpoint(ignored).protocol();
  return {io, protocol, socket.release()};
}

std::string tcp_place(const TcpGroup& group) {
  return fmt::format("{}:{} ({})", group.host, group.port, group.port_origin);
}

}  // namespace winnow::parallel
