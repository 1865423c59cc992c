// The engine with host memory: answers equal those without, and what it holds is not computed.
#include "engine/host_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/damaging_backend.h"
#include "engine/saved_copies.h"
#include "engine/stepping_constraint.h"
#include "engine/stored_rule.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::stored {
namespace {

using kvcache::RuleKind;
using ::testing::HasSubstr;

// Flips a bit in the middle of a copy's entries.
void flip(HostCopy& copy) {
  const std::span<std::byte> entries = entries_of(copy);
  entries[entries.size() / 2] ^= std::byte{0x10};
}

/// Prefixes leave the cache when their sequences end.
class HostedPrefix : public StoredRule {
 protected:
  HostedPrefix() {
    config_.prefix_bytes = 0;
    config_.host_bytes = std::size_t{1} << 24;
  }
};

INSTANTIATE_TEST_SUITE_P(Rules, HostedPrefix,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::dmc),
                         winnow::testing::name_of_rule);

Request begins_with(int token) {
  Request request = request_of(200, 0);
  request.prompt.front() = token;
  return request;
}

// The conversation after an answer: three tokens more.
Request continued(Request request, const Answer& answer) {
  request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  request.prompt.insert(request.prompt.end(), {1, 2, 3});
  return request;
}

TEST_P(HostedPrefix, ComesBackWithoutComputation) {
  Engine engine(backend_, config_);
  const Request first = request_of(200, 0);
  const Answer answer = ask(engine, first);
  expect_same(answer, alone(first));
  EXPECT_EQ(engine.page_bytes(), 0U);
  const HostTierStats before = *engine.stats().host;
  EXPECT_EQ(before.saved, 1);  // the end; no states at intervals
  EXPECT_EQ(before.prefixes, 1U);
  EXPECT_GT(before.bytes, 0U);
  const std::int64_t computed = engine.throughput().prefill_tokens;
  const Request next = continued(first, answer);
  const Answer went_on = ask(engine, next);
  expect_same(went_on, alone(next));
  EXPECT_EQ(went_on.usage.reused_tokens, 211);
  EXPECT_EQ(engine.throughput().prefill_tokens - computed, 215 - 211);
  const HostTierStats after = *engine.stats().host;
  EXPECT_EQ(after.restored, 1);
  EXPECT_EQ(after.restored_tokens, 211);
  EXPECT_EQ(after.saved, 2);  // the new end: the copy of the first one was still there
}

TEST_P(HostedPrefix, IsFoundWhereOthersPart) {
  Engine engine(backend_, config_);
  ask(engine, request_of(200, 1));
  ask(engine, request_of(200, 2));  // leaves a state where the two part
  const Answer third = ask(engine, request_of(200, 3));
  expect_same(third, alone(request_of(200, 3)));
  EXPECT_EQ(third.usage.reused_tokens, 190);
}

TEST_P(HostedPrefix, SamplesAndVotesShareIt) {
  Engine engine(backend_, config_);
  const Request first = request_of(200, 0);
  Request next = continued(first, ask(engine, first));
  next.samples = 4;
  next.sampling = {.temperature = 1.0, .seed = 3};
  const auto answers_of = [&](Engine& by) {
    std::map<int, std::vector<std::int32_t>> tokens;
    by.submit(next);
    while (!by.idle()) {
      for (const TokenEvent& event : by.step()) {
        tokens[event.sample].push_back(event.token);
      }
    }
    return tokens;
  };
  const auto hosted = answers_of(engine);
  EXPECT_EQ(engine.stats().host->restored, 1);
  config_.host_bytes = 0;
  Engine anew(backend_, config_);
  EXPECT_EQ(hosted, answers_of(anew));
}

// Room for three and a half states: the least recently used goes first.
TEST_P(HostedPrefix, TheLeastRecentlyUsedGoFirst) {
  std::size_t one = 0;
  {
    Engine engine(backend_, config_);
    ask(engine, begins_with(1));
    one = engine.stats().host->bytes;
  }
  config_.host_bytes = one * 7 / 2;
  Engine engine(backend_, config_);
  const auto ask_within = [&](const Request& request) {
    const Answer answer = ask(engine, request);
    expect_same(answer, alone(request));
    EXPECT_LE(engine.stats().host->bytes, config_.host_bytes);
    return answer;
  };
  const Answer first = ask_within(begins_with(1));
  const Answer second = ask_within(begins_with(2));
  const Request first_goes_on = continued(begins_with(1), first);
  const Answer more = ask_within(first_goes_on);  // uses the first again
  EXPECT_EQ(more.usage.reused_tokens, 211);
  ask_within(begins_with(3));  // takes the place of the second
  EXPECT_EQ(engine.stats().host->prefixes, 3U);
  EXPECT_EQ(ask_within(continued(begins_with(2), second)).usage.reused_tokens, 0);
  EXPECT_EQ(ask_within(continued(first_goes_on, more)).usage.reused_tokens, 226);
}

