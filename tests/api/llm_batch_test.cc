// Callers that share an engine on a device that fails.
#include "api/llm_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "engine/counting_backend.h"
#include "tokenizer/tiny.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow::engine {
namespace {

using namespace std::chrono_literals;
using testing::CountingBackend;
using testing::Fault;

EngineConfig dense_config() {
  EngineConfig config;
  config.cache.rule = kvcache::RuleKind::dense;
  return config;
}

std::shared_ptr<Answer> answer_of(int prompt, int max_tokens, const GenerateOptions& options = {},
                                  const Tokenizer* tokenizer = nullptr) {
  Request request;
  request.prompt.resize(static_cast<std::size_t>(prompt), 1);
  request.max_tokens = max_tokens;
  return std::make_shared<Answer>(tokenizer, options, std::move(request));
}

/// The error that repeated calls of `call` throw; "" if they end without one.
template <class Call>
std::string failure_of(const Call& call) {
  try {
    while (call()) {
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string failure_of(Batch& batch, const std::shared_ptr<Answer>& answer) {
  return failure_of([&] {
    const bool more = batch.advance(*answer);
    batch.take(*answer);
    return more;
  });
}

// No caller may wait forever, whichever of them ran the failing step.
TEST(Batch, EveryThreadHearsOfADeviceThatFails) {
  for (const Fault fault : {Fault::steps, Fault::reads, Fault::device}) {
    const CountingBackend backend(fault, 1ms);
    Batch batch(backend, dense_config());
    std::vector<std::future<std::string>> failures;
    for (int max_tokens = 4; max_tokens < 8; ++max_tokens) {
      const auto answer = answer_of(3, max_tokens);
      batch.submit(answer);
      failures.push_back(
          std::async(std::launch::async, [&batch, answer] { return failure_of(batch, answer); }));
    }
    for (std::future<std::string>& failure : failures) {
      ASSERT_EQ(failure.wait_for(20s), std::future_status::ready);
      EXPECT_EQ(failure.get(),
                fault == Fault::reads ? "the device does not answer" : "a kernel has failed");
    }
  }
}

TEST(Batch, WhoAsksDuringAStepHearsOfADeviceThatFails) {
  const CountingBackend backend(Fault::reads, 1ms);
  Batch batch(backend, dense_config());
  const auto answer = answer_of(3, 900);
  batch.submit(answer);
  auto asking = std::async(std::launch::async, [&batch] {
    return failure_of([&] { return batch.stats().steps < 900; });
  });
  while (asking.wait_for(0s) != std::future_status::ready && batch.advance(*answer)) {
    batch.take(*answer);
  }
  EXPECT_EQ(asking.get(), "the device does not answer");
}

TEST(Batch, CancellingDoesNotThrow) {
  const CountingBackend backend(Fault::reads);
  Batch batch(backend, dense_config());
  const auto cancelled = answer_of(3, 900);
  const auto other = answer_of(5, 20);
  batch.submit(cancelled);
  batch.submit(other);
  EXPECT_TRUE(batch.advance(*other));
  batch.take(*cancelled);
  EXPECT_NO_THROW(batch.cancel(cancelled));
  EXPECT_EQ(failure_of(batch, cancelled), "the device does not answer");
  EXPECT_THROW(batch.finish(*cancelled), Error);
  EXPECT_TRUE(batch.advance(*other));  // no other answer has failed yet
}

TEST(Batch, AnAnswerThatCannotBeStoppedFails) {
  const auto tokenizer =
      parse_tokenizer_json(winnow::testing::tiny_tokenizer().dump(), "tokenizer.json");
  const CountingBackend backend(Fault::reads);
  Batch batch(backend, dense_config());
  const auto answer = answer_of(60, 30, {.stop = {"A"}}, tokenizer.get());  // token 65
  batch.submit(answer);
  EXPECT_EQ(failure_of(batch, answer), "the device does not answer");
}

}  // namespace
}  // namespace winnow::engine
