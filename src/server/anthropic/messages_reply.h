// Anthropic's Messages API: replies.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/openai/translating_reply.h"

namespace winnow::server {

class MessagesReply : public TranslatingReply {
 public:
  using TranslatingReply::TranslatingReply;

 protected:
  Json whole(const Json& completion) override;
  Json error(int status, const Json& error) override;
  void tell(const Json& chunk) override;
  void tell_error(const Json& error) override;

 private:
  void begin_message(const Json& chunk);
  void begin_block(std::string_view kind, Json block);
  void end_block();
  void tell_delta(std::string_view kind, const Json& delta);
  void tell_calls(const Json& calls);
  void end_message();

  bool begun_ = false;
  int blocks_ = 0;        // started so far
  std::string open_;      // kind of the open block; "": none
  Json stop_ = nullptr;   // stop_reason and stop_sequence, once known
  Json usage_ = nullptr;  // of the last chunk
};

}  // namespace winnow::server
