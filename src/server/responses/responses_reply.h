// OpenAI's Responses API: replies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/openai/translating_reply.h"
#include "server/responses/text_tokens.h"

namespace winnow::server {

class ResponsesReply : public TranslatingReply {
 public:
  /// `told_back`: request settings that the answer repeats. `done` (may be empty) gets the whole
  /// response and its assistant message, once at most.
  using Done = std::function<void(const Json& response, Json message)>;
  ResponsesReply(std::shared_ptr<Reply> reply, std::string id, Json told_back, Done done)
      : TranslatingReply(std::move(reply)),
        id_(std::move(id)),
        told_back_(std::move(told_back)),
        done_(std::move(done)) {}

 protected:
  Json whole(const Json& completion) override;
  Json error(int status, const Json& error) override;
  void tell(const Json& chunk) override;
  void tell_error(const Json& error) override;

 private:
  [[nodiscard]] Json response(std::string_view status, Json output) const;
  [[nodiscard]] Json ended();
  void keep(const Json& response) const;
  void tell_event(std::string_view type, Json data);
  void begin_response(const Json& chunk);
  void begin_item(std::string_view kind, Json item, std::string_view part);
  /// `status`: completed, or incomplete if the answer was cut off.
  void end_item(std::string_view status = "completed");
  void tell_piece(const Json& choice);
  void tell_delta(std::string_view type, const std::string& text);
  void tell_calls(const Json& calls);
  void end_response();
  [[nodiscard]] int index() const { return static_cast<int>(output_.size()) - 1; }

  std::string id_;
  Json told_back_;
  Done done_;
  Json head_ = nullptr;    // of the completion: its time and model
  Json finish_ = nullptr;  // finish reason
  Json usage_ = nullptr;
  Json output_ = Json::array();    // items so far, including the open one
  std::string open_;               // kind of the open item; "": none
  std::string part_;               // kind of its part
  std::string text_;               // of this part
  Json logprobs_ = Json::array();  // of this part's tokens
  TextTokens tokens_;              // received, but not yet reported
  bool is_stream_ = true;          // sends events
  int sequence_ = 0;               // of the next event
};

}  // namespace winnow::server