// Host memory for one state and a directory for the others.
TEST_P(HostedPrefix, WhatLeavesItGoesToTheDisk) {
  {
    Engine engine(backend_, config_);
    ask(engine, begins_with(1));
    config_.host_bytes = engine.stats().host->bytes * 3 / 2;
  }
  const auto store = open_store();
  Engine engine(backend_, config_, store.get());
  std::vector<Answer> answers;
  for (const int token : {1, 2, 3}) {
    answers.push_back(ask(engine, begins_with(token)));
  }
  store->flush();
  EXPECT_EQ(store->stats().written, 2);
  const Request in_memory = continued(begins_with(3), answers[2]);
  EXPECT_EQ(ask(engine, in_memory).usage.reused_tokens, 211);
  EXPECT_EQ(store->stats().hits, 0);
  const Request on_disk = continued(begins_with(1), answers[0]);
  const Answer from_disk = ask(engine, on_disk);
  expect_same(from_disk, alone(on_disk));
  EXPECT_EQ(from_disk.usage.reused_tokens, 211);
  EXPECT_EQ(store->stats().hits, 1);
  while (engine.store_prefix()) {
  }
  engine.drop_prefixes();
  EXPECT_EQ(engine.stats().host->bytes, 0U);
}

TEST_P(HostedPrefix, ADamagedOneIsComputedAgain) {
  const testing::DamagingBackend damaging(std::make_unique<CpuBackend>(model_), flip);
  Engine engine(damaging, config_);
  ::testing::internal::CaptureStderr();
  Request request = request_of(200, 0);
  for (int turn = 1; turn <= 3; ++turn) {
    const Answer answer = ask(engine, request);
    expect_same(answer, alone(request));
    EXPECT_EQ(answer.usage.reused_tokens, 0);
    EXPECT_EQ(engine.stats().host->damaged, turn - 1);
    // Damaged ones are dropped, and others made where they were.
    EXPECT_EQ(engine.stats().host->prefixes, static_cast<std::size_t>(turn));
    request = continued(request, answer);
  }
  EXPECT_EQ(engine.stats().host->restored, 0);
  const std::string notes = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(notes, HasSubstr("a state in the host's memory (--host-gib) was damaged"));
  EXPECT_EQ(std::ranges::count(notes, '\n'), 1);
}

TEST_P(HostedPrefix, ADamagedOneDoesNotGoToTheDisk) {
  const testing::DamagingBackend damaging(std::make_unique<CpuBackend>(model_), flip);
  const auto store = open_store();
  Engine engine(damaging, config_, store.get());
  ask(engine, begins_with(1));
  ask(engine, begins_with(2));
  EXPECT_TRUE(engine.store_prefix());
  EXPECT_EQ(engine.stats().host->prefixes, 1U);
  engine.drop_prefixes();
  store->flush();
  EXPECT_EQ(store->stats().written, 0);
  EXPECT_EQ(engine.stats().host->damaged, 2);
  EXPECT_EQ(engine.stats().host->bytes, 0U);
}

/// Samples of a prompt in a cache for fewer of them, which preempt each other.
class SetAside : public ::testing::TestWithParam<RuleKind> {
 protected:
  struct Run {
    std::map<int, std::vector<std::int32_t>> tokens;
    EngineStats stats;
    std::int64_t forwarded = 0;  // tokens that went through the model
  };
  static constexpr int kPrompt = 48;
  static constexpr int kAnswer = 60;
  static constexpr int kSamples = 4;

  SetAside() : backend_(testing::model_for(GetParam(), DType::f32)) {
    set_threads(1);
    config_.cache.cr = 2.0;
    config_.step_tokens = 64;
    for (int i = 0; i < kPrompt; ++i) {
      request_.prompt.push_back(i % 60);
    }
    request_.max_tokens = kAnswer;
    request_.sampling = {.temperature = 1.0, .seed = 9};
  }

  Run run(int samples) { return run(samples, backend_); }
  Run run(int samples, const Backend& backend) {
    Engine engine(backend, config_);
    request_.samples = samples;
    const RequestId id = engine.submit(request_);
    Run run;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        run.tokens[event.sample].push_back(event.token);
      }
    }
    bytes_ = engine.take_usage(id, 0).bytes;
    run.stats = engine.stats();
    run.forwarded = engine.throughput().prefill_tokens + engine.throughput().decode_tokens;
    return run;
  }
  /// Gives the cache room for so many samples.
  void squeeze(double samples = 1.5) {
    run(1);
    config_.cache.max_bytes = static_cast<std::size_t>(static_cast<double>(bytes_) * samples);
  }

  CpuBackend backend_;
  EngineConfig config_ = testing::roomy(GetParam());
  Request request_;
  std::size_t bytes_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Rules, SetAside, ::testing::ValuesIn(winnow::testing::every_rule()),
                         winnow::testing::name_of_rule);

