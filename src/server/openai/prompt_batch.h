// Prompts that need one result of the model each (a state or a score), not a generated text.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "server/engine_thread.h"
#include "server/http/http.h"

namespace winnow::server {

class ApiError;
class Service;

/// Submits several prompts to the engine, one answer each, some at a time.
class PromptBatch : public std::enable_shared_from_this<PromptBatch> {
 public:
  struct Hooks {
    /// For a prompt's token; runs as the reply's work.
    std::function<void(std::size_t prompt, const engine::TokenEvent& event)> on_token;
    /// Called when all are answered: the response to send.
    std::function<HttpResponse()> answer;
  };

  PromptBatch(Service& service, std::vector<engine::Request> requests, Hooks hooks,
              std::shared_ptr<Reply> reply);
  void start();

 private:
  class Sink;

  void submit_next(bool is_continued);
  void consume(std::size_t prompt, const StepResult& result);
  void fail(const ApiError& error);
  void cancel();

  Service& service_;
  std::vector<engine::Request> requests_;
  Hooks hooks_;
  std::shared_ptr<Reply> reply_;
  std::map<std::size_t, EngineThread::Ticket> open_;  // by prompt
  std::size_t next_ = 0;                              // the next one to submit
  bool closed_ = false;
};

}  // namespace winnow::server
