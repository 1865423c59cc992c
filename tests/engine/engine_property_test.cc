// A request's answer does not depend on what else the engine does: other requests, arrival, chunks,
// forks, a cache too small for all, preemption, drafts. And every page is freed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "engine/drafting.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

Client any_client() {
  Client client;
  Request& request = client.request;
  Random random(*rc::gen::inRange<std::uint64_t>(0, 1000));
  request.prompt.resize(static_cast<std::size_t>(*rc::gen::inRange(1, 70)));
  std::ranges::generate(request.prompt,
                        [&] { return static_cast<std::int32_t>(random.uniform() * 64.0); });
  // Many prompts have a common beginning, some are entirely equal.
  const auto shared = static_cast<std::size_t>(*rc::gen::element(0, 0, 33, 48, 70));
  std::ranges::fill(std::span(request.prompt).first(std::min(shared, request.prompt.size())), 7);
  request.max_tokens = *rc::gen::inRange(1, 40);
  request.samples = *rc::gen::element(1, 1, 1, 2, 4);
  request.sampling.temperature = *rc::gen::element(0.0, 0.0, 1.0);
  request.sampling.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  request.sampling.top_p = *rc::gen::element(1.0, 0.9);
  request.sampling.repetition_penalty = *rc::gen::element(1.0, 1.3);
  request.sampling.frequency_penalty = *rc::gen::element(0.0, 0.0, 0.5);
  request.prompt_logprobs = *rc::gen::element(-1, -1, -1, 0);
  request.trace = *rc::gen::element(false, false, false, true);
  request.logprobs = 0;
  request.draft_tokens = *rc::gen::element(std::optional<int>(), std::optional<int>(),
                                           std::optional<int>(0), std::optional<int>(15));
  request.stop_tokens =
      *rc::gen::element(std::vector<std::int32_t>{}, std::vector<std::int32_t>{3, 30});
  client.arrives = *rc::gen::inRange(0, 40);
  if (*rc::gen::inRange(0, 6) == 0) {
    client.cancels = client.arrives + *rc::gen::inRange(0, 20);
  }
  return client;
}

// RapidCheck's ranges grow with its size; here every case uses full ranges.
constexpr int kFullSize = 100;

std::vector<Client> any_clients() {
  std::vector<Client> clients;
  const int count = *rc::gen::resize(kFullSize, rc::gen::inRange(1, 7));
  for (int i = 0; i < count; ++i) {
    clients.push_back(*rc::gen::resize(kFullSize, rc::gen::exec(any_client)));
  }
  return clients;
}

using Kind = model::RecurrentSpec::Kind;

struct Taught {
  RuleKind rule;
  Recurrent recurrent = {};  // kind of recurrent layers
  int ranks = 1;
};

// From a page to enough for all sequences.
kvcache::CacheConfig any_draft_cache(const model::ModelSpec& model) {
  kvcache::CacheConfig cache;
  cache.rule = model.dms ? RuleKind::dms : RuleKind::dense;
  cache.window = model.dms ? kTinyWindow : 0;
  cache.format = *rc::gen::element(ops::EntryFormat::f32, ops::EntryFormat::bf16);
  cache.max_bytes = std::size_t{1024} << *rc::gen::inRange(0, 14);
  return cache;
}

