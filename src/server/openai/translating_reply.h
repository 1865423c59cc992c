// Answers of chats in the words of another API.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http.h"

namespace winnow::server {

/// Takes what a chat completion sends, and sends on what it becomes.
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

  /// A whole answer, of a chat completion.
  virtual Json whole(const Json& completion) = 0;
  /// An error, of OpenAI's.
  virtual Json error(int status, const Json& error) = 0;
  /// Adds the events that a chunk of a stream becomes, by event(); null at the end of the stream.
  virtual void tell(const Json& chunk) = 0;
  /// Adds the event that ends a stream with an error.
  virtual void tell_error(const Json& error) = 0;

  void event(std::string_view name, const Json& data);

 private:
  std::shared_ptr<Reply> reply_;
  std::string pending_;  // of the stream that comes in
  std::string events_;   // of the stream that goes out
};

}  // namespace winnow::server