constexpr std::int64_t forwarded_once(int samples, int prompt, int answer) {
  return prompt + std::int64_t{samples} * (answer - 1);
}

TEST_P(SetAside, APreemptedSequenceIsNotComputedAgain) {
  const Run whole = run(kSamples);
  EXPECT_EQ(whole.forwarded, forwarded_once(kSamples, kPrompt, kAnswer));
  squeeze();
  const Run computed = run(kSamples);
  EXPECT_GT(computed.forwarded, whole.forwarded);
  config_.host_bytes = std::size_t{1} << 24;
  const Run moved = run(kSamples);
  EXPECT_EQ(moved.tokens, whole.tokens);
  EXPECT_GT(moved.stats.preemptions, 0);
  EXPECT_EQ(moved.stats.host->saved, moved.stats.preemptions);
  EXPECT_GE(moved.stats.host->restored, moved.stats.host->saved);
  EXPECT_EQ(moved.stats.host->bytes, 0U);
  EXPECT_EQ(moved.forwarded, whole.forwarded);
  EXPECT_EQ(moved.stats.prompt_tokens, kPrompt);
}

TEST_P(SetAside, WithoutRoomItIsComputedAgain) {
  const Run whole = run(kSamples);
  squeeze();
  config_.host_bytes = 100;
  const Run computed = run(kSamples);
  EXPECT_EQ(computed.tokens, whole.tokens);
  EXPECT_GT(computed.stats.host->refused, 0);
  EXPECT_EQ(computed.stats.host->saved, 0);
  EXPECT_GT(computed.forwarded, whole.forwarded);
}

TEST_P(SetAside, ADamagedOneIsComputedAgain) {
  const Run whole = run(kSamples);
  squeeze();
  config_.host_bytes = std::size_t{1} << 24;
  const testing::DamagingBackend damaging(
      std::make_unique<CpuBackend>(testing::model_for(GetParam(), DType::f32)), flip);
  const Run computed = run(kSamples, damaging);
  EXPECT_EQ(computed.tokens, whole.tokens);
  EXPECT_EQ(computed.stats.host->saved, computed.stats.preemptions);
  EXPECT_GT(computed.stats.host->damaged, 0);
  EXPECT_EQ(computed.stats.host->restored, 0);
  EXPECT_EQ(computed.stats.host->bytes, 0U);
  EXPECT_GT(computed.forwarded, whole.forwarded);
}

TEST_P(SetAside, ItsGrammarGoesOn) {
  request_.constraint = std::make_shared<testing::SteppingConstraint>(1000);
  const Run whole = run(kSamples);
  squeeze();
  config_.host_bytes = std::size_t{1} << 24;
  const Run moved = run(kSamples);
  EXPECT_EQ(moved.tokens, whole.tokens);
  EXPECT_GT(moved.stats.host->restored, 0);
  EXPECT_EQ(moved.forwarded, whole.forwarded);
  for (const auto& [sample, tokens] : moved.tokens) {
    EXPECT_TRUE(testing::obeys(tokens)) << sample;
  }
}

TEST_P(SetAside, DraftsGoOn) {
  request_.rules.allowed = {1, 2};  // texts that repeat by chance
  const Run whole = run(kSamples);
  squeeze(2.0);  // a draft needs room, too
  config_.host_bytes = std::size_t{1} << 24;
  config_.draft_tokens = 6;
  const Run moved = run(kSamples);
  EXPECT_EQ(moved.tokens, whole.tokens);
  EXPECT_GT(moved.stats.accepted_tokens, 0);
  EXPECT_GT(moved.stats.host->restored, 0);
}

// A fork continues from its own state, not from a prefix that samples have left.
TEST_P(SetAside, ItGoesOnBesidePrefixes) {
  config_.reuse_prefixes = true;
  config_.prefix_bytes = 0;
  const Run whole = run(kSamples);
  squeeze();
  config_.host_bytes = std::size_t{1} << 24;
  const Run moved = run(kSamples);
  EXPECT_EQ(moved.tokens, whole.tokens);
  EXPECT_GT(moved.stats.host->restored, 0);
  EXPECT_EQ(moved.forwarded, whole.forwarded);
}

TEST(SetAsideRequest, CanBeCancelled) {
  EngineConfig config = testing::roomy(RuleKind::dense);
  config.host_bytes = std::size_t{1} << 24;
  config.cache.max_bytes = std::size_t{1024} * 30;
  const CpuBackend backend(testing::model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  Request request;
  request.prompt.assign(48, 3);
  request.max_tokens = 60;
  request.samples = 3;
  const RequestId id = engine.submit(request);
  while (!engine.idle() && engine.stats().host->bytes == 0) {
    engine.step();
  }
  EXPECT_GT(engine.stats().host->bytes, 0U);
  engine.cancel(id);
  engine.step();
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.stats().host->bytes, 0U);
}

}  // namespace
}  // namespace winnow::engine::stored
