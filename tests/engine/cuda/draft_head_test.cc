// Heads that draft on a device: the states that models hand out, the head's logits, and drafts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/knowing_head.h"
#include "engine/options.h"

namespace winnow::engine::testing {
namespace {

using winnow::testing::HeadFiles;

class CudaStream : public OnDevice<::testing::TestWithParam<Case>> {};

// The states of three sequences' next tokens, one after another; the second one wants none.
std::vector<float> states_of(Runner& runner, std::span<SequenceState* const> sequences,
                             std::span<const std::int32_t> tokens, std::span<const int> after,
                             int hidden) {
  const std::size_t width = after.size() * static_cast<std::size_t>(hidden);
  std::vector<float> states(2 * tokens.size() * width, NAN);
  std::vector<SequenceShare> shares;
  for (SequenceState* sequence : sequences) {
    SequenceShare& share = shares.emplace_back();
    share.sequence = sequence;
    share.tokens = tokens;
    if (shares.size() != 2) {
      float* out = states.data() + (shares.size() == 1 ? 0 : tokens.size() * width);
      share.stream = {after, {out, tokens.size(), width}};
    }
  }
  std::vector<std::int32_t> next(shares.size());
  runner.forward(shares, {}, next);
  return states;
}

// The i-th of `count` states of all tokens.
std::vector<float> column(const std::vector<float>& states, std::size_t i, std::size_t count,
                          int hidden) {
  const auto width = static_cast<std::size_t>(hidden);
  std::vector<float> result;
  for (std::size_t at = i * width; at < states.size(); at += count * width) {
    const auto first = states.begin() + static_cast<std::ptrdiff_t>(at);
    result.insert(result.end(), first, first + hidden);
  }
  return result;
}

TEST_P(CudaStream, IsThatOfTheCpu) {
  Case c = GetParam();
  c.rule = RuleKind::dense;  // rounding may turn a decision, which changes what later tokens see
  const model::ModelSpec spec = config_of(c);
  const model::Model reference(spec, weights_of(spec, host_format(engine_config(c, false))));
  const model::Model model(spec, weights_of(spec));
  const auto cpu = make_backend(reference, engine_config(c, false));
  const auto cuda = make_backend(model, engine_config(c, true));
  const auto on_cpu = cpu->make_runner(engine_config(c, false));
  const auto on_cuda = cuda->make_runner(engine_config(c, true));
  const int layers = spec.layer_count();
  const std::vector<int> after{layers - 1, 0, 1, layers, layers + 1};
  const auto tokens = random_tokens(120, spec.vocab);
  std::vector<std::unique_ptr<SequenceState>> owners;
  std::vector<SequenceState*> of_cpu;
  std::vector<SequenceState*> of_cuda;
  for (int i = 0; i < 3; ++i) {
    of_cpu.push_back(owners.emplace_back(on_cpu->open({})).get());
    of_cuda.push_back(owners.emplace_back(on_cuda->open({})).get());
  }
  std::size_t first = 0;
  for (const std::size_t count : {70U, 1U, 1U, 5U, 1U, 20U, 1U}) {
    const auto chunk = std::span(tokens).subspan(first, count);
    const auto expected = states_of(*on_cpu, of_cpu, chunk, after, spec.hidden);
    const auto got = states_of(*on_cuda, of_cuda, chunk, after, spec.hidden);
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_LE(relative_error(column(got, i, after.size(), spec.hidden),
                               column(expected, i, after.size(), spec.hidden)),
                c.tolerance)
          << "tokens from " << first << ", after " << after[i] << " layers";
    }
    first += count;
  }
  for (std::size_t i = 0; i < of_cpu.size(); ++i) {
    EXPECT_EQ(of_cuda[i]->usage().per_head, of_cpu[i]->usage().per_head);
  }
}

// A step of one sequence takes the same path whether it hands out states or not.
TEST_P(CudaStream, TakesNoOtherPath) {
  Case c = GetParam();
  c.rule = RuleKind::dense;
  const model::ModelSpec spec = config_of(c);
  const model::Model model(spec, weights_of(spec));
  const auto cuda = make_backend(model, engine_config(c, true));
  const auto runner = cuda->make_runner(engine_config(c, true));
  const auto owner = runner->open({});
  SequenceState* const sequence = owner.get();
  const auto tokens = random_tokens(40, spec.vocab);
  const std::vector<int> after{0, 1, spec.layer_count() + 1};
  const auto step = [&](std::size_t first, std::size_t count, std::span<const int> layers) {
    (void)states_of(*runner, std::span(&sequence, 1), std::span(tokens).subspan(first, count),
                    layers, spec.hidden);
    return std::string(runner->last_paths().step);
  };
  (void)step(0, 36, after);
  const std::string with = step(36, 1, after);
  const std::string again = step(37, 1, after);
  std::vector<std::int32_t> next(1);
  SequenceShare share;
  share.sequence = sequence;
  share.tokens = std::span(tokens).subspan(38, 1);
  runner->forward(std::span(&share, 1), {}, next);
  EXPECT_EQ(with, std::string(runner->last_paths().step));
  EXPECT_EQ(again, with);
  if (std::string_view(c.name) == "llama_bf16" && winnow::cuda::has_programmatic_launch()) {
    EXPECT_EQ(with, "WholeStep");
  }
}

std::vector<Case> some_cases() {
  std::vector<Case> cases;
  for (const Case& c : kCases) {
    const std::string_view name = c.name;
    if (c.tolerance > 0.1) {  // experts that rounding chooses
      continue;
    }
    if (name == "llama_bf16" || name == "llama_dense_bf16" || name == "llama_eight" ||
        std::string_view(c.family) == "gemma2" || std::string_view(c.family) == "mixtral" ||
        is_hybrid(c)) {
      cases.push_back(c);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStream, ::testing::ValuesIn(some_cases()), case_name);

// Variants of a head, by the keys of its config.json.
struct Variant {
  const char* name;
  nlohmann::json more;
};

class CudaDraftHead : public OnDevice<::testing::TestWithParam<Variant>> {};

HeadFiles head_of(const Variant& variant) {
  const winnow::testing::HeadSizes sizes{.hidden = 256,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 64,
                                         .intermediate = 416,
                                         .vocab = 1003,
                                         .draft_vocab = 304,
                                         .target_hidden = 320};
  HeadFiles head = random_head(sizes, {0, 1, 2});
  head.config.update(variant.more);
  if (variant.more.contains("norm_before_fc")) {
    head.tensors["input_norm.weight"] = {{960}, std::vector<float>(960, 0.7F)};
  }
  return head;
}

model::ModelSpec target_of(const HeadFiles& head) {
  return winnow::testing::spec_of(
      "llama", {.hidden = head.sizes.target_hidden, .layers = 4, .vocab = head.sizes.vocab});
}

// What a row of tokens gives: logits of its last token, then the state for the next row.
std::vector<float> take(Runner& runner, SequenceState& sequence,
                        std::span<const std::int32_t> tokens, std::span<const float> states,
                        bool own, const model::ModelSpec& spec) {
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  std::vector<float> result(vocab + static_cast<std::size_t>(spec.hidden), NAN);
  SequenceShare share;
  share.sequence = &sequence;
  share.tokens = tokens;
  share.input = {{states.data(), tokens.size(), states.size() / tokens.size()}, own};
  share.state = std::span(result).subspan(vocab);
  runner.forward(std::span(&share, 1), {result.data(), 1, vocab}, {});
  return result;
}

// Compares the finite ones, and that the others are the same.
void expect_alike(const std::vector<float>& got, const std::vector<float>& expected) {
  std::vector<float> finite;
  std::vector<float> finite_expected;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::isinf(got[i]), std::isinf(expected[i])) << i;
    if (!std::isinf(expected[i])) {
      finite.push_back(got[i]);
      finite_expected.push_back(expected[i]);
    }
  }
  EXPECT_LE(relative_error(finite, finite_expected), 2e-2);
}

EngineConfig on_device(EngineConfig config) {
  config.cuda_device = 0;
  config.compute = DType::bf16;
  config.cache.format = ops::EntryFormat::bf16;
  return config;
}

// Rows with the target's states in chunks, then rows with the head's own.
void expect_logits_of_the_cpu(const model::Model& head, const Backend& on_cpu) {
  const model::ModelSpec& spec = head.spec();
  const EngineConfig config = roomy(RuleKind::dense);
  const auto cuda = make_backend(head, on_device(config));
  const auto cpu_runner = on_cpu.make_runner(config);
  const auto cuda_runner = cuda->make_runner(on_device(config));
  const auto cpu_sequence = cpu_runner->open({});
  const auto cuda_sequence = cuda_runner->open({});
  const auto tokens = random_tokens(60, spec.vocab);
  Random random(5);
  std::vector<float> state;
  std::size_t first = 0;
  for (const std::size_t count : {40U, 1U, 3U, 1U, 1U, 1U}) {
    const bool own = first >= 44;
    std::vector<float> states(count * static_cast<std::size_t>(spec.draft_head->inputs()));
    for (float& value : states) {
      value = static_cast<float>(random.uniform()) - 0.5F;
    }
    const std::vector<float>& input = own ? state : states;
    const auto chunk = std::span(tokens).subspan(first, count);
    const auto expected = take(*cpu_runner, *cpu_sequence, chunk, input, own, spec);
    expect_alike(take(*cuda_runner, *cuda_sequence, chunk, input, own, spec), expected);
    state.assign(expected.begin() + spec.vocab, expected.end());
    first += count;
  }
}

TEST_P(CudaDraftHead, ComputesTheLogitsOfTheCpu) {
  const HeadFiles files = head_of(GetParam());
  const LoadedHead head(files, target_of(files));
  expect_logits_of_the_cpu(head.model(), head.backend());
}

class CudaMtpLayer : public OnDevice<::testing::TestWithParam<const char*>> {};

TEST_P(CudaMtpLayer, ComputesTheLogitsOfTheCpu) {
  const winnow::testing::MtpFiles files(winnow::testing::mtp_family(GetParam()),
                                        {.hidden = 256,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 64,
                                         .intermediate = 416,
                                         .vocab = 1003});
  const model::Model target(files.target, model::random_weights(files.target, DType::f32, 4));
  const LoadedMtp layer(files, target);
  expect_logits_of_the_cpu(layer.model(), layer.backend());
}

INSTANTIATE_TEST_SUITE_P(Families, CudaMtpLayer, ::testing::Values("qwen2", "qwen3_5_text"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Variants, CudaDraftHead,
                         ::testing::Values(Variant{"as_published", nlohmann::json::object()},
                                           Variant{"norms_inputs", {{"norm_before_fc", true}}},
                                           Variant{"norms_residual",
                                                   {{"norm_before_residual", true}}},
                                           Variant{"norms_output", {{"norm_output", true}}}),
                         [](const auto& info) { return std::string(info.param.name); });

class CudaKnowingHead : public OnDevice<::testing::TestWithParam<RuleKind>> {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) {
      config_ = on_device(roomy(GetParam()));
      backend_ = make_backend(target_.model(), config_);
      head_backend_ = make_backend(head_.model(), config_);
    }
  }

