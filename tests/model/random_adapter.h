// LoRA adapters with random weights, in PEFT's format.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_testing.h"
#include "model/lora.h"
#include "model/spec.h"

namespace winnow::testing {

struct AdapterModule {
  const char* name;
  int out;
  int in;
};

/// All modules that an adapter may change in a layer with attention and a dense feed-forward.
inline std::vector<AdapterModule> adapter_modules(const model::ModelSpec& spec) {
  const model::AttentionSpec& attention = spec.attention();
  const int inner = spec.layer(0).feed_forward.intermediate;
  std::vector<AdapterModule> modules{{"self_attn.q_proj", attention.query_width(), spec.hidden},
                                     {"self_attn.k_proj", attention.key_width(), spec.hidden},
                                     {"self_attn.v_proj", attention.value_width(), spec.hidden},
                                     {"self_attn.o_proj", spec.hidden, attention.output_width()},
                                     {"mlp.up_proj", inner, spec.hidden},
                                     {"mlp.down_proj", spec.hidden, inner}};
  if (spec.layer(0).feed_forward.gated) {
    modules.push_back({"mlp.gate_proj", inner, spec.hidden});
  }
  return modules;
}

/// An adapter whose products are about `strength` times those of a random model's projections.
inline std::shared_ptr<const model::Lora> random_adapter(const model::ModelSpec& spec, int rank,
                                                         float strength, std::uint64_t seed) {
  const TempDir dir;
  dir.write("adapter_config.json",
            fmt::format(R"({{"peft_type": "LORA", "lora_alpha": {}}})", rank));
  Random random(seed);
  std::list<std::vector<float>> values;
  TensorMap tensors;
  const auto add = [&](const std::string& name, const Shape& shape, double size) {
    std::vector<float>& own = values.emplace_back();
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      own.push_back(static_cast<float>((random.uniform() - 0.5) * 2.0 * size));
    }
    tensors[name] = {DType::f32, shape, reinterpret_cast<const std::byte*>(own.data())};
  };
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    for (const AdapterModule& module : adapter_modules(spec)) {
      const auto name = [&](char half) {
        return fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, module.name,
                           half);
      };
      add(name('A'), {rank, module.in}, 1.0 / std::sqrt(module.in));
      add(name('B'), {module.out, rank}, strength / std::sqrt(rank));
    }
  }
  write_safetensors(dir.path() / "adapter_model.safetensors", tensors);
  return model::Lora::load(dir.path(), spec);
}

}  // namespace winnow::testing
