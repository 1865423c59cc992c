// Prompts that are read for what the model makes of them, not for a text that goes on.
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

/// Asks the engine for one answer to each of several prompts, some at a time.
class PromptBatch : public std::enable_shared_from_this<PromptBatch> {
 public:
  struct Hooks {
    /// Of a prompt's token; runs as the reply's work.
    std::function<void(std::size_t prompt, const engine::TokenEvent& event)> on_token;
    /// All are answered: what to send.
    std::function<HttpResponse()> answer;
  };

  PromptBatch(Service& service, std::vector<engine::Request> requests, Hooks hooks,
              std::shared_ptr<Reply> reply);
  void start();

 private:
  class Sink;

  void submit_next();
  void consume(std::size_t prompt, const StepResult& result);
  void fail(const ApiError& error);
  void cancel();

  Service& service_;
  std::vector<engine::Request> requests_;
  Hooks hooks_;
  std::shared_ptr<Reply> reply_;
  std::map<std::size_t, EngineThread::Ticket> open_;  // by prompt
  std::size_t next_ = 0;                              // that is not yet submitted
  bool closed_ = false;
};

}  // namespace winnow::server