EngineConfig any_engine(const Taught& taught) {
  const RuleKind rule = taught.rule;
  EngineConfig config;
  config.cache.rule = rule;
  config.cache.format = *rc::gen::elementOf(
      std::vector(std::begin(ops::kEntryFormats), std::end(ops::kEntryFormats)));
  config.cache.window = kvcache::traits_of(rule).marks ? kTinyWindow : 0;
  config.cache.cr = *rc::gen::element(1.0, 2.0, 4.0);
  config.step_tokens = *rc::gen::inRange(1, 64);
  config.max_sequences = *rc::gen::inRange(1, 9);
  config.host_bytes = *rc::gen::element<std::size_t>(0, 0, 20'000, std::size_t{1} << 22);
  config.compute = DType::f32;
  config.deterministic = true;
  config.reuse_prefixes = *rc::gen::element(false, true, true);
  config.draft_tokens = *rc::gen::element(0, 1, 4, 15);
  if (taught.ranks == 1 && *rc::gen::inRange(0, 4) == 0) {
    config.draft_model = &random_head_backend();
    config.draft_cache = any_draft_cache(config.draft_model->spec());
  } else if (*rc::gen::element(false, true)) {
    config.draft_model = &backend_for(*rc::gen::element(RuleKind::dense, RuleKind::dms), DType::f32,
                                      *rc::gen::element(Recurrent{}, taught.recurrent), 1);
    config.draft_cache = any_draft_cache(config.draft_model->spec());
  }
  // From a single page to enough for a few sequences; DMC's open entries have a pool of their own.
  const std::size_t page =
      rule == RuleKind::dmc ? 1024 : ops::PageLayout(config.cache.format, 8).page_bytes();
  config.cache.max_bytes = page * static_cast<std::size_t>(*rc::gen::inRange(1, 90)) *
                           static_cast<std::size_t>(taught.ranks);
  return config;
}

void show(const EngineConfig& config, const std::vector<Client>& clients) {
  RC_LOG() << kvcache::rule_name(config.cache.rule) << ' ' << ops::format_name(config.cache.format)
           << " cr " << config.cache.cr << " bytes " << config.cache.max_bytes << " step "
           << config.step_tokens << " sequences " << config.max_sequences << " drafts "
           << config.draft_tokens
           << (config.draft_model == nullptr ? "" : " by a model with bytes ")
           << config.draft_cache.max_bytes << " host " << config.host_bytes << '\n';
  for (const Client& client : clients) {
    RC_LOG() << "  prompt " << client.request.prompt.size() << " new " << client.request.max_tokens
             << " samples " << client.request.samples << " temperature "
             << client.request.sampling.temperature << " arrives " << client.arrives << " cancels "
             << client.cancels.value_or(-1) << '\n';
  }
}

// The bytes that hold on ranks what `bytes` hold on one.
std::size_t on_ranks(const Backend& backend, std::size_t bytes) {
  const kvcache::CacheShape shape = backend.cache_shape();
  return bytes * static_cast<std::size_t>(shape.held_heads()) /
         static_cast<std::size_t>(shape.all_heads());
}

bool is_prefix(const Answer& part, const Answer& whole) {
  return part.tokens.size() <= whole.tokens.size() &&
         std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()) &&
         std::equal(part.logprobs.begin(), part.logprobs.end(), whole.logprobs.begin());
}

// A forked sample has a trace of the prompt only if it had to read it again; else zeros.
bool is_same_trace(const std::vector<std::int32_t>& busy, const std::vector<std::int32_t>& whole) {
  return std::ranges::equal(busy, whole, [](int a, int b) { return a == b || b == 0; });
}

// `answer` is from a busy engine with little memory; `same_memory` and `whole` are from engines
// that served only this request, with as little memory and with plenty.
void expect_same(const Answer& answer, const Answer& same_memory, const Answer& whole) {
  RC_ASSERT(whole.finish != FinishReason::out_of_memory);
  RC_ASSERT(is_prefix(answer, whole));
  if (answer.finish == FinishReason::cancelled) {
    return;
  }
  RC_ASSERT(answer.finish == same_memory.finish);  // out of memory only if also when alone
  RC_ASSERT(answer.tokens == same_memory.tokens);
  if (answer.finish != FinishReason::out_of_memory) {
    RC_ASSERT(answer.finish == whole.finish);
    RC_ASSERT(answer.tokens.size() == whole.tokens.size());
    RC_ASSERT(answer.usage.tokens == whole.usage.tokens);
    RC_ASSERT(answer.usage.per_head == whole.usage.per_head);
    RC_ASSERT(is_same_trace(answer.visible, whole.visible));
    RC_ASSERT(answer.usage.dense_bytes == whole.usage.dense_bytes);
  }
}

std::vector<Taught> every_taught() {
  std::vector<Taught> all{
      Taught{RuleKind::dense, Kind::delta_net}, Taught{RuleKind::dms, Kind::delta_net},
      Taught{RuleKind::dense, Kind::short_conv}, Taught{RuleKind::dms, Kind::short_conv},
      Taught{RuleKind::dense, Kind::state_space}, Taught{RuleKind::dms, Kind::state_space},
      Taught{RuleKind::dms, {}, 2}, Taught{RuleKind::dmc, {}, 2}, Taught{RuleKind::tova, {}, 2},
      Taught{RuleKind::dms_budget, {}, 2}, Taught{RuleKind::dms, Kind::delta_net, 2},
      Taught{RuleKind::dms, Kind::short_conv, 2},
      // more ranks than KV heads
      Taught{RuleKind::dense, {}, 3}, Taught{RuleKind::streaming, {}, 4},
      Taught{RuleKind::dms, {}, 4}, Taught{RuleKind::dmc, {}, 3}, Taught{RuleKind::tova, {}, 4},
      Taught{RuleKind::dms_budget, {}, 3}};
  for (const RuleKind rule : winnow::testing::every_rule()) {
    all.push_back(Taught{rule});
  }
  return all;
}

class AnyRule : public ::testing::TestWithParam<Taught> {
 protected:
  void SetUp() override { set_threads(1); }