  [[nodiscard]] EngineConfig drafting() const {
    EngineConfig config = drafted_by(*head_backend_, config_, std::size_t{1} << 24);
    config.draft_cache.format = ops::EntryFormat::bf16;
    return config;
  }

  PredictableModel target_{GetParam()};
  LoadedHead head_{knowing_head(48), target_.model().spec()};
  EngineConfig config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> head_backend_;
};

INSTANTIATE_TEST_SUITE_P(Rules, CudaKnowingHead,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::h2o),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

TEST_P(CudaKnowingHead, IsRightAboutTheTokensThatItKnows) {
  for (const int chunk : {512, 7}) {
    EngineConfig config = drafting();
    config.step_tokens = chunk;
    const Request request = reader(60, 200).request;
    EngineStats stats;
    const Answer answer = serve_drafted(*backend_, config, request, stats);
    EXPECT_EQ(answer.tokens, words_after(request.prompt.back(), 200));
    EXPECT_LT(stats.accepted_tokens, stats.drafted_tokens);
    EXPECT_GE(stats.accepted_tokens, 60);
  }
}

TEST_P(CudaKnowingHead, DraftsInBatchesWithoutDraftsBetween) {
  Engine engine(*backend_, drafting());
  std::vector<Request> requests(6, reader(50, 80).request);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.back() = static_cast<std::int32_t>(i);
    requests[i].draft_tokens = i % 3 == 0 ? 0 : 4;
    engine.submit(requests[i]);
  }
  std::map<RequestId, Tokens> answers;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      answers[event.request].push_back(event.token);
    }
  }
  ASSERT_EQ(answers.size(), requests.size());
  std::size_t i = 0;
  for (const auto& [id, tokens] : answers) {
    EXPECT_EQ(tokens, words_after(requests[i++].prompt.back(), 80));
  }
  EXPECT_GT(engine.stats().accepted_tokens, 0);
}

