// The states of prompts' last tokens on a CUDA device, compared with the CPU's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/engine.h"
#include "engine/options.h"

namespace winnow::engine::testing {
namespace {

/// The states of prompts of these lengths, read `step_tokens` at a time together with a request
/// that decodes.
std::vector<std::vector<float>> states_of(const Backend& backend, EngineConfig config,
                                          int step_tokens, const std::vector<int>& lengths) {
  config.step_tokens = step_tokens;
  Engine engine(backend, config);
  std::vector<std::vector<float>> states(lengths.size());
  Request other;
  other.prompt = {1, 2, 3};
  other.max_tokens = 40;
  engine.submit(other);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Request request;
    request.prompt = random_tokens(lengths[i], backend.spec().vocab);
    request.max_tokens = 0;
    request.on_state = [&states, i](std::span<const float> told) {
      EXPECT_TRUE(states[i].empty()) << "once";
      states[i].assign(told.begin(), told.end());
    };
    engine.submit(request);
  }
  while (!engine.idle()) {
    engine.step();
  }
  return states;
}

class CudaStates : public OnDevice<::testing::TestWithParam<Case>> {};

constexpr Case case_of(const char* family, double tolerance) {
  return {family,
          family,
          64,
          4,
          false,
          kvcache::RuleKind::dense,
          ops::EntryFormat::bf16,
          WeightStorage::as_stored,
          tolerance};
}

// Plain layers, norms of other kinds, multipliers, experts.
INSTANTIATE_TEST_SUITE_P(Models, CudaStates,
                         ::testing::Values(case_of("llama", 2e-2), case_of("qwen3", 2e-2),
                                           case_of("gemma2", 3e-2), case_of("cohere", 2e-2),
                                           case_of("stablelm", 2e-2), case_of("qwen3_moe", 5e-2)),
                         case_name);

TEST_P(CudaStates, AreWhatTheCpuTells) {
  const Case& c = GetParam();
  const model::ModelSpec spec = config_of(c);
  const model::Model reference(spec, weights_of(spec, host_format(engine_config(c, false))));
  const model::Model model(spec, weights_of(spec));
  const CpuBackend cpu(reference);
  const auto cuda = make_backend(model, engine_config(c, true));
  const std::vector<int> lengths{1, 9, 40, 300};
  const auto expected = states_of(cpu, engine_config(c, false), 512, lengths);
  for (const int step_tokens : {512, 9}) {  // with 9, some prompts' last token comes alone
    const auto got = states_of(*cuda, engine_config(c, true), step_tokens, lengths);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_EQ(got[i].size(), static_cast<std::size_t>(spec.hidden));
      EXPECT_LE(relative_error(got[i], expected[i]), c.tolerance)
          << lengths[i] << " tokens, " << step_tokens << " a step";
    }
  }
}

}  // namespace
}  // namespace winnow::engine::testing