  static const Backend& backend_of(DType type) {
    return backend_for(GetParam().rule, type, GetParam().recurrent, GetParam().ranks);
  }
};
INSTANTIATE_TEST_SUITE_P(Rules, AnyRule, ::testing::ValuesIn(every_taught()), [](const auto& info) {
  const Taught& taught = info.param;
  return std::string(kvcache::rule_name(taught.rule)) +
         (taught.recurrent ? "_" + winnow::testing::recurrent_name(*taught.recurrent) : "") +
         (taught.ranks > 1 ? "_ranks" : "") +
         (taught.ranks > 2 ? std::to_string(taught.ranks) : "");
});

TEST_P(AnyRule, DeterministicAnswersDoNotDependOnCompany) {
  EXPECT_TRUE(winnow::testing::holds("as if alone, to the last bit", 40, [] {
    const DType type = *rc::gen::element(DType::f32, DType::bf16);
    const Backend& backend = backend_of(type);
    EngineConfig config =
        *rc::gen::resize(kFullSize, rc::gen::exec([] { return any_engine(GetParam()); }));
    config.compute = *rc::gen::element(DType::f32, DType::bf16);
    const auto clients = any_clients();
    show(config, clients);
    const Answers busy = serve(backend, config, clients);
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const Answers same = serve_alone(backend, config, clients[i], config.cache.max_bytes);
      const Answers whole = serve_alone(backend, config, clients[i], kMuchMemory);
      for (int sample = 0; sample < clients[i].request.samples; ++sample) {
        expect_same(busy.at({i, sample}), same.at({0, sample}), whole.at({0, sample}));
      }
    }
  }));
}

// Greedy answers may diverge where two tokens are nearly equally likely, but not before.
void expect_equal_but_for_rounding(const Answer& a, const Answer& b) {
  for (std::size_t t = 0; t < std::min(a.tokens.size(), b.tokens.size()); ++t) {
    RC_ASSERT(std::abs(a.logprobs[t] - b.logprobs[t]) <= 1e-3F);
    if (a.tokens[t] != b.tokens[t]) {
      return;
    }
  }
  RC_ASSERT(a.finish == b.finish);
}

// Whether the order of computed numbers decides what a head holds or reads. Rounding may swap two
// that are nearly equal.
bool ranks_computed_numbers(RuleKind rule) {
  const kvcache::RuleTraits& traits = kvcache::traits_of(rule);
  return traits.selects || (traits.scores_entries() && rule != RuleKind::random);
}

TEST_P(AnyRule, DefaultAnswersDifferByRoundingOnly) {
  if (ranks_computed_numbers(GetParam().rule)) {
    GTEST_SKIP() << "rounding may change which entries it chooses";
  }
  EXPECT_TRUE(winnow::testing::holds("as if alone, but for rounding", 30, [] {
    const Backend& backend = backend_of(DType::f32);
    EngineConfig config =
        *rc::gen::resize(kFullSize, rc::gen::exec([] { return any_engine(GetParam()); }));
    config.cache.format = ops::EntryFormat::f32;  // fp32: no rounding to codes
    config.cache.max_bytes = on_ranks(backend, std::size_t{1024} * 120);
    config.deterministic = false;
    auto clients = any_clients();
    for (Client& client : clients) {
      client.request.sampling.temperature = 0.0;
      client.cancels.reset();
    }
    show(config, clients);
    const Answers busy = serve(backend, config, clients);
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const Answers alone = serve_alone(backend, config, clients[i], kMuchMemory);
      for (int sample = 0; sample < clients[i].request.samples; ++sample) {
        expect_equal_but_for_rounding(busy.at({i, sample}), alone.at({0, sample}));
      }
    }
  }));
}

// A cache that holds one sequence but not two: every sample is preempted again and again.
TEST_P(AnyRule, SamplesThatPreemptEachOther) {
  const Backend& backend = backend_of(DType::f32);
  EngineConfig config = roomy(GetParam().rule);
  config.cache.cr = 2.0;
  Client client;
  client.request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  client.request.max_tokens = 60;
  client.request.samples = 5;
  client.request.sampling = {.temperature = 1.0, .seed = 9};
  client.request.logprobs = 0;
  Answers whole;
  Answers squeezed;
  ASSERT_NO_THROW(whole = serve(backend, config, {client}));
  config.cache.max_bytes = on_ranks(backend, std::size_t{1024} * 26);
  config.step_tokens = 7;
  std::int64_t preemptions = 0;
  ASSERT_NO_THROW(squeezed = serve(backend, config, {client}, &preemptions));
  EXPECT_GT(preemptions, 0);
  for (int sample = 0; sample < 5; ++sample) {
    EXPECT_EQ(squeezed.at({0, sample}).tokens, whole.at({0, sample}).tokens) << sample;
    EXPECT_EQ(squeezed.at({0, sample}).finish, FinishReason::length) << sample;
  }
  EXPECT_NE(whole.at({0, 0}).tokens, whole.at({0, 1}).tokens);
}

}  // namespace
}  // namespace winnow::engine::testing
