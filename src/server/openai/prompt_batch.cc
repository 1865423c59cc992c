#include "server/openai/prompt_batch.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/error_text.h"
#include "server/http/api_error.h"
#include "server/service.h"

namespace winnow::server {
namespace {

constexpr std::size_t kMostOpen = 16;  // so that other requests get places too

}  // namespace

class PromptBatch::Sink : public StepSink {
 public:
  Sink(std::shared_ptr<PromptBatch> batch, std::size_t prompt)
      : batch_(std::move(batch)), prompt_(prompt) {}
  void deliver(StepResult result) override {
    batch_->reply_->run([batch = batch_, prompt = prompt_, result = std::move(result)] {
      try {
        batch->consume(prompt, result);
      } catch (const ApiError& error) {
        batch->fail(error);
      } catch (const std::exception& error) {
        batch->service_.log().write(LogLevel::error, "failure", {{"message", error_text(error)}});
        batch->fail(ApiError(500, "the server failed; its log says how", {}, "internal"));
      }
    });
  }

 private:
  std::shared_ptr<PromptBatch> batch_;
  std::size_t prompt_;
};

PromptBatch::PromptBatch(Service& service, std::vector<engine::Request> requests, Hooks hooks,
                         std::shared_ptr<Reply> reply)
    : service_(service),
      requests_(std::move(requests)),
      hooks_(std::move(hooks)),
      reply_(std::move(reply)) {}

void PromptBatch::start() {
  submit_next(/*is_continued=*/false);
  reply_->on_gone([batch = shared_from_this()] {
    batch->closed_ = true;
    batch->cancel();
  });
}

void PromptBatch::submit_next(bool is_continued) {
  std::vector<EngineThread::Submission> submissions;
  const std::size_t first = next_;
  while (next_ < requests_.size() && open_.size() + submissions.size() < kMostOpen) {
    submissions.push_back(
        {std::move(requests_[next_]), std::make_shared<Sink>(shared_from_this(), next_)});
    ++next_;
  }
  if (submissions.empty()) {
    return;
  }
  const auto tickets = service_.engine().submit(std::move(submissions), is_continued);
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    open_[first + i] = tickets[i];
  }
}

void PromptBatch::consume(std::size_t prompt, const StepResult& result) {
  if (closed_) {
    return;
  }
  if (result.shut_down) {
    throw shutting_down();
  }
  if (!result.failure.empty()) {
    throw Error(result.failure);
  }
  for (const engine::TokenEvent& event : result.events) {
    if (event.finish == engine::FinishReason::out_of_memory) {
      throw ApiError(400, "the cache has no room for so long a sequence (--kv-gib)", {},
                     "context_length_exceeded");
    }
    if (event.finish == engine::FinishReason::not_numbers) {
      throw Error(std::string(engine::kNotNumbers));
    }
    if (event.token >= 0 && hooks_.on_token) {
      hooks_.on_token(prompt, event);
    }
  }
  if (result.ended.empty()) {
    return;
  }
  open_.erase(prompt);
  submit_next(/*is_continued=*/true);
  if (open_.empty()) {
    closed_ = true;
    reply_->send(hooks_.answer());
  }
}

void PromptBatch::fail(const ApiError& error) {
  if (!std::exchange(closed_, true)) {
    cancel();
    reply_->send(to_response(error));
  }
}

void PromptBatch::cancel() {
  for (const auto& [_, ticket] : open_) {
    service_.engine().cancel(ticket);
  }
}

}  // namespace winnow::server