TEST_P(CudaKnowingHead, ObeysAConstraint) {
  Request request = reader(60, 60).request;
  request.constraint = std::make_shared<SteppingConstraint>(1000);
  EngineStats plain;
  EngineStats drafted;
  const Answer expected = serve_drafted(*backend_, config_, request, plain);
  EXPECT_EQ(serve_drafted(*backend_, drafting(), request, drafted).tokens, expected.tokens);
  EXPECT_GT(drafted.drafted_tokens, 0);
}

// Family, whose layer takes the stream before the final norm or behind it, and rule.
class CudaKnowingLayer
    : public OnDevice<::testing::TestWithParam<std::tuple<std::string, RuleKind>>> {};

INSTANTIATE_TEST_SUITE_P(Families, CudaKnowingLayer,
                         ::testing::Combine(::testing::Values("qwen2", "qwen3_5_text"),
                                            ::testing::Values(RuleKind::dense, RuleKind::dms,
                                                              RuleKind::h2o)),
                         [](const auto& info) {
                           return std::get<std::string>(info.param) + "_" +
                                  std::string(kvcache::rule_name(std::get<RuleKind>(info.param)));
                         });

TEST_P(CudaKnowingLayer, IsAlwaysRight) {
  const auto& [family, rule] = GetParam();
  const model::ModelSpec spec = winnow::testing::taught(
      rule, winnow::testing::spec_of(family, kWordSizes, {{"full_attention_interval", 1}}));
  const PredictableModel target(spec);
  const LoadedMtp layer(knowing_layer(family, spec), target.model());
  EngineConfig config = on_device(roomy(rule));
  const auto backend = make_backend(target.model(), config);
  const auto layer_backend = make_backend(layer.model(), on_device(roomy(RuleKind::dense)));
  config = drafted_by(*layer_backend, config, std::size_t{1} << 24);
  config.draft_cache.format = ops::EntryFormat::bf16;
  expect_right_drafts(*backend, config);
}

}  // namespace
}  // namespace winnow::engine::testing
