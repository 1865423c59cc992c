// Converts the answers of chats to another API's format.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http.h"

namespace winnow::server {

/// Receives the output of a chat completion, and sends its translation.
class TranslatingReply : public Reply {
 public:
  explicit TranslatingReply(std::shared_ptr<Reply> reply) : reply_(std::move(reply)) {}

  void send(HttpResponse response) override;
  void begin(HttpResponse head) override { reply_->begin(std::move(head)); }
  void write(std::string piece) override;
  void end() override { reply_->end(); }
  void cut() override { reply_->cut(); }
  void run(std::function<void()> work) override { reply_->run(std::move(work)); }
  void on_gone(std::function<void()> gone) override { reply_->on_gone(std::move(gone)); }

 protected:
  using Json = nlohmann::ordered_json;

  /// Translates the whole answer of a chat completion.
  virtual Json whole(const Json& completion) = 0;
  /// Translates OpenAI's error.
  virtual Json error(int status, const Json& error) = 0;
  /// Adds the translated events of a stream's chunk, by event(); null at the end of the stream.
  virtual void tell(const Json& chunk) = 0;
  /// Adds the event that ends a stream with an error.
  virtual void tell_error(const Json& error) = 0;

  void event(std::string_view name, const Json& data);

 private:
  std::shared_ptr<Reply> reply_;
  std::string pending_;  // of the incoming stream
  std::string events_;   // of the outgoing stream
};

}  // namespace winnow::server
