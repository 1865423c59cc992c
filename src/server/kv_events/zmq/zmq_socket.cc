#include "server/kv_events/zmq/zmq_socket.h"

#include <zmq.h>

#include "base/error.h"

namespace winnow::server {
namespace {

constexpr int kLinger = 1000;  // milliseconds that the last messages have to be sent

}  // namespace

void ZmqSocket::EndContext::operator()(void* context) const {
  zmq_ctx_term(context);
}

void ZmqSocket::Close::operator()(void* socket) const {
  zmq_close(socket);
}

ZmqSocket::ZmqSocket(int type, const std::string& endpoint, bool binds, int most_queued,
                     std::string_view flag)
    : context_(zmq_ctx_new()), socket_(zmq_socket(context_.get(), type)) {
  const int ipv6 = 1;
  zmq_setsockopt(socket_.get(), ZMQ_LINGER, &kLinger, sizeof kLinger);
  zmq_setsockopt(socket_.get(), ZMQ_SNDHWM, &most_queued, sizeof most_queued);
  zmq_setsockopt(socket_.get(), ZMQ_IPV6, &ipv6, sizeof ipv6);
  const int result = binds ? zmq_bind(socket_.get(), endpoint.c_str())
                           : zmq_connect(socket_.get(), endpoint.c_str());
  require(result == 0, "{} {}: {}", flag, endpoint, zmq_strerror(zmq_errno()));
}

void ZmqSocket::send(const std::vector<std::string_view>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    zmq_send(socket_.get(), frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more);
  }
}

std::optional<std::vector<std::string>> ZmqSocket::receive() {
  std::vector<std::string> frames;
  int more = 0;
  do {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket_.get(), ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return std::nullopt;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    more = zmq_msg_more(&message);
    zmq_msg_close(&message);
  } while (more != 0);
  return frames;
}

}  // namespace winnow::server
