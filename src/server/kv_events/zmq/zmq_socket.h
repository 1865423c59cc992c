// A ZeroMQ socket with its context.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

class ZmqSocket {
 public:
  /// `type`: ZMQ_PUB or similar; `flag`: the command-line flag of the endpoint. Binds or connects.
  /// Drops messages when more than `most_queued` wait for the other side. Throws Error.
  ZmqSocket(int type, const std::string& endpoint, bool binds, int most_queued,
            std::string_view flag);

  /// Sends the frames of one message. Never waits.
  void send(const std::vector<std::string_view>& frames);
  /// The frames of the next message, if one has arrived.
  std::optional<std::vector<std::string>> receive();

 private:
  struct EndContext {
    void operator()(void* context) const;
  };
  struct Close {
    void operator()(void* socket) const;
  };

  std::unique_ptr<void, EndContext> context_;
  std::unique_ptr<void, Close> socket_;
};

}  // namespace winnow::server
