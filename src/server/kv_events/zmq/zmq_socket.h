// A socket of ZeroMQ, with its context.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

class ZmqSocket {
 public:
  /// `type` is ZMQ_PUB or the like; `flag` names whose value the endpoint is. Binds or connects.
  /// More than `most_queued` messages that the other side does not take are dropped. Throws Error.
  ZmqSocket(int type, const std::string& endpoint, bool binds, int most_queued,
            std::string_view flag);

  /// Frames of one message. Never waits.
  void send(const std::vector<std::string_view>& frames);
  /// The frames of the next message, if one has come.
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
